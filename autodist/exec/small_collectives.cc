#include "autodist/exec/small_collectives.h"

#include <algorithm>
#include <iterator>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

constexpr Seconds kYears{1e8};  // waits that only a failure ends

}  // namespace

SmallCollectives::SmallCollectives(const program::Program& program, program::Rank self,
                                   Signal& signal, Calls& calls, Post post)
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
  calls_.wait(lock, [&]() AD_REQUIRES(signal_) {
    std::vector<std::uint32_t> missing;
    const auto& there = notes_[key];
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(missing),
                 [&](std::uint32_t rank) { return there.count(rank) == 0; });
    return missing;
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
  if (step != shared_step_) shares_ = 0;
  shared_step_ = step;
  if (shares_ == kMostShares) {
    fail(ErrorCode::kUsage, "step {}: ranks share values {} times between two steps, no more", step,
         kMostShares);
  }
  const Subject subject{Topic::kShared, shares_++};
  give_all(subject, step, bytes);
  std::vector<std::string> all;
  for (auto& [rank, theirs] : collect(subject, step, computing_)) {
    all.push_back(std::move(theirs));
  }
  return all;
}

std::vector<std::string> SmallCollectives::told(std::uint64_t step) {
  std::vector<std::string> notes;
  for (auto& [rank, note] : collect(Topic::kStep, step, computing_)) {
    notes.push_back(std::move(note));
  }
  return notes;
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
  if (step != outcome_step_) outcomes_ = 0;
  outcome_step_ = step;
  if (outcomes_ == kMostOutcomes) {
    fail(ErrorCode::kUsage, "save: tried {} times after step {}; no more before the next one",
         kMostOutcomes, step);
  }
  return this->of_chief({Topic::kOutcome, outcomes_++}, step, of_chief);
}

void SmallCollectives::meet(Topic topic, std::uint64_t step) {
  give_all(topic, step, "");
  collect(topic, step, computing_);
}

void SmallCollectives::leave(std::uint64_t step) {
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const bool waits_for_us = self_.value == kChief ||
                              (program_.computes(self_) && !program_.computes(program::Rank(rank)));
    if (rank != self_.value && waits_for_us) post_(rank, Topic::kDone, step, "");
  }
  if (self_.value != kChief) wait_until_done({kChief});
}

void SmallCollectives::wait_for_the_end(const std::function<void()>& meanwhile) {
  constexpr Seconds kLookAround{0.1};
  MutexLock lock(signal_);
  while (
      !signal_.wait_for(kLookAround, [&]() AD_REQUIRES(signal_) { return are_done(computing_); })) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
}

bool SmallCollectives::are_done(const std::vector<std::uint32_t>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) AD_REQUIRES(signal_) {
    return done_.count(rank) != 0;
  });
}

// Training takes as long as it takes; a peer that is lost ends the wait.
void SmallCollectives::wait_until_done(const std::vector<std::uint32_t>& ranks) {
  const MutexLock lock(signal_);
  signal_.wait(
      kYears, [&]() AD_REQUIRES(signal_) { return are_done(ranks); },
      [] { return std::string("run: nobody finished."); });
}

}  // namespace autodist::exec
