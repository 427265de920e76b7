// The owner's part of "slices go to an owner, the owner combines them, the result goes back".
//
// A slice's contributions wait until the last member's is in; then they are summed in one pass in
// rank order, weighted by samples, whatever the order of arrival. The owner applies the update rule
// to its master copy, or hands the averaged gradient on for every rank to do so. Of an asynchronous
// slice it applies every contribution by itself, in the order of arrival. A rank on the way to the
// owner where contributions meet (ir/route.h) does the first half: it hands their mean on.
//
// No thread, no clock, no socket: the runner drives it, and a test can.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/slice_layout.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/ir/program.h"

namespace autodist::exec {

// What an owner hands out. The calls come from inside merge() and norm_known().
struct OwnerSink {
  // The combined slice: parameters of version step + 1, or the averaged gradient; on the way to the
  // owner the mean of what met here. `samples` is the sum over all who contributed; at 0 nothing
  // was updated.
  // `rider`: what the contributions said, as one.
  std::function<void(ir::SliceId, std::uint64_t step, std::int64_t samples, comm::Payload,
                     std::string rider)>
      result;
  // Of a slice that travels by rows: those that changed, packed; nothing where they are fetched.
  // Of an asynchronous slice, to the sender of the contribution alone.
  std::function<void(ir::SliceId, ir::Rank to, std::uint64_t step, std::int64_t samples,
                     comm::Payload)>
      answer;
  // Rows that were asked for, one after the other: of the version that a step may use.
  std::function<void(ir::SliceId, ir::Rank to, std::uint64_t step, comm::Payload)> rows;
  // One entry per piece, zeros where plan.clipped (or plan.lamb) has no part.
  std::function<void(ir::SliceId, std::uint64_t step, bool lamb, std::vector<SquaredSums>)> sums;
};

class Owner {
 public:
  // For the slices of which this rank combines anything (ir::way_of); the first step will be
  // `first_step`.
  // `variables` are the initial values, dense row-major, by variable.
  // `program`, `plan`, `norms`, `scaler` and `user_rules` (may be null) outlive the owner.
  Owner(const ir::Program& program, ir::Rank self, std::uint64_t first_step,
        const std::vector<const std::byte*>& variables, const NormPlan& plan, const Norms& norms,
        const LossScaler& scaler, const UserRules* user_rules, OwnerSink sink);

  // Keeps a contribution (no bytes when `samples` is 0), decoded. True when it was the last one
  // that the slice's present step waited for: then call merge(). Contributions for the next step,
  // and for as many more as the slice's staleness, may come while this one is incomplete. Of an
  // asynchronous slice: true when nothing else waits. Any thread. Throws InternalError for a rank
  // that is no member, a step out of reach, a wrong size or a second contribution (comm admits
  // once).
  [[nodiscard]] bool add(ir::SliceId slice, std::uint64_t step, ir::Rank from, std::int64_t samples,
                         comm::Payload payload, std::string rider = "");

  // Combines a complete slice and hands out what follows. Throws Error(kUsage) where the
  // contributors say different things of its variables (rider.h); then nothing was updated. True when the next step's contributions
  // (of an asynchronous slice: the next one) are complete by now, too. One thread, the same as
  // norm_known()'s.
  [[nodiscard]] bool merge(ir::SliceId slice);

  // Hands out rows of a slice whose rows are fetched, once the slice has a version that `step` may
  // use. `numbers`: int64, from 0 within the slice. By the merging thread.
  void fetch(ir::SliceId slice, ir::Rank from, std::uint64_t step, comm::Payload numbers);

  // Goes on with the slices that waited for this norm. Returns those whose next step is complete by
  // now.
  [[nodiscard]] std::vector<ir::SliceId> norm_known(std::uint64_t step, NormId norm);

  // The slices whose result is made here. State of the update rules, for checkpoints. Between steps
  // only.
  [[nodiscard]] std::vector<ir::SliceId> slices() const;
  [[nodiscard]] std::vector<UpdateState>& states(ir::SliceId slice);
  // The parameters as they are now, where the owner updates. By the merging thread.
  [[nodiscard]] comm::Payload parameters(ir::SliceId slice);
  // Takes a variable's values (dense, row-major) for the newest where the owner updates. By the
  // merging thread, while no contribution of the next step is complete.
  void reload(ir::VariableId variable, const std::byte* values);
  // What compressing the averages has lost so far; null where nothing is lost, or not fed back.
  [[nodiscard]] std::byte* residual(ir::SliceId slice) { return owned(slice).residual.get(); }

