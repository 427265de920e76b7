#include "autodist/exec/calls.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/bytes.h"

namespace autodist::exec {
namespace {

constexpr Seconds kLookAgain{1};                      // how often the others' places are read
constexpr std::size_t kRemembered = 256;              // calls
constexpr std::uint32_t kWishesForTheEnd = 1U << 16;  // beside a call's number

bool is_of_a_loop(Call call) {
  return call == Call::kRunAndFetch || call == Call::kSummarise || call == Call::kTrial ||
         call == Call::kSnapshot;
}

Call call_at(const comm::Position& position) {
  return static_cast<Call>(position.place & ~kWishesForTheEnd);
}

}  // namespace

const char* name_of(Call call) {
  constexpr std::array<const char*, 14> kNames{"nothing",
                                               "a step",
                                               "synchronize()",
                                               "evaluate()",
                                               "sum_over_ranks()",
                                               "run_and_fetch()",
                                               "summarise()",
                                               "export_torchscript()",
                                               "gather_trace()",
                                               "save()",
                                               "finish()",
                                               "change_plan()",
                                               "a comparison of plans",
                                               "snapshot()"};
  const auto index = static_cast<std::size_t>(call);
  return index < kNames.size() ? kNames[index] : "an unknown call";
}

bool is_job_end(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const JobEnded&) {
    return true;
  } catch (...) {
    return false;
  }
}

Calls::Calls(const program::Program& program, program::Rank self, std::uint64_t first_step,
             Seconds limit, Signal& signal, CallPeers peers)
    : program_(program),
      self_(self),
      limit_(limit),
      signal_(signal),
      peers_(std::move(peers)),
      begun_(first_step),
      summarised_until_(first_step) {}

std::vector<std::uint32_t> Calls::others() const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    if (rank != self_.value && program_.computes(program::Rank(rank))) ranks.push_back(rank);
  }
  return ranks;
}

std::string Calls::text(std::uint32_t rank, const Made& made) const {
  return fmt::format("rank {} called {} at step {}", rank, name_of(made.call), made.step);
}

void Calls::show() const {
  const std::uint32_t wish = wishes_for_the_end_ ? kWishesForTheEnd : 0;
  peers_.show({begun_, static_cast<std::uint32_t>(current_.call) | wish});
}

// What other ranks called, and this one did not.

bool Calls::is_past_the_end() const { return chief_finished_ && chief_finished_->step < begun_; }

const Calls::Made* Calls::made(std::uint64_t number) const {
  if (number > count_ || count_ - number >= made_.size()) return nullptr;
  return &made_[made_.size() - 1 - (count_ - number)];
}

// Whether the calls differ only because the job has ended at the chief and here, while the other
// rank's loop goes on: it learns of the end by itself.
bool Calls::goes_on_past(const Announced& theirs, const Made& ours) const {
  return (self_.value == kChief || chief_finished_) && ours.call == Call::kFinish &&
         is_of_a_loop(theirs.made.call) && theirs.made.step >= ours.step;
}

JobEnded Calls::ended(const std::string& here) const {
  return JobEnded(fmt::format("{}, rank {} {}: the job has ended", text(kChief, *chief_finished_),
                              self_, here));
}

void Calls::fail_differ(const Announced& theirs, const Made& ours) const {
  fail(ErrorCode::kUsage, "{}, {}. Every rank makes the same calls in the same order.",
       text(theirs.from, theirs.made), text(self_.value, ours));
}

void Calls::check_step() const {
  const auto check = [&](const Announced& call) AD_REQUIRES(signal_) {
    if (call.made.step >= begun_) return;
    fail(ErrorCode::kUsage, "{}, rank {} is at step {}. Every rank calls it.",
         text(call.from, call.made), self_, begun_);
  };
  for (const auto& [step, from] : summaries_) check({from, {Call::kSummarise, step}});
  for (const auto& [number, call] : awaited_) check(call);
  check_save(std::nullopt);
}

