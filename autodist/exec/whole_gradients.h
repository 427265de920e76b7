// The gradients of variables that no slice carries: a library all-reduces them, in the Program's
// order, and every rank updates the variable by itself.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autodist/exec/library_all_reduce.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rank_slices.h"
#include "autodist/exec/slice_driver.h"
#include "autodist/exec/step_news.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class WholeGradients {
 public:
  // All references outlive it. `collectives` may be null where the Program has none.
  WholeGradients(const RankContext& rank, comm::Collectives* collectives, RankSlices& slices,
                 const StepNews& news, SliceDriver& driver);

  // Whether the gradient need not come to the host: the variable is updated where it is, and so is
  // the library, if there are other ranks.
  [[nodiscard]] bool stays_on_device(ir::VariableId variable) const;
  // Whether all of its elements count for the norm of a clip.
  [[nodiscard]] bool is_clipped(ir::VariableId variable) const {
    return slices_.plan.whole[variable.value].has_value();
  }
  // By the compute thread, or the one that brings gradients of a device. Undefined where the rank
  // has no samples. One that stays on its device is row-major, of the variable's type, and there
  // from `complete` on; of a clipped one that no library sums, `squares` is the sum of its squares.
  void contribute(ir::VariableId variable, const torch::Tensor& gradient, std::uint64_t step,
                  std::int64_t samples, const Mark& complete = {},
                  std::optional<double> squares = {});
  // By whichever thread runs the stream; each waits for what it needs and throws as Signal::wait.
  void all_reduce(program::CollectiveId collective, std::uint64_t step);
  void update(const std::vector<ir::VariableId>& variables, std::uint64_t step);

  // By collective. Between steps.
  [[nodiscard]] std::vector<LibraryAllReduce>& all_reduces() { return all_reduces_; }

 private:
  struct Whole {
    std::uint64_t contributed = 0;  // steps; one more than the last step's number
    torch::Tensor gradient;         // row-major; undefined without samples
    Mark complete;
    std::int64_t samples = 0;
    std::string news;  // as this rank has it
  };

  [[nodiscard]] bool reduces_on_device(program::CollectiveId id,
                                       const comm::Collectives* collectives) const;
  // For a wait of which the signal is not told: throws the failure, or after the limit
  // Error(kPeersLost).
  std::function<void()> looking(program::CollectiveId id);
  // The averaged gradient is here.
  void averaged(ir::VariableId variable, std::uint64_t step, std::optional<double> squares = {});

  const program::Program& program_;
  const RunnerOptions& options_;
  RankSlices& slices_;
  const StepNews& news_;
  SliceDriver& driver_;
  Signal& signal_;
  TraceRecorder& trace_;
  std::vector<LibraryAllReduce> all_reduces_;
  std::vector<Whole> whole_ AD_GUARDED_BY(signal_);  // by variable
};

}  // namespace autodist::exec
