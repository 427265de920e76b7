// The part of Calls that is about save(): which all ranks call after the same step, or the chief
// alone.

#include <fmt/ranges.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"
#include "autodist/exec/calls.h"

namespace autodist::exec {
namespace {

constexpr std::size_t kKeptWishes = 256;  // steps

// Of the answer to a save() of the chief.
Subject answer_of(std::uint64_t step) {
  return {Topic::kSaveAnswered, static_cast<comm::MessageId>(step % kMostSavesOnTheWay)};
}

}  // namespace

// A rank that is behind comes to the save() later, also where another step of the job has its turn.
void Calls::pass_wishes() {
  for (auto& [step, wish] : wishes_) {
    const bool goes_past = begun_ > step || (away_ && begun_ == step) || count_ > wish.calls;
    if (wish.passed || !goes_past) continue;
    wish.passed = true;
    unsent_.push_back(step);
    due_.push_back(wish.due);
  }
}

void Calls::post_passed() {
  std::vector<std::uint64_t> steps;
  std::uint64_t own = 0;
  {
    const MutexLock lock(signal_);
    steps.swap(unsent_);
    own = begun_;
  }
  for (const std::uint64_t step : steps) {
    peers_.post(kChief, answer_of(step), own, comm::ByteWriter().u64(step).u64(0).u32(0).take());
  }
}

bool Calls::meet_to_save(std::uint64_t step, const DueSave& due) {
  const std::vector<std::uint32_t> ranks = others();
  MutexLock lock(signal_);
  saved_until_ = step + 1;
  answers_.erase(answers_.begin(), answers_.lower_bound(step));
  const std::string bytes = comm::ByteWriter().u64(count_).u64(due.step).raw(due.directory).take();
  lock.unlock();
  for (const std::uint32_t rank : ranks) peers_.post(rank, Topic::kSaveWanted, step, bytes);
  lock.lock();
  wait(lock, ranks,
       [&](std::uint32_t rank) AD_REQUIRES(signal_) { return answers_[step].count(rank) != 0; });
  std::vector<std::uint32_t> here{self_.value};
  std::vector<std::uint32_t> elsewhere;
  for (const auto& [rank, answer] : answers_[step]) {
    (answer.here ? here : elsewhere).push_back(rank);
  }
  answers_.erase(step);
  if (elsewhere.empty()) return true;
  if (here.size() == 1) {
    due_.push_back(due);
    return false;
  }
  lock.unlock();
  or_abort([&] {
    fail(ErrorCode::kUsage,
         "ranks {} called save() at step {}, rank {} went on without it. Every rank calls it, or "
         "rank 0 alone.",
         fmt::join(here, ", "), step, fmt::join(elsewhere, ", "));
  });
  return false;
}

void Calls::come_to_save(std::uint64_t step) {
  comm::ByteWriter note;
  or_abort([&] {
    const MutexLock lock(signal_);
    saved_until_ = step + 1;
    const auto wish = wishes_.find(step);
    if (wish != wishes_.end() && wish->second.passed) {
      fail(ErrorCode::kUsage,
           "rank 0 called save() at step {}, rank {} another call before it. Every rank makes the "
           "same calls in the same order.",
           step, self_);
    }
    wishes_.erase(step);
    note.u64(step).u64(count_).u32(1);
  });
  peers_.post(kChief, answer_of(step), step, note.take());
}

void Calls::save_alone(std::uint64_t step) {
  const MutexLock lock(signal_);
  saved_until_ = step + 1;
  answers_.erase(answers_.begin(), answers_.upper_bound(step));
}

void Calls::set_away(bool away) {
  {
    const MutexLock lock(signal_);
    away_ = away;
    pass_wishes();
  }
  post_passed();
}

std::vector<DueSave> Calls::take_due(std::uint64_t step) {
  const MutexLock lock(signal_);
  const auto rest = std::stable_partition(due_.begin(), due_.end(), [&](const DueSave& each) {
    return each.step != step && step != kAtTheEnd;
  });
  std::vector<DueSave> now(rest, due_.end());
  due_.erase(rest, due_.end());
  return now;
}

bool Calls::has_due() const {
  const MutexLock lock(signal_);
  return !due_.empty();
}

// The receiving thread.

void Calls::take_wish(const comm::Frame& frame) {
  const std::string bytes = frame.payload.to_string();
  comm::ByteReader in(bytes);
  const std::uint64_t step = frame.header.step;
  Wish wish;
  wish.calls = in.u64();
  wish.due.step = in.u64();
  wish.due.directory = in.raw(in.left());
  {
    const MutexLock lock(signal_);
    if (step < saved_until_) return;  // this rank saves, too
    wishes_.erase(wishes_.begin(),
                  wishes_.lower_bound(step - std::min<std::uint64_t>(step, kKeptWishes)));
    wishes_.emplace(step, std::move(wish));
    pass_wishes();
  }
  post_passed();
}

void Calls::take_answer(const comm::Frame& frame) {
  const std::string bytes = frame.payload.to_string();
  comm::ByteReader in(bytes);
  const std::uint64_t step = in.u64();
  const std::uint64_t calls = in.u64();
  const bool here = in.u32() == 1;
  const MutexLock lock(signal_);
  answers_[step][frame.header.from] = {here, calls};
  const bool called = count_ > calls && !made_.empty();
  check_save(called ? std::optional(made_.back()) : std::nullopt);
}

}  // namespace autodist::exec