 private:
  struct Contribution {
    bool present = false;
    std::int64_t samples = 0;
    comm::Payload payload;
    std::string rider;
  };
  // Contributions of one step, by position in Owned::from.
  struct Gathering {
    std::size_t present = 0;
    std::vector<Contribution> from;
  };
  struct Queued {  // a contribution to an asynchronous slice
    ir::Rank from;
    std::uint64_t step = 0;
    Contribution contribution;
  };
  struct Asked {  // rows that were asked for too early
    ir::Rank from;
    std::uint64_t step = 0;
    comm::Payload numbers;
  };
  enum class WaitsFor : std::uint8_t { kContributions, kClip, kLamb };
  struct Owned {
    ir::SliceId id;
    std::vector<ir::Rank> from;  // whose contributions meet here, ascending
    bool relays = false;         // what meets here goes on to another rank
    std::vector<PieceLayout> pieces;
    std::vector<ir::UpdateRule> rules;  // per piece: as declared, or as the news has it
    std::string news;                   // that they follow
    std::int64_t elements = 0;
    // That it combines next; of an asynchronous slice: the number of updates so far.
    std::uint64_t step = 0;
    std::deque<Queued> queue;              // of an asynchronous slice, in the order of arrival
    std::vector<std::uint64_t> next_step;  // likewise, by position in `from`
    // By step, cyclically: whoever may be ahead by the staleness has got this step's result already
    // while it is still counted as open.
    std::vector<Gathering> gatherings;
    // Below: touched by the merging thread only.
    std::unique_ptr<BufferPool> buffers;
    std::shared_ptr<Buffer> master;    // parameters, where the owner updates
    std::shared_ptr<Buffer> averaged;  // the gradient, from merge to result
    // Where every rank updates: what goes out in its place, and what that has lost so far.
    comm::Payload encoded;
    std::shared_ptr<std::byte> residual;
    ir::MatrixShape matrix;  // of a slice that travels as factors
    RowBlock block;          // of a slice that travels by rows
    Rows row_sum;            // likewise, in the place of `averaged`
    std::vector<Asked> asked;
    // Of row_sum, which this slice alone holds.
    [[nodiscard]] std::byte* row_values() const {
      return const_cast<std::byte*>(row_sum.values);  // NOLINT
    }
    [[nodiscard]] std::int64_t row_elements() const {
      return static_cast<std::int64_t>(row_sum.numbers.size()) * block.width;
    }
    std::int64_t samples = 0;         // of the step being combined
    std::string rider;                // likewise, for whoever gets the result
    std::vector<UpdateState> states;  // per piece
    WaitsFor waits_for = WaitsFor::kContributions;
    std::vector<NormId> awaited;
  };

  Owned& owned(ir::SliceId slice);
  static Gathering& gathering(Owned& slice, std::uint64_t step) {
    return slice.gatherings[step % slice.gatherings.size()];
  }
  void average(Owned& slice);
  void combine_riders(Owned& slice, const std::vector<Contribution>& contributions);
  void follow(Owned& slice, const std::string& news);
  void put_values(Owned& slice, const std::string& values);
  // Where the average of a slice comes from and goes back to. One that is never sent needs no
  // buffer of its own: slices share them, and the cache keeps what the update reads next.
  [[nodiscard]] BufferPool& averages(Owned& slice);
  static void await(Owned& slice, const std::vector<std::optional<NormPart>>& parts);
  [[nodiscard]] bool is_known(std::uint64_t step, NormId norm) const;
  void clip(Owned& slice);
  void report_clip_sums(Owned& slice);
  void start_lamb(Owned& slice);
  bool apply_next(Owned& slice);
  // The rule counts updates by slice.step; the schedule goes by the step of the gradient.
  void update(Owned& slice, std::uint64_t schedule_step);
  bool hand_on(Owned& slice);
  bool go_on(Owned& slice);
  bool finish(Owned& slice, comm::Payload result);
  void encode_average(Owned& slice);
  void average_rows(Owned& slice, const std::vector<Contribution>& contributions,
                    const std::vector<double>& weights);
  [[nodiscard]] comm::Payload result_of(const Owned& slice) const;
  void give_rows(const Owned& slice, const Asked& asked);
  [[nodiscard]] bool by_rows(const Owned& slice) const {
    return in_program(slice).rows != ir::RowTransfer::kNone;
  }
  static comm::Payload lent(const Owned& slice, const std::shared_ptr<Buffer>& buffer);
  void make_master_writable(Owned& slice);
  [[nodiscard]] const ir::Slice& in_program(const Owned& slice) const {
    return program_.slice(slice.id);
  }
  [[nodiscard]] const ir::UpdateRule& declared(const PieceLayout& piece) const {
    return program_.graph->variable(piece.variable).update;
  }

  const ir::Program& program_;
  const NormPlan& plan_;
  const Norms& norms_;
  const LossScaler& scaler_;
  const UserRules* user_rules_;
  OwnerSink sink_;
  std::mutex mutex_;                           // gatherings and steps
  std::map<std::size_t, BufferPool> scratch_;  // by size; of the merging thread
  std::vector<Owned> owned_;
  std::vector<std::int64_t> position_;  // by slice: in owned_, or -1
};

}  // namespace autodist::exec
