// A small step and small Programs, written by hand, for tests.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/capture/bindings.h"
#include "autodist/capture/training_step.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/engine.h"
#include "autodist/exec/runner.h"
#include "autodist/ir/optimizer.h"
#include "autodist/program/program.h"

namespace autodist::exec::testing {

// Two linear layers with a ReLU between them and a mean squared error, in f64:
//   variables w1 [6, 5], b1 [6], w2 [3, 6], b2 [3]; inputs x [B, 5], target [B, 3]
// `unused` adds a variable that no op reads.
std::shared_ptr<ir::Graph> two_layers(const ir::UpdateRule& rule, bool unused = false);

// Of its variables, in slices as Plan makes them by default:
inline constexpr ir::VariableId kWide(0);  // w1: 30 elements, in slices of seven
inline constexpr ir::VariableId kBias(3);  // b2: three elements, one slice

// The step of two_layers(), by libtorch's own ops.
torch::Tensor two_layers_loss(const std::vector<torch::Tensor>& variables, const Batch& batch);

// Values for the graph's variables, the same for a given seed.
std::vector<torch::Tensor> initial_values(const ir::Graph& graph, std::uint64_t seed);
Batch random_batch(std::int64_t samples, std::uint64_t seed);
// The rows of one replica.
Batch rows_of(const Batch& batch, std::uint32_t index, std::uint32_t count);

// So many ranks own slices in turns.
std::function<std::uint32_t(std::uint32_t slice)> spread_over(std::uint32_t ranks);

struct Plan {
  std::uint32_t ranks = 1;
  bool serves = false;  // one more rank that only serves
  program::UpdateAt update_at = program::UpdateAt::kOwner;
  bool library = false;     // one library all-reduce instead of slices
  std::uint32_t axis = 0;   // of the shards
  std::uint32_t parts = 1;  // shards per variable (fewer where the axis is shorter)
  std::int64_t slice_elements = 7;
  bool fuse = false;  // everything in one slice
  std::function<std::uint32_t(std::uint32_t slice)> owner = [](std::uint32_t) { return 0U; };
};

// Gates, contributions and releases where the graph says they belong.
std::shared_ptr<const program::Program> program_of(const std::shared_ptr<ir::Graph>& graph,
                                                   const Plan& plan);

// two_layers() with a rule as it is by default, whose ranks own slices in turns and exchange all of
// them alike; one rank trains alone.
std::shared_ptr<const program::Program> owned_in_turns(ir::Rule rule,
                                                       const program::Slices& exchange,
                                                       std::uint32_t ranks = 2);

// The engines of all ranks of a small job, in this process and without compute threads: the test
// calls what these would call. Every rank has its own tensors, which begin with the same values.
class JobEngines {
 public:
  explicit JobEngines(std::shared_ptr<const program::Program> program, RunnerOptions options = {},
                      comm::Collectives* collectives = nullptr, const RankState& start = {});
  ~JobEngines();

  [[nodiscard]] Engine& at(std::uint32_t rank) { return *ranks_[rank]->engine; }
  [[nodiscard]] torch::Tensor& tensor(std::uint32_t rank, ir::VariableId variable) {
    return ranks_[rank]->bindings.variables[variable.value];
  }
  // Values of a gradient of this variable, all the same number.
  [[nodiscard]] torch::Tensor gradient(ir::VariableId variable, double value);
  // Slice gradients of all variables in one step, every rank with one sample and a gradient of
  // `rank + 1`, until every rank has the next version.
  void step(std::uint64_t step);

 private:
  struct Rank {
    capture::Bindings bindings;
    std::unique_ptr<comm::Transport> transport;
    std::unique_ptr<TraceRecorder> trace;
    std::unique_ptr<Engine> engine;
  };

  const std::shared_ptr<const program::Program> program_;
  const RunnerOptions options_;
  SteadyClock clock_;
  comm::InProcessHub hub_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace autodist::exec::testing
