// Graph + Strategy + Cluster -> Program. pipeline.cc is only the ordered list of passes; each pass
// is one function on one state (pass.h), is verified after it, and can be dumped.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::passes {

struct Options {
  bool cpu_only = false;  // one CPU rank per listed GPU
  // Of a step; those of a placed graph follow each other through its stages. Rows cannot be fetched
  // for more than one: the others are not known yet.
  std::int64_t micro_batches = 1;
  // Samples of each, at every replica; 0: as captured. Two factors of a gradient grow with them:
  // whether both are smaller than the gradient is decided by this.
  std::int64_t batch = 0;
  // A barrier: no update before all ranks have said whether their gradients are finite.
  std::optional<ir::LossScaling> loss_scaling = {};
  // What ranks say to each other is encrypted, and an all-reduce of a library would not be.
  bool encrypted = false;
  // Largest slice where the strategy names none: about 50 k parameters (P3, section 5).
  Bytes slice_bytes{200'000};
  // Program::window where the strategy names none; two slices at least. 0: left open.
  Bytes window{0};
  // Slices smaller than this are fused with neighbours of the same owner and like priority, up to
  // this; 0 fuses nothing.
  Bytes fuse_below{32'768};
  // Verify after every pass that leaves a Program that could run, not after the last alone. A
  // search that rewrites thousands of candidates does without.
  bool verify_each = true;
  // Called after each pass with its name and the Program's text so far (--dump-after).
  std::function<void(const std::string& pass, const std::string& text)> dump = {};
};

inline std::int64_t batch_of(const Options& options, const ir::Graph& graph) {
  return options.batch == 0 ? graph.example_batch : options.batch;
}

// Names of the passes in order: what --dump-after accepts.
std::vector<std::string> pass_names();

// Deterministic; reads no measured time: equal structures, strategies, clusters and options give
// equal Programs. Their ranks are those of cluster::ranks_of, one for one; who is no replica serves
// only. `where` names the strategy in messages.
//
// REQUIRES: verify(graph) holds. Throws Error as strategy::check does; kInfeasible or kUsage for
// what no Program can say (passes/supported.h has the list), kInfeasible for a placement that parts
// what belongs together (pass.h), for a replica on a node that only serves, and for a library's
// all-reduce between ranks whose job is encrypted.
program::Program rewrite(std::shared_ptr<const ir::Graph> graph, const strategy::Strategy& strategy,
                         const cluster::Cluster& cluster, const Options& options,
                         const std::string& where);

// What the ranks of `program` do with a batch of other shapes, whose graph is `graph`: the tables
// and the order of collectives are the same, so that ranks may take different shapes in one step;
// the compute stream is the new graph's. Update rules, clips and schedule come from the program. A
// variable that only the first graph uses contributes zeros.
//
// REQUIRES: verify(graph) holds. Throws Error(kUsage) where the graphs' variables differ, or this
// one trains a variable that the program does not know of; Error(kInfeasible) for a placed graph.
program::Program for_other_shapes(const program::Program& program, ir::Graph graph);

}  // namespace autodist::passes
