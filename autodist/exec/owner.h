// The bytes of a slice where its contributions meet: kept until they are combined, summed, and put
// through the update rule.
//
// Contributions are summed in one pass in rank order, weighted by samples, whatever the order of
// arrival. The owner applies the update rule to its master copy, or hands the averaged gradient on
// for every rank to do so. Of an asynchronous slice it applies every contribution by itself. A rank
// on the way to the owner where contributions meet (program/route.h) hands their mean on.
//
// When each of these happens is the protocol's to say (protocol/rank.h).

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/exec/weighted_sum.h"
#include "autodist/program/loads.h"
#include "autodist/program/program.h"
#include "autodist/program/slice_layout.h"
#include "autodist/protocol/job.h"

namespace autodist::exec {

// What was made of a step's contributions, for whoever sends it on.
struct CombinedSlice {
  // Over all who contributed; at 0 nothing was updated.
  std::int64_t samples = 0;
  // Parameters of version step + 1, or the averaged gradient; on the way to the owner the mean of
  // what met here. Of a slice that travels by rows: those that changed, packed; nothing where they
  // are fetched.
  comm::Payload payload;
  // What the contributions said, as one (rider.h).
  std::string rider;
  // By piece: sums of squares of the averaged gradient, where a clip needs them.
  std::vector<SquaredSums> sums;
};

class Owner {
 public:
  // Owns what this rank combines in `job`, which is of its Program. `variables`: initial values, by
  // variable, dense and row-major. All other references outlive it.
  Owner(const RankContext& rank, const protocol::Job& job,
        const std::vector<const std::byte*>& variables, const NormPlan& plan, const Norms& norms,
        const LossScaler& scaler);

  // Keeps a contribution (no bytes when `samples` is 0), decoded. Contributions for the next step,
  // and for as many more as the slice's staleness, may come while this one is incomplete. Any
  // thread. Throws InternalError for a rank that does not contribute here, a step out of reach, a
  // wrong size or a second contribution (comm admits once).
  void keep(program::SliceId slice, std::uint64_t step, program::Rank from, std::int64_t samples,
            comm::Payload payload, std::string rider = "");

  // Sums the step's contributions and, where the update waits for nothing, updates; of an
  // asynchronous slice it applies that of `from`. Throws Error(kUsage) where the
  // contributors say different things of its variables (rider.h); then nothing was updated. One
  // thread, the merging thread, calls this, measure(), update() and give_rows().
  [[nodiscard]] CombinedSlice merge(program::SliceId slice, std::uint64_t step,
                                    program::Rank from = {});
  // LAMB: clips the summed gradient and returns both sums of squares, by piece.
  [[nodiscard]] std::vector<SquaredSums> measure(program::SliceId slice, std::uint64_t step);
  // Clips what measure() has not, and updates, unless all skip the step.
  [[nodiscard]] CombinedSlice update(program::SliceId slice, std::uint64_t step);

  // Rows of a slice are asked for; all of a dense one are row 0. `numbers`: int64, from 0 within
  // the slice. Any thread.
  void keep_ask(program::SliceId slice, program::Rank from, std::uint64_t step,
                comm::Payload numbers);
  // The rows that keep_ask() kept for this rank and step, as they are now.
  [[nodiscard]] comm::Payload give_rows(program::SliceId slice, program::Rank to,
                                        std::uint64_t step);

  // The slices whose result is made here. State of the update rules, for checkpoints. Between steps
  // only.
  [[nodiscard]] std::vector<program::SliceId> slices() const;
  [[nodiscard]] std::vector<UpdateState>& states(program::SliceId slice);
  // The step that a synchronous slice is combined for next; its state is that before it. By the
  // merging thread.
  [[nodiscard]] std::uint64_t open_step(program::SliceId slice) {
    const MutexLock lock(signal_);
    return waiting_[owned(slice).index].step;
  }
  // The parameters of the newest version, where the owner updates: a rank that has not begun the
  // next step yet may ask when reload() has changed them here already. By the merging thread.
  [[nodiscard]] comm::Payload parameters(program::SliceId slice);
  // These with what reload() has changed, once all ranks have come to it.
  [[nodiscard]] comm::Payload reloaded_parameters(program::SliceId slice);
  // Whether a slice of it is updated here, and so reload() takes its values.
  [[nodiscard]] bool updates_any_of(ir::VariableId variable) const;
  // Takes a variable's values (dense, row-major) for the newest where the owner updates. By the
  // merging thread, while no contribution of the next step is complete.
  void reload(ir::VariableId variable, const std::byte* values);
  // What compressing the averages has lost so far; null where nothing is lost, or not fed back.
  [[nodiscard]] std::byte* residual(program::SliceId slice) { return owned(slice).residual.get(); }

