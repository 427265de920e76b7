#include "autodist/exec/notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

constexpr std::uint32_t kChief = 0;
constexpr Seconds kYears{1e8};

}  // namespace

Notes::Notes(const ir::Program& program, ir::Rank self, Seconds limit, Signal& signal, Post post)
    : program_(program), self_(self), limit_(limit), signal_(signal), post_(std::move(post)) {}

void Notes::take(const comm::Frame& frame) {
  const Topic topic{frame.header.slice};
  AD_CHECK(topic <= Topic::kDone || (Topic::kMet <= topic && topic <= Topic::kSaved) ||
           (Topic::kFetched <= topic && topic < Topic::kStates))
      << "a note on topic " << frame.header.slice;
  if (topic != Topic::kDone) {
    keep(topic, frame.header.step, frame.header.from, frame.payload.to_string());
    return;
  }
  {
    const Signal::Lock lock = signal_.lock();
    done_.insert(frame.header.from);
  }
  signal_.notify();
}

void Notes::keep(Topic topic, std::uint64_t step, std::uint32_t from, std::string note) {
  {
    const Signal::Lock lock = signal_.lock();
    notes_[{topic, step}][from] = std::move(note);
  }
  signal_.notify();
}

std::map<std::uint32_t, std::string> Notes::collect(Topic topic, std::uint64_t step,
                                                    const char* what, Seconds limit) {
  Signal::Lock lock = signal_.lock();
  const auto key = std::make_pair(topic, step);
  signal_.wait(
      lock, limit, [&] { return notes_[key].size() == program_.replica_count(); },
      [&] {
        return fmt::format("run: {} of {} ranks sent {} at step {}.", notes_[key].size(),
                           program_.replica_count(), what, step);
      });
  return std::move(notes_.extract(key).mapped());
}

void Notes::give_all(Topic topic, std::uint64_t step, const std::string& note) {
  for (std::size_t i = 1; i < program_.ranks.size(); ++i) {
    const auto to = static_cast<std::uint32_t>((self_.value + i) % program_.ranks.size());
    if (program_.computes(ir::Rank(to))) post_(to, topic, step, note);
  }
  keep(topic, step, self_.value, note);
}

void Notes::tell(std::uint64_t step, const std::string& note) {
  give_all(Topic::kStep, step, note);
}

std::vector<std::string> Notes::share(std::uint64_t step, const std::string& bytes) {
  if (step != shared_step_) shares_ = 0;
  shared_step_ = step;
  if (shares_ == kMostShares) {
    fail(ErrorCode::kUsage, "step {}: ranks share values {} times between two steps, no more", step,
         kMostShares);
  }
  const auto topic = static_cast<Topic>(static_cast<comm::SliceNumber>(Topic::kShared) + shares_++);
  give_all(topic, step, bytes);
  std::vector<std::string> all;
  for (auto& [rank, theirs] : collect(topic, step, "their values", limit_)) {
    all.push_back(std::move(theirs));
  }
  return all;
}

std::vector<std::string> Notes::told(std::uint64_t step) {
  std::vector<std::string> notes;
  for (auto& [rank, note] : collect(Topic::kStep, step, "its notes", limit_)) {
    notes.push_back(std::move(note));
  }
  return notes;
}

std::map<std::uint32_t, std::string> Notes::gather_at_chief(Topic topic, std::uint64_t step,
                                                            std::string bytes) {
  if (self_.value != kChief) {
    post_(kChief, topic, step, bytes);
    return {};
  }
  keep(topic, step, kChief, std::move(bytes));
  return collect(topic, step, "what differs between replicas", limit_);
}

std::map<std::uint32_t, std::string> Notes::exchange(Topic topic, std::uint64_t step,
                                                     const std::string& bytes) {
  give_all(topic, step, bytes);
  return collect(topic, step, "what their stages have", limit_);
}

void Notes::meet(Topic topic, std::uint64_t step) {
  give_all(topic, step, "");
  collect(topic, step, "word that they are there", kYears);
}

void Notes::leave(std::uint64_t step) {
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const bool waits_for_us =
        self_.value == kChief || (program_.computes(self_) && !program_.computes(ir::Rank(rank)));
    if (rank != self_.value && waits_for_us) post_(rank, Topic::kDone, step, "");
  }
  if (self_.value != kChief) wait_until_done({kChief});
}

void Notes::wait_for_the_end() {
  std::vector<std::uint32_t> computing;
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    if (program_.computes(ir::Rank(rank))) computing.push_back(rank);
  }
  wait_until_done(computing);
}

// Training takes as long as it takes; a peer that is lost ends the wait.
void Notes::wait_until_done(const std::vector<std::uint32_t>& ranks) {
  Signal::Lock lock = signal_.lock();
  signal_.wait(
      lock, kYears,
      [&] {
        return std::all_of(ranks.begin(), ranks.end(),
                           [&](std::uint32_t rank) { return done_.count(rank) != 0; });
      },
      [] { return std::string("run: nobody finished."); });
}

}  // namespace autodist::exec
