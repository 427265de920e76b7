#include "autodist/exec/small_collectives.h"

#include <algorithm>
#include <iterator>

#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

// By rank.
std::vector<std::string> in_order(std::map<std::uint32_t, std::string> notes) {
  std::vector<std::string> list;
  for (auto& [rank, note] : notes) list.push_back(std::move(note));
  return list;
}

}  // namespace

SmallCollectives::SmallCollectives(const program::Program& program, program::Rank self,
                                   Signal& signal, Calls& calls, PostNote post)
    : program_(program), self_(self), signal_(signal), calls_(calls), post_(std::move(post)) {
  for (std::uint32_t rank = 0; rank < program.ranks.size(); ++rank) {
    if (program.computes(program::Rank(rank))) computing_.push_back(rank);
  }
}

void SmallCollectives::take(const comm::Frame& frame) {
  const Topic topic = topic_of(frame.header);
  if (topic >= Topic::kCalled && topic <= Topic::kEnded) return calls_.take(frame);
  if (topic != Topic::kDone) {
    keep({topic, frame.header.id}, frame.header.step, frame.header.from, frame.payload.to_string());
    if (topic == Topic::kStep) calls_.summarised(frame.header.from, frame.header.step);
    return;
  }
  {
    const MutexLock lock(signal_);
    done_.insert(frame.header.from);
  }
  signal_.notify();
}

void SmallCollectives::keep(Subject subject, std::uint64_t step, std::uint32_t from,
                            std::string note) {
  {
    const MutexLock lock(signal_);
    if (subject.topic == Topic::kOutcome) forget_outcomes(step);
    notes_[{subject, step}][from] = std::move(note);
  }
  signal_.notify();
}

// Drops outcomes of steps that every rank has done by now, for which nobody has asked.
void SmallCollectives::forget_outcomes(std::uint64_t step) {
  const std::uint64_t open = program_.open_steps() + 1;
  for (auto note = notes_.lower_bound({Topic::kOutcome, 0});
       note != notes_.end() && note->first.first.topic == Topic::kOutcome;) {
    note = note->first.second + open < step ? notes_.erase(note) : std::next(note);
  }
}

std::map<std::uint32_t, std::string> SmallCollectives::collect(
    Subject subject, std::uint64_t step, const std::vector<std::uint32_t>& ranks) {
  MutexLock lock(signal_);
  const auto key = std::make_pair(subject, step);
  calls_.wait(lock, ranks, [&](std::uint32_t rank) AD_REQUIRES(signal_) {
    return notes_[key].count(rank) != 0;
  });
  return std::move(notes_.extract(key).mapped());
}

void SmallCollectives::give_all(Subject subject, std::uint64_t step, const std::string& note) {
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<std::uint32_t>((self_.value + i) % program_.ranks.size());
    if (program_.computes(program::Rank(to))) post_(to, subject, step, note);
  }
  keep(subject, step, self_.value, note);
}

void SmallCollectives::tell(std::uint64_t step, const std::string& note) {
  give_all(Topic::kStep, step, note);
}

std::vector<std::string> SmallCollectives::share(std::uint64_t step, const std::string& bytes) {
  const Subject subject{Topic::kShared, shares_.next(step)};
  if (subject.id >= kMostShares) {
    fail(ErrorCode::kUsage, "step {}: ranks share values {} times between two steps, no more", step,
         kMostShares);
  }
  return in_order(exchange(subject, step, bytes));
}

std::vector<std::string> SmallCollectives::told(std::uint64_t step) {
  return in_order(collect(Topic::kStep, step, computing_));
}

std::map<std::uint32_t, std::string> SmallCollectives::gather_at_chief(Subject subject,
                                                                       std::uint64_t step,
                                                                       std::string bytes) {
  if (self_.value != kChief) {
    post_(kChief, subject, step, bytes);
    return {};
  }
  keep(subject, step, kChief, std::move(bytes));
  return collect(subject, step, computing_);
}

std::map<std::uint32_t, std::string> SmallCollectives::exchange(Subject subject, std::uint64_t step,
                                                                const std::string& bytes) {
  give_all(subject, step, bytes);
  return collect(subject, step, computing_);
}

std::string SmallCollectives::of_chief(Subject subject, std::uint64_t step,
                                       const std::string& bytes) {
  if (self_.value != kChief) return collect(subject, step, {kChief}).at(kChief);
  for (const std::uint32_t rank : computing_) {
    if (rank != kChief) post_(rank, subject, step, bytes);
  }
  return bytes;
}

std::string SmallCollectives::outcome(std::uint64_t step, const std::string& of_chief) {
  const Subject subject{Topic::kOutcome, outcomes_.next(step)};
  if (subject.id >= kMostOutcomes) {
    fail(ErrorCode::kUsage, "save: tried {} times after step {}; no more before the next one",
         kMostOutcomes, step);
  }
  return this->of_chief(subject, step, of_chief);
}

void SmallCollectives::meet(Topic topic, std::uint64_t step) { exchange(topic, step, ""); }

void SmallCollectives::leave(std::uint64_t step) {
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const bool waits_for_us = self_.value == kChief ||
                              (program_.computes(self_) && !program_.computes(program::Rank(rank)));
    if (rank != self_.value && waits_for_us) post_(rank, Topic::kDone, step, "");
  }
  if (self_.value == kChief) return;
  const MutexLock lock(signal_);
  signal_.wait(
      kYears, [&]() AD_REQUIRES(signal_) { return done_.count(kChief) != 0; },
      [] { return std::string("run: nobody finished."); });
}

void SmallCollectives::wait_for_the_end(const std::function<void()>& meanwhile) {
  constexpr Seconds kLookAround{0.1};
  const auto are_done = [&]() AD_REQUIRES(signal_) {
    return std::all_of(computing_.begin(), computing_.end(),
                       [&](std::uint32_t rank)
                           AD_REQUIRES(signal_) { return done_.count(rank) != 0; });
  };
  MutexLock lock(signal_);
  while (!signal_.wait_for(kLookAround, are_done)) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
}

}  // namespace autodist::exec