 private:
  struct Contribution {
    bool present = false;
    std::int64_t samples = 0;
    comm::Payload payload;
    std::string rider;
  };
  struct Queued {  // a contribution to an asynchronous slice
    program::Rank from;
    std::uint64_t step = 0;
    Contribution contribution;
  };
  struct Asked {  // rows
    program::Rank from;
    std::uint64_t step = 0;
    comm::Payload numbers;
  };
  // What has come for a slice that is owned here and was not worked on yet.
  struct Waiting {
    std::uint64_t step = 0;                // that is combined next
    std::deque<Queued> queue;              // of an asynchronous slice, in the order of arrival
    std::vector<std::uint64_t> next_step;  // of an asynchronous slice, by position in Owned::from
    // By step, cyclically, then by position in Owned::from. As many steps as ranks may be apart,
    // and one more: a rank may have got a step's result, and go on, while that step counts as open
    // here.
    std::vector<std::vector<Contribution>> contributions;
    std::vector<Asked> asked;

    [[nodiscard]] std::vector<Contribution>& of(std::uint64_t of_step) {
      return contributions[of_step % contributions.size()];
    }
  };
  struct Owned {
    program::SliceId id;
    std::size_t index = 0;            // in waiting_
    std::vector<program::Rank> from;  // whose contributions meet here, ascending
    bool relays = false;              // what meets here goes on to another rank
    std::vector<program::PieceLayout> pieces;
    std::vector<ir::UpdateRule> rules;  // per piece: as declared, or as the news has it
    std::string news;                   // that they follow
    std::int64_t elements = 0;
    // From here to the end: touched by the merging thread only.
    std::unique_ptr<BufferPool> buffers;
    std::shared_ptr<Buffer> master;    // parameters, where the owner updates
    std::shared_ptr<Buffer> averaged;  // the gradient, from merge to result
    // The newest version as it was made, from reload() to the next update, where members ask for
    // versions.
    comm::Payload before_reload;
    // Where every rank updates: what goes out in its place, and what that has lost so far.
    comm::Payload encoded;
    std::shared_ptr<std::byte> residual;
    program::MatrixShape matrix;      // of a slice that travels as factors
    RowBlock block;                   // of a slice that travels by rows
    Rows row_sum;                     // of a slice by rows, in the place of `averaged`
    std::int64_t samples = 0;         // of the step being combined
    std::string rider;                // of the step being combined, for whoever gets the result
    std::int64_t updates = 0;         // so far, of an asynchronous slice
    bool clipped = false;             // the sum, by measure()
    std::vector<UpdateState> states;  // per piece
  };

  Owned& owned(program::SliceId slice);
  void next_step(Owned& slice);
  void average(Owned& slice, std::uint64_t step);
  void combine_riders(Owned& slice, std::uint64_t step,
                      const std::vector<Contribution>& contributions);
  void follow(Owned& slice, const std::string& news);
  void put_values(Owned& slice, const std::string& values);
  // Where the average of a slice comes from and goes back to. One that is never sent needs no
  // buffer of its own: slices share them, and the cache keeps what the update reads next.
  [[nodiscard]] BufferPool& averages(Owned& slice);
  // Of a slice's averaged gradient the elements of one piece; by rows, of which a slice has one
  // piece, those of the rows that it sums.
  struct PieceGradient {
    std::byte* data;
    std::int64_t count;
  };
  [[nodiscard]] PieceGradient gradient_of(const Owned& slice, std::size_t piece) const;
  void clip(Owned& slice, std::uint64_t step);
  [[nodiscard]] std::vector<SquaredSums> clip_sums(const Owned& slice) const;
  [[nodiscard]] CombinedSlice apply_one(Owned& slice, std::uint64_t step, program::Rank from);
  // `updates_before` counts the rule's updates; the schedule goes by the step of the gradient.
  void apply_rule(Owned& slice, std::uint64_t step, std::int64_t updates_before);
  [[nodiscard]] CombinedSlice averaged(Owned& slice);
  [[nodiscard]] CombinedSlice updated(Owned& slice);
  void encode_average(Owned& slice);
  void average_rows(Owned& slice, const std::vector<Contribution>& contributions,
                    const std::vector<double>& weights);
  [[nodiscard]] comm::Payload result_of(const Owned& slice) const;
  [[nodiscard]] bool updates_on_arrival(const Owned& slice) const {
    return program::updates_on_arrival(in_program(slice).exchange);
  }
  [[nodiscard]] bool by_rows(const Owned& slice) const {
    return !sums_all_elements(in_program(slice).exchange);
  }
  static comm::Payload lent(const Owned& slice, const std::shared_ptr<Buffer>& buffer);
  void make_master_writable(Owned& slice);
  [[nodiscard]] const program::Slice& in_program(const Owned& slice) const {
    return program_.slice(slice.id);
  }
  [[nodiscard]] const ir::UpdateRule& declared(const program::PieceLayout& piece) const {
    return program_.graph->variable(piece.variable).update;
  }

  const program::Program& program_;
  const protocol::Job& job_;
  const NormPlan& plan_;
  const Norms& norms_;
  const LossScaler& scaler_;
  const UserRules* user_rules_;
  Signal& signal_;
  std::map<std::size_t, BufferPool> scratch_;  // by size; of the merging thread
  std::vector<Owned> owned_;
  std::vector<Waiting> waiting_ AD_GUARDED_BY(signal_);  // by position in owned_
  std::vector<std::int64_t> position_;                   // by slice: in owned_, or -1
};

}  // namespace autodist::exec