// `now`: the call that this rank makes in the place of save(), where it makes one.
void Calls::check_save(const std::optional<Made>& now) const {
  for (const auto& [step, ranks] : answers_) {
    if (step < saved_until_) continue;
    for (const auto& [rank, answer] : ranks) {
      const std::string theirs = text(rank, {Call::kSave, step});
      if (answer.here && step < begun_) {
        fail(ErrorCode::kUsage, "{}, rank {} is at step {}. Every rank calls it, or rank 0 alone.",
             theirs, self_, begun_);
      }
      if (answer.here && now && answer.calls < count_) {
        fail(ErrorCode::kUsage, "{}, {}. Every rank calls it, or rank 0 alone.", theirs,
             text(self_.value, *now));
      }
    }
  }
}

void Calls::check_call(const Made& made, std::uint64_t number) {
  const auto awaited = awaited_.find(number);
  if (awaited != awaited_.end()) {
    const Announced theirs = awaited->second;
    awaited_.erase(awaited);
    const bool both_end = theirs.made.call == Call::kFinish && made.call == Call::kFinish;
    if (!(theirs.made == made) && !both_end && !goes_on_past(theirs, made)) {
      fail_differ(theirs, made);
    }
  }
  check_save(made);
}

// What this rank calls.

void Calls::begin_step(std::uint64_t step) {
  or_abort([&] {
    const MutexLock lock(signal_);
    begun_ = step + 1;
    if (is_past_the_end()) throw ended(fmt::format("is at step {}", begun_));
    check_step();
    pass_wishes();
    current_ = {Call::kStep, step};
    show();
  });
  post_passed();
}

void Calls::end_step() {
  current_ = {};
  const MutexLock lock(signal_);
  show();
}

Calls::Scope Calls::begin(Call call, std::uint64_t step) {
  if (depth_ > 0) return Scope(nullptr);
  const Made made{call, step};
  std::uint64_t number = 0;
  or_abort([&] {
    const MutexLock lock(signal_);
    // A rank that is late still makes the calls that the chief made before it ended.
    const bool was_made = chief_finished_ && count_ + 1 < chief_finished_call_;
    if (chief_finished_ && call != Call::kFinish && (!was_made || is_past_the_end())) {
      if (is_of_a_loop(call) || is_past_the_end()) {
        throw ended(fmt::format("called {} at step {}", name_of(call), step));
      }
      fail_differ({kChief, *chief_finished_}, made);
    }
    number = ++count_;
    made_.push_back(made);
    if (made_.size() > kRemembered) made_.pop_front();
    if (call == Call::kSummarise) {
      summarised_until_ = step;
      summaries_.erase(summaries_.begin(), summaries_.upper_bound(step));
    }
    check_call(made, number);
    pass_wishes();
  });
  post_passed();
  // A summary needs no message, as its note says that it was made; that a rank is at the end
  // concerns the chief alone.
  if (call == Call::kFinish && self_.value != kChief) {
    tell(made, number, {kChief});
  } else if (call != Call::kSummarise) {
    tell(made, number, others());
  }
  return enter(call, step);
}

void Calls::tell(const Made& made, std::uint64_t number, const std::vector<std::uint32_t>& ranks) {
  const std::uint32_t ordinal = told_.next(made.step);
  if (ordinal >= kMostCalls) {
    fail(ErrorCode::kUsage, "{}: there were {} calls of all ranks since the last step, no more",
         name_of(made.call), kMostCalls);
  }
  comm::ByteWriter note;
  const std::string bytes = note.u32(static_cast<std::uint32_t>(made.call)).u64(number).take();
  for (const std::uint32_t rank : ranks) {
    peers_.post(rank, {Topic::kCalled, ordinal}, made.step, bytes);
  }
}

Calls::Scope Calls::enter(Call call, std::uint64_t step) {
  if (depth_ > 0) return Scope(nullptr);
  ++depth_;
  current_ = {call, step};
  const MutexLock lock(signal_);
  show();
  return Scope(this);
}

void Calls::end() {
  --depth_;
  end_step();
}

// Waiting.

std::string Calls::where(std::uint32_t rank) const {
  const auto position = peers_.where(rank);
  if (!position) return fmt::format("rank {}", rank);
  const Call call = call_at(*position);
  if (call == Call::kNone) {
    return fmt::format("rank {}, which is at step {} and in no call", rank, position->step);
  }
  if (call == Call::kStep) return fmt::format("rank {}, which is in step {}", rank, position->step);
  return fmt::format("rank {}, which is in {} at step {}", rank, name_of(call), position->step);
}

