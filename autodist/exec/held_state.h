// The state that a rank holds between two steps (program/state.h): as the bytes of a move of a
// transition, and as full tensors, in which it is written to checkpoints and read from them.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/comm/transport.h"
#include "autodist/exec/library_all_reduce.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rank_slices.h"
#include "autodist/program/program.h"
#include "autodist/program/slice_layout.h"
#include "autodist/program/state.h"
#include "autodist/program/transition.h"

namespace autodist::exec {

// By "<variable>.<array>", each of its variable's shape.
using StateTensors = std::map<std::string, torch::Tensor>;

std::vector<NamedTensor> named(const StateTensors& tensors);

class HeldState {
 public:
  // All references outlive it.
  HeldState(const RankContext& rank, RankSlices& slices,
            std::vector<LibraryAllReduce>& all_reduces);

  // A move's bytes: of each array its stretches, one after the other. REQUIRES: this rank holds
  // them.
  [[nodiscard]] comm::Payload packed(const program::Move& move);
  // Puts what packed() made into the full tensors, which are made when their first piece comes.
  void put(const program::Move& move, const comm::Payload& payload, StateTensors& tensors) const;

  // The elements that this rank has of the states of update rules: of those that the merging thread
  // (JobQueue) changes, and of all others, which change in a step.
  void add_merged_rules(StateTensors& tensors);
  void add_other_rules(StateTensors& tensors);
  // The inverse of add_merged_rules() and add_other_rules(). Throws Error(kCheckpoint) where a
  // state is missing or of another shape or type.
  void load_rules(const std::vector<NamedTensor>& states);

  // What compression still owes at this rank: of slices, and of all-reduces by a library.
  void add_owed(StateTensors& tensors);
  [[nodiscard]] std::vector<NamedTensor> owed_by_libraries() const;
  // Sets what is owed; what `owed` does not name is owed nothing. Throws Error(kCheckpoint) for
  // another shape.
  void load_owed(const std::vector<NamedTensor>& owed);
  // Of a slice: `values` are what some rank owes of it.
  void add_owed(program::SliceId slice, program::State state, const std::byte* values,
                StateTensors& tensors) const;
  // Null where this rank owes nothing of the slice.
  [[nodiscard]] std::byte* residual(program::SliceId slice, program::State state);
  // Calls visit(slice, state) for everything that `rank` may owe of slices.
  template <typename Visit>
  void for_each_owed(program::Rank rank, Visit visit) const {
    for (std::size_t i = 0; i < program_.slices.size(); ++i) {
      for (const program::State state : {program::State::kOwed, program::State::kOwedAverage}) {
        const std::vector<program::Rank> holders = holders_of(program_.slices[i], state);
        if (std::binary_search(holders.begin(), holders.end(), rank)) {
          visit(program::SliceId(i), state);
        }
      }
    }
  }

  // Parameters that came by the transition's moves, and those that are this owner's alone, into
  // this rank's copies.
  void put_parameters(const StateTensors& tensors, const program::Transition& transition);

 private:
  // The elements of a state of a variable that lie together at this rank; of a rule's state one
  // array after the other.
  struct Piece {
    program::PieceLayout layout;  // its elements begin at 0
    std::vector<const std::byte*> arrays;
    std::shared_ptr<const void> keep;  // may be null
  };
  void add_local_rules(bool merged, StateTensors& tensors);
  [[nodiscard]] std::vector<Piece> pieces_of(program::State state, ir::VariableId variable);

  const program::Program& program_;
  const program::Rank self_;
  const RunnerOptions& options_;
  RankSlices& slices_;
  std::vector<LibraryAllReduce>& all_reduces_;
};

}  // namespace autodist::exec
