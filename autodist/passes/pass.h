// What the passes work on, and what a pass is: one function that brings the state one step further.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodist/passes/pipeline.h"

namespace autodist::passes {

// What the strategy says of one shard.
struct ShardPlan {
  ir::ShardId shard;
  strategy::Synchronizer synchronizer;
};

struct State {
  // Given.
  const ir::Graph& graph;
  const strategy::Strategy& strategy;
  const cluster::Cluster& cluster;
  const Options& options;
  const std::string& where;  // the strategy, for messages

  // Made by the passes; complete after the last.
  ir::Program program;

  // Between passes: shards in the order of program.shards (partition), when each variable is needed
  // (partition), the ranks that compute, ascending (replicate).
  std::vector<ShardPlan> shard_plans;
  std::vector<Seconds> needed;
  std::vector<ir::Rank> replicas;
};

struct Pass {
  const char* name;
  void (*run)(State&);
};

void partition(State& state);    // variables -> shards
void replicate(State& state);    // devices -> ranks, and the part of the batch that each takes
void synchronise(State& state);  // shards -> slices with owners, or library collectives
void fuse(State& state);         // small neighbours -> one slice
void order(State& state);        // slices by need, collectives by completion
void lower(State& state);        // ops and slices -> streams of instructions

// Whether the step trains the variable: nothing is sent for one that it does not.
inline bool is_trained(const ir::Graph& graph, ir::VariableId variable) {
  return graph.variable(variable).gradient.has_value();
}

// The rank that a device of the strategy means: the rank on it, or its node's lowest
// ("ADDR:CPU:0"). REQUIRES: replicate has run. Throws Error(kInfeasible).
ir::Rank rank_on(const State& state, const std::string& device);

}  // namespace autodist::passes