std::string Calls::where(const std::vector<std::uint32_t>& ranks) const {
  std::vector<std::string> places;
  for (const std::uint32_t rank : ranks) places.push_back(where(rank));
  return fmt::format("{}", fmt::join(places, ", "));
}

std::string Calls::whom_a_step_awaits(std::uint64_t step, bool says) {
  std::vector<std::uint32_t> awaited;
  std::uint64_t least = step;
  for (const std::uint32_t rank : others()) {
    const auto position = peers_.where(rank);
    if (!position || position->step > least) continue;
    // A position counts steps that the rank has begun; outside of a step it has done all of them.
    if (position->step == step && call_at(*position) != Call::kStep) continue;
    if (position->step < least) awaited.clear();
    least = position->step;
    awaited.push_back(rank);
  }
  const std::string whom = where(awaited);
  if (says && peers_.say && !awaited.empty() && awaited != said_to_await_) {
    said_to_await_ = awaited;
    peers_.say(fmt::format("rank {} waits in step {} for {}", self_, step + 1, whom));
  }
  return whom;
}

std::string Calls::waits_for(const std::vector<std::uint32_t>& ranks) const {
  return fmt::format("in {} at step {} for {}", name_of(current_.call), current_.step,
                     where(ranks));
}

std::uint64_t Calls::steps_of(const std::vector<std::uint32_t>& ranks) const {
  std::uint64_t steps = 0;
  for (const std::uint32_t rank : ranks) {
    if (const auto position = peers_.where(rank)) steps += position->step;
  }
  return steps;
}

// Whether these ranks write or copy a checkpoint, for which there is no limit.
bool Calls::are_busy(const std::vector<std::uint32_t>& ranks) const {
  const bool saves = current_.call == Call::kSave || current_.call == Call::kSnapshot;
  if (!saves && current_.call != Call::kFinish) return false;
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
    const auto position = peers_.where(rank);
    return position && position->step == current_.step && call_at(*position) == current_.call;
  });
}

void Calls::wait(MutexLock& lock, const std::vector<std::uint32_t>& ranks,
                 const std::function<bool(std::uint32_t rank)>& is_there) {
  const SteadyClock clock;
  const Seconds start = clock.now();
  Seconds moved = start;
  std::uint64_t steps = 0;
  bool said = false;
  const auto is_missing = [&](std::uint32_t rank) { return !is_there(rank); };
  const auto all_there = [&] { return std::none_of(ranks.begin(), ranks.end(), is_missing); };
  while (!signal_.wait_for(std::min(kLookAgain, limit_), all_there)) {
    std::vector<std::uint32_t> missing;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(missing), is_missing);
    const bool busy = are_busy(missing);
    const bool forever = busy || current_.call == Call::kFinish;  // alive, they do something else
    lock.unlock();
    const Seconds now = clock.now();
    const std::uint64_t steps_before = std::exchange(steps, steps_of(missing));
    if (steps_before < steps || busy) moved = now;
    if (!said && !busy && now - start >= kSaysWhoAfter) {
      said = true;
      if (peers_.say) peers_.say(fmt::format("rank {} waits {}", self_, waits_for(missing)));
    }
    if (!forever && now - moved >= limit_) {
      or_abort([&] {
        fail(ErrorCode::kTimeout, "rank {} has waited {} {}. Every rank calls it.", self_,
             to_string(now - moved), waits_for(missing));
      });
    }
    lock.lock();
  }
}

// The end.

void Calls::wish_for_the_end() {
  wishes_for_the_end_ = true;
  const MutexLock lock(signal_);
  show();
}

std::optional<std::uint32_t> Calls::who_wishes_for_the_end() const {
  if (wishes_for_the_end_) return self_.value;
  for (std::uint32_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const auto position = rank == self_.value ? std::nullopt : peers_.where(rank);
    if (position && (position->place & kWishesForTheEnd) != 0) return rank;
  }
  return std::nullopt;
}

bool Calls::has_ended() const {
  const MutexLock lock(signal_);
  return is_past_the_end();
}

