// What one rank does about its variables, as a pure state machine: events in, effects out.
//
// It knows no tensor, clock, thread or socket, and allocates nothing between its construction and
// its end but for asynchronous slices and rows that are asked for early. The executor feeds it what
// really happened and performs the effects on bytes; the simulator feeds it what happens in virtual
// time and charges for the effects. So both follow one protocol, and a test walks through every
// order of events (walk_test.cc).
//
//   rank.cc          its beginning, and when two are alike
//   dense.cc         contributions, merges, results        versions.cc  gates and installs
//   asynchronous.cc  one contribution at a time            norms.cc     norms and the flags
//   rows.cc          rows that are asked for

#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "autodist/protocol/events.h"
#include "autodist/protocol/job.h"

namespace autodist::protocol {

// One thread at a time.
class RankProtocol {
 public:
  // Begins with this rank's variables at version `first`. `job` outlives it.
  RankProtocol(const Job& job, Rank self, Step first);

  // Counts the variable's gradient of the step as complete. Calls visit(SliceId) for each slice
  // that is complete with it: Contributed follows. Slices that several variables share are complete
  // with the last of them.
  template <typename Visit>
  void gradient_complete(VariableId variable, Visit visit) {
    for (const SliceId id : job_->variable(variable).slices) {
      std::uint32_t& missing = gradients_missing_[id.value];
      if (--missing != 0) continue;
      missing = static_cast<std::uint32_t>(job_->slice(id).variables.size());
      visit(id);
    }
  }

  // No gate opens for the steps from `version` on: the rank comes to rest settled at that version,
  // where another plan or membership may go on. REQUIRES: it has begun none of them.
  void stop_at(Step version) { stop_ = version; }

  // Each appends what follows. REQUIRES: contributions and results of one slice come in the order
  // of their steps per sender, as a transport with order per pair of ranks delivers them; work is
  // done that was asked for; otherwise in any order. Throws InternalError for parts of a norm that
  // are of a step out of reach, or too many.
  void on(const Contributed& event, Effects& effects);
  void on(const ContributionArrived& event, Effects& effects);
  void on(const Merged& event, Effects& effects);
  void on(const Measured& event, Effects& effects);
  void on(const Updated& event, Effects& effects);
  void on(const ResultArrived& event, Effects& effects);
  void on(const Taken& event, Effects& effects);
  void on(const Installed& event, Effects& effects);
  void on(const Held& event, Effects& effects);
  void on(const Released& event, Effects& effects);
  void on(const SumsArrived& event, Effects& effects);
  void on(const WholeSumArrived& event, Effects& effects);
  void on(const Flagged& event, Effects& effects);
  void on(const Averaged& event, Effects& effects);
  void on(const UpdatedHere& event, Effects& effects);
  void on(const RowsWanted& event, Effects& effects);
  void on(const AskArrived& event, Effects& effects);
  void on(const RowsGiven& event, Effects& effects);
  void on(const RowsArrived& event, Effects& effects);
  void on(const Event& event, Effects& effects) {
    std::visit([&](const auto& each) { on(each, effects); }, event);
  }

  // Version v holds the updates of the steps before v.
  [[nodiscard]] Step version(VariableId variable) const {
    return variables_[variable.value].version;
  }
  // Whether a step may read the variable now: it has a version that the step may use, whole, and
  // all rows that were asked for.
  [[nodiscard]] bool is_open(VariableId variable, Step step) const;
  // Whether it has the newest version that the step could read, or is none of this rank's.
  [[nodiscard]] bool is_settled(VariableId variable, Step step) const {
    const VariableState& state = variables_[variable.value];
    return !state.held_here || !job_->variable(variable).trained || state.version >= step;
  }
  // Whether the stream may update a variable that no slice carries: its average is here, nobody
  // reads it, its norm is known, and all ranks agree on finiteness.
  [[nodiscard]] bool may_update(VariableId variable, Step step) const;
  // Whether a result may be written into its variables as it comes, before Install: nobody reads
  // the old values any more, and nobody will before the new version.
  [[nodiscard]] bool may_go_in(SliceId slice, Step step) const;
  [[nodiscard]] bool is_known(NormId norm, Step step) const;
  // Whether some rank's gradients of the step were not finite. REQUIRES: the flags are known.
  [[nodiscard]] bool skips(Step step) const { return flags_[step % 2].overflow; }
  // Whether a result of the step may come to this rank now: it is a member, and has room for it.
  [[nodiscard]] bool expects(SliceId slice, Step step) const;
  // Of a variable that no slice carries, for messages: what may_update() waits for.
  [[nodiscard]] bool is_averaged(VariableId variable, Step step) const {
    return variables_[variable.value].averaged > step;
  }
  [[nodiscard]] bool is_released(VariableId variable) const {
    return variables_[variable.value].released;
  }

