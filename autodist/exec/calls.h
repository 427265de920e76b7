// The calls of a session that all computing ranks make, in the same order: who has made which, who
// is missing, and what the chief may do without the others.
//
// A call has a number, and says so to the other ranks when it begins (exec/topic.h). A rank that
// makes another call under that number, or goes on with a step beyond it, ends the job with both
// names. A rank that comes to nothing is waited for: it is named after some seconds, and the wait
// ends when it has come no further for the limit. What has no number: save(), of which there is at
// most one between two steps. A step in which nobody calls anything sends nothing for all this.

#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/job_ended.h"
#include "autodist/comm/exchange.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/step_counter.h"
#include "autodist/exec/topic.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// After so long a rank that waits says for which other one.
inline constexpr Seconds kSaysWhoAfter{3};
inline constexpr std::uint32_t kMostCalls = 32;          // between two steps
inline constexpr std::uint64_t kMostSavesOnTheWay = 32;  // of the chief, that a rank has not met

enum class Call : std::uint32_t {
  kNone,  // the rank is in its own code
  kStep,
  kSynchronize,
  kEvaluate,
  kSumOverRanks,
  kRunAndFetch,
  kSummarise,
  kExport,
  kGatherTrace,
  kSave,
  kFinish,
  kChangePlan,
  kTrial,  // trials of plans go on: of the loop, which no rank calls
  kSnapshot,
};
// "evaluate()".
const char* name_of(Call call);

// Whether it is a JobEnded.
bool is_job_end(const std::exception_ptr& reason);

// A checkpoint that the chief asked for by itself: all ranks save after so many steps.
struct DueSave {
  std::uint64_t step = 0;  // kAtTheEnd: when the job ends
  std::string directory;
};
inline constexpr std::uint64_t kAtTheEnd = ~std::uint64_t{0};

// Sends a note about a step to another rank; does not block.
using PostNote = std::function<void(std::uint32_t to, Subject subject, std::uint64_t step,
                                    const std::string& note)>;

// How a rank reaches the others. Nothing in it blocks.
struct CallPeers {
  PostNote post;
  // Where this rank is, for whoever waits for it; and where another one was some time ago.
  std::function<void(comm::Position)> show;
  std::function<std::optional<comm::Position>(std::uint32_t rank)> where;
  // A line for the user; may be empty.
  std::function<void(const std::string& line)> say;
  // The job is over for all ranks, unless it has ended in order. Not under the signal's lock.
  std::function<void(const std::exception_ptr& reason)> abort;
};

class Calls {
 public:
  // `program` and `signal` outlive it. A rank that comes no step further is waited for no longer
  // than `limit`.
  Calls(const program::Program& program, program::Rank self, std::uint64_t first_step,
        Seconds limit, Signal& signal, CallPeers peers);

  // While it lives, the rank is in the call; within another call it is part of that.
  class Scope {
   public:
    explicit Scope(Calls* calls) : calls_(calls) {}
    Scope(Scope&& other) noexcept : calls_(std::exchange(other.calls_, nullptr)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(Scope&&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (calls_ != nullptr) calls_->end();
    }

   private:
    Calls* calls_;
  };

  // By the compute thread, all of them. Error(kUsage) where another rank made another call or went
  // on without; JobEnded for a step or a summary after the chief has finished.
  void begin_step(std::uint64_t step);
  void end_step();
  // `step`: how many are done. Tells the others, unless it is a summary, which tells by itself.
  Scope begin(Call call, std::uint64_t step);
  // A call without number, which others need not make now: its name for messages.
  Scope enter(Call call, std::uint64_t step);

  // Under the signal's lock, until is_there() holds for each of `ranks`. Says after some seconds
  // whom this rank waits for, and where that one is; not of those that are in the same save(),
  // snapshot() or finish(), which are waited for as long as they live. Throws as Signal::wait.
  void wait(MutexLock& lock, const std::vector<std::uint32_t>& ranks,
            const std::function<bool(std::uint32_t rank)>& is_there) AD_UNCHECKED_THREADS;

  // By who waits in a step for a variable: "rank 1, which is at step 11 and in no call", the ranks
  // that are furthest behind it, as far as is known; empty where none is. `says`: in a line, too,
  // unless the last one named the same ranks. By the compute thread.
  std::string whom_a_step_awaits(std::uint64_t step, bool says);

  // save() at a rank. For the chief alone, where the checkpoint needs the others: true if they all
  // call it, too, after this step; false if none does, and then each of them knows `due` as one to
  // come. Throws Error(kUsage) where some do. For the others: tells the chief that they are here.
  bool meet_to_save(std::uint64_t step, const DueSave& due);
  void come_to_save(std::uint64_t step);
  // At the chief, in place of meet_to_save() where it needs nobody.
  void save_alone(std::uint64_t step);
  // Another step of the job has its turn: a save() of the chief in this one's is not this rank's.
  void set_away(bool away);
  // The saves that are due after so many steps, or, at the end, all; each is given once.
  std::vector<DueSave> take_due(std::uint64_t step);
  [[nodiscard]] bool has_due() const;

