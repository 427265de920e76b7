// Values of a step by name, whole: what each replica kept of it, put together. Private to
// session.cc.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/exec/runner.h"
#include "autodist/ir/graph.h"

namespace autodist::job {

// Names that a step's own code makes (exec::Runner::watch), and names of parameters and buffers.
struct FetchNames {
  std::vector<std::string> watched;
  std::vector<std::string> tensors;
};

// Throws Error(kUsage) for a name that is neither, with the nearest known one.
FetchNames sort_names(const std::vector<std::string>& names, const ir::Graph& graph,
                      const TrainingStep& step);

// This replica's part as bytes, and the whole from all parts, by rank. The loss and gradients are
// averaged over samples (or added, for a summed loss), values whose first dimension is the batch
// are put one after the other, of others the first is taken.
std::string pack_part(const std::vector<exec::Watched>& watched, std::int64_t samples, double loss);
std::map<std::string, torch::Tensor> join_parts(const std::vector<std::string>& parts,
                                                ir::Reduction reduction);

}  // namespace autodist::job
