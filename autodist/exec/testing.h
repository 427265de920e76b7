// A small step and small Programs, written by hand, for the tests of this folder.

#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/program/program.h"

namespace autodist::exec::testing {

// Two linear layers with a ReLU between them and a mean squared error, in f64:
//   variables w1 [6, 5], b1 [6], w2 [3, 6], b2 [3]; inputs x [B, 5], target [B, 3]
// `unused` adds a variable that no op reads.
std::shared_ptr<ir::Graph> two_layers(const ir::UpdateRule& rule, bool unused = false);

// The same step as libtorch writes it.
torch::Tensor two_layers_loss(const std::vector<torch::Tensor>& variables, const Batch& batch);

// Values for the graph's variables, the same for a given seed.
std::vector<torch::Tensor> initial_values(const ir::Graph& graph, std::uint64_t seed);
Batch random_batch(std::int64_t samples, std::uint64_t seed);
// The rows of one replica.
Batch rows_of(const Batch& batch, std::uint32_t index, std::uint32_t count);

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

}  // namespace autodist::exec::testing