void Calls::come_to_finish(std::uint64_t step) {
  const Scope scope = begin(Call::kFinish, step);
  signal_.resume();  // the end that waits were broken off for is reached in order
}

bool Calls::all_finish(std::uint64_t step) {
  const std::vector<std::uint32_t> ranks = others();
  const Scope scope = enter(Call::kFinish, step);
  MutexLock lock(signal_);
  if (self_.value != kChief) {
    wait(lock, {kChief},
         [&](std::uint32_t) AD_REQUIRES(signal_) { return verdict_ != Verdict::kUnknown; });
    return verdict_ == Verdict::kInOrder;
  }
  wait(lock, ranks,
       [&](std::uint32_t rank) AD_REQUIRES(signal_) { return finished_.count(rank) != 0; });
  const bool all = std::all_of(finished_.begin(), finished_.end(),
                               [&](const auto& each) { return each.second == step; });
  lock.unlock();
  for (const std::uint32_t rank : ranks) {
    peers_.post(rank, Topic::kEnded, step, all ? "1" : "0");
  }
  return all;
}

// The receiving thread.

void Calls::take(const comm::Frame& frame) {
  switch (topic_of(frame.header)) {
    case Topic::kCalled:
      take_call(frame);
      break;
    case Topic::kSaveWanted:
      take_wish(frame);
      break;
    case Topic::kSaveAnswered:
      take_answer(frame);
      break;
    default: {
      AD_CHECK(topic_of(frame.header) == Topic::kEnded) << name_of(frame.header.kind);
      const MutexLock lock(signal_);
      verdict_ = frame.payload.to_string() == "1" ? Verdict::kInOrder : Verdict::kLate;
    }
  }
  signal_.notify();
}

void Calls::take_call(const comm::Frame& frame) {
  const std::string bytes = frame.payload.to_string();
  comm::ByteReader in(bytes);
  const Announced theirs{frame.header.from, {static_cast<Call>(in.u32()), frame.header.step}};
  const std::uint64_t number = in.u64();
  if (theirs.made.call == Call::kFinish) {
    return theirs.from == kChief ? take_end_of_chief(theirs, number) : take_end_of(theirs, number);
  }
  const MutexLock lock(signal_);
  if (const Made* ours = made(number)) {
    if (!(*ours == theirs.made) && !goes_on_past(theirs, *ours)) fail_differ(theirs, *ours);
  } else if (number > count_) {
    awaited_.emplace(number, theirs);
    check_step();
  }
}

// A rank that is ahead of the chief's end is ended at once; another one learns of it by its next
// step.
void Calls::take_end_of_chief(const Announced& theirs, std::uint64_t number) {
  std::exception_ptr end;
  {
    const MutexLock lock(signal_);
    chief_finished_ = theirs.made;
    chief_finished_call_ = number;
    const Made* ours = made(number);
    if (!made_.empty() && made_.back().call == Call::kFinish) return;
    // These wait for the chief and take no step that would show the end.
    const bool waits_for_it =
        ours != nullptr && (ours->call == Call::kTrial || ours->call == Call::kSnapshot);
    if (is_past_the_end() || waits_for_it) {
      end = std::make_exception_ptr(ended(fmt::format("is at step {}", begun_)));
    } else if (ours != nullptr && !is_of_a_loop(ours->call)) {
      fail_differ(theirs, *ours);
    }
  }
  if (end) signal_.end(end);
}

// At the chief: it may be at the end already, or come to it later, but with no further step.
void Calls::take_end_of(const Announced& theirs, std::uint64_t number) {
  const MutexLock lock(signal_);
  finished_[theirs.from] = theirs.made.step;
  const Made* ours = made_.empty() ? nullptr : &made_.back();
  if (ours != nullptr && ours->call == Call::kFinish) {
    if (theirs.made.step < ours->step) fail_differ(theirs, *ours);
    return;
  }
  awaited_.emplace(std::max(number, count_ + 1), theirs);
  check_step();
}

void Calls::summarised(std::uint32_t from, std::uint64_t step) {
  const MutexLock lock(signal_);
  if (step < summarised_until_ || chief_finished_) return;
  summaries_.emplace(step + 1, from);
  check_step();
}

}  // namespace autodist::exec