  // Whether both would answer alike from here on, wherever they stop. A rank to which nothing of
  // the steps before v is still to come, and which has begun nothing after, equals a new one that
  // begins at v: a job can end there and go on under another table of slices.
  bool operator==(const RankProtocol& other) const;

 private:
  enum class Awaits : std::uint8_t { kContributions, kFirstNorms, kMeasuring, kLambNorms };
  struct VariableState {
    Step version = 0;
    bool held_here = true;
    bool released = true;
    bool installing = false;
    std::uint32_t rows_missing = 0;
    Step averaged = 0;  // steps, where no slice carries it

    bool operator==(const VariableState& other) const {
      return std::tie(version, held_here, released, installing, rows_missing, averaged) ==
             std::tie(other.version, other.held_here, other.released, other.installing,
                      other.rows_missing, other.averaged);
    }
  };
  // A slice whose contributions meet here.
  struct Combined {
    Step step = 0;              // that is combined next; 0 of an asynchronous slice
    std::uint32_t awaited = 0;  // contributions
    std::uint32_t present = 0;  // where in present_ its counts begin
    Awaits awaits = Awaits::kContributions;
    std::vector<std::pair<Rank, Step>> queue;  // asynchronous, in the order of arrival
    std::vector<std::pair<Rank, Step>> asked;  // rows, too early

    bool operator==(const Combined& other) const {
      return std::tie(step, awaited, awaits, queue, asked) ==
             std::tie(other.step, other.awaited, other.awaits, other.queue, other.asked);
    }
  };
  struct NormState {
    Step step = 0;
    std::uint32_t missing = 0;

    bool operator==(const NormState& other) const {
      return step == other.step && missing == other.missing;
    }
  };
  struct FlagState {
    Step step = 0;
    bool overflow = false;
  };

  [[nodiscard]] Combined& combined(SliceId slice) { return combined_[combined_at_[slice.value]]; }
  [[nodiscard]] const Combined& combined(SliceId slice) const {
    return combined_[combined_at_[slice.value]];
  }
  // Contributions that are here. Where every member combines, one may be a step ahead of another.
  [[nodiscard]] std::uint32_t& present(const Combined& here, const Job::Slice& slice, Step step) {
    return present_[here.present + step % (slice.ring + 1)];
  }
  [[nodiscard]] std::uint32_t& arrived(VariableId variable, Step step) {
    return arrived_[arrived_at_[variable.value] + step % (job_->variable(variable).staleness + 1)];
  }

  void contribution_is_here(SliceId id, Rank from, Step step, Effects& effects);
  void combine(SliceId id, Effects& effects);
  void result_is_made(SliceId id, Step step, Effects& effects);
  void apply_next(SliceId id, Effects& effects);
  void install_if_ready(VariableId id, Effects& effects);
  void publish(VariableId id, Effects& effects);
  void give_early_asks(SliceId id, Effects& effects);
  void answer_those_who_have_not_asked(SliceId id, Step step, Effects& effects);

  void go_on(SliceId id, Effects& effects);
  void tell(SliceId id, Step step, bool lamb, Effects& effects);
  void sums_are_known(SliceId id, Step step, bool lamb, Effects& effects);
  void parts_are_known(NormId norm, Step step, std::uint32_t parts, Effects& effects);
  [[nodiscard]] bool first_norms_known(const Job::Slice& slice, Step step) const;
  [[nodiscard]] bool all_known(const std::vector<NormId>& norms, Step step) const;
  [[nodiscard]] bool agreed(Step step) const {
    return !job_->norms.flags || is_known(*job_->norms.flags, step);
  }

  const Job* job_;
  Rank self_;
  Step stop_ = ~Step{0};
  std::vector<VariableState> variables_;
  std::vector<std::uint32_t> arrived_at_;         // by variable: into arrived_
  std::vector<std::uint32_t> arrived_;            // slices' results, by step modulo staleness + 1
  std::vector<std::uint32_t> gradients_missing_;  // by slice: variables
  std::vector<std::uint32_t> combined_at_;        // by slice: into combined_, or kNone
  std::vector<Combined> combined_;
  std::vector<std::uint32_t> present_;
  std::vector<NormState> norms_[2];  // by parity of the step: nobody reaches step k + 2 before all
                                     // have used the norms of step k
  FlagState flags_[2];               // by parity of the step, for the same reason
};

}  // namespace autodist::protocol