  // This rank comes to the end of the job: its last call with a number.
  void come_to_finish(std::uint64_t step);
  // Returns, equally at every rank, when all have called come_to_finish(). True: after the same
  // step. False: the chief ended the job alone, and the others stopped where they were told. Waits
  // as long as it takes.
  bool all_finish(std::uint64_t step);
  // This rank wishes that the job ends in order (a signal), which is the chief's to do: it is shown
  // with the rank's place.
  void wish_for_the_end();
  // By the chief: the first rank, itself included, that is known to wish so.
  [[nodiscard]] std::optional<std::uint32_t> who_wishes_for_the_end() const;
  // Whether the chief has finished before this rank came to it.
  [[nodiscard]] bool has_ended() const;

  // By the receiving thread: a note on one of its topics; throws what begin() throws. And that
  // `from` has summarised a step.
  void take(const comm::Frame& frame);
  void summarised(std::uint32_t from, std::uint64_t step);

 private:
  struct Made {
    Call call = Call::kNone;
    std::uint64_t step = 0;
    friend bool operator==(const Made& a, const Made& b) {
      return a.call == b.call && a.step == b.step;
    }
  };
  struct Announced {
    std::uint32_t from = 0;
    Made made;
  };
  enum class Verdict : std::uint8_t { kUnknown, kLate, kInOrder };
  struct Wish {               // of the chief, to save
    std::uint64_t calls = 0;  // it had made
    DueSave due;
    bool passed = false;
  };
  struct Answer {
    bool here = false;
    std::uint64_t calls = 0;  // that rank had made
  };

  // What it throws ends the job for all ranks.
  template <typename Function>
  void or_abort(Function function) {
    try {
      function();
    } catch (...) {
      peers_.abort(std::current_exception());
      throw;
    }
  }
  void end();
  void show() const AD_REQUIRES(signal_);
  [[nodiscard]] std::vector<std::uint32_t> others() const;
  [[nodiscard]] std::string text(std::uint32_t rank, const Made& made) const;
  [[nodiscard]] std::string where(std::uint32_t rank) const;
  [[nodiscard]] std::string where(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] std::string waits_for(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] bool are_busy(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] std::uint64_t steps_of(const std::vector<std::uint32_t>& ranks) const;
  [[nodiscard]] bool is_past_the_end() const AD_REQUIRES(signal_);
  [[nodiscard]] const Made* made(std::uint64_t number) const AD_REQUIRES(signal_);
  void check_call(const Made& made, std::uint64_t number) AD_REQUIRES(signal_);
  void check_step() const AD_REQUIRES(signal_);
  void check_save(const std::optional<Made>& now) const AD_REQUIRES(signal_);
  void pass_wishes() AD_REQUIRES(signal_);
  [[nodiscard]] JobEnded ended(const std::string& here) const AD_REQUIRES(signal_);
  [[nodiscard]] bool goes_on_past(const Announced& theirs, const Made& ours) const
      AD_REQUIRES(signal_);
  [[noreturn]] void fail_differ(const Announced& theirs, const Made& ours) const;

  void tell(const Made& made, std::uint64_t number, const std::vector<std::uint32_t>& ranks);
  void post_passed();
  void take_call(const comm::Frame& frame);
  void take_end_of_chief(const Announced& theirs, std::uint64_t number);
  void take_end_of(const Announced& theirs, std::uint64_t number);
  void take_wish(const comm::Frame& frame);
  void take_answer(const comm::Frame& frame);

  const program::Program& program_;
  const program::Rank self_;
  const Seconds limit_;
  Signal& signal_;
  const CallPeers peers_;

  // Of the compute thread.
  int depth_ = 0;
  std::vector<std::uint32_t> said_to_await_;  // in a step
  bool wishes_for_the_end_ = false;
  Made current_;
  StepCounter told_;  // calls that the others were told of

  std::uint64_t begun_ AD_GUARDED_BY(signal_);  // steps
  std::uint64_t count_ AD_GUARDED_BY(signal_) = 0;
  std::deque<Made> made_ AD_GUARDED_BY(signal_);  // the last ones, up to number count_
  std::map<std::uint64_t, Announced> awaited_ AD_GUARDED_BY(signal_);  // by number, above count_
  std::map<std::uint64_t, std::uint32_t> summaries_
      AD_GUARDED_BY(signal_);  // by steps done, by whom; not by this rank
  std::uint64_t summarised_until_ AD_GUARDED_BY(signal_);  // steps done
  std::optional<Made> chief_finished_ AD_GUARDED_BY(signal_);
  std::uint64_t chief_finished_call_ AD_GUARDED_BY(signal_) = 0;  // the number of that call
  std::map<std::uint32_t, std::uint64_t> finished_ AD_GUARDED_BY(signal_);  // by rank: its steps
  Verdict verdict_ AD_GUARDED_BY(signal_) = Verdict::kUnknown;
  bool away_ AD_GUARDED_BY(signal_) = false;
  std::map<std::uint64_t, Wish> wishes_ AD_GUARDED_BY(signal_);  // by the step
  std::vector<std::uint64_t> unsent_ AD_GUARDED_BY(signal_);     // wishes that this rank has passed
  std::map<std::uint64_t, std::map<std::uint32_t, Answer>> answers_
      AD_GUARDED_BY(signal_);                             // by the step, at the chief
  std::uint64_t saved_until_ AD_GUARDED_BY(signal_) = 0;  // 1 + the last save()'s step
  std::vector<DueSave> due_ AD_GUARDED_BY(signal_);
};

}  // namespace autodist::exec
