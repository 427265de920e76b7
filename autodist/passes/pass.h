// What the passes share: the state that they hand on, and what each of them does.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/passes/pipeline.h"
#include "autodist/program/program.h"
#include "autodist/strategy/strategy.h"

namespace autodist::passes {

struct State {
  const strategy::Strategy& strategy;
  const cluster::Cluster& cluster;
  const Options& options;
  const std::string& where;  // names the strategy in messages

  program::Program program;

  // Beside the program's tables: what the strategy says of them.
  std::vector<const strategy::NodeConfig*> nodes;            // by variable
  std::vector<const strategy::Synchronizer*> synchronizers;  // by shard; set by partition
  // When the step first needs each variable; by variable, set by partition.
  std::vector<Seconds> needed;
  // The trained variables, first needed first; set by partition.
  std::vector<ir::VariableId> by_need;
  // Of a placed graph, set by place: the stage of every op, and of every variable.
  std::vector<std::uint32_t> stage_of_op;
  std::vector<std::uint32_t> stage_of_variable;

  [[nodiscard]] const ir::Graph& graph() const { return *program.graph; }
  // Of one slice.
  [[nodiscard]] Bytes slice_limit() const {
    return strategy.slice_bytes > Bytes{0} ? strategy.slice_bytes : options.slice_bytes;
  }
  [[nodiscard]] Bytes window() const {
    if (strategy.window_bytes > Bytes{0} || options.window == Bytes{0}) {
      return strategy.window_bytes;
    }
    return std::max(options.window, slice_limit() + slice_limit());
  }
};

// Strategy nodes -> shards, and when each variable is needed.
void partition(State& state);

// Cluster and replicas -> ranks, in the order of cluster::ranks_of.
void replicate(State& state);

// The strategy's placement -> the stages of ops and variables. Throws Error(kInfeasible) where ops
// are apart that touch one variable, or one storage that is written in place, where a sparse value
// would have to travel, and for a synchronizer that placed graphs do not have. Without a placement
// there is nothing to do.
void place(State& state);

// Every shard -> slices with owner, members and place of the update, or a library collective.
// A variable whose only member is its only owner stays local, and so does one without a gradient:
// neither.
void synchronise(State& state);

// Neighbouring small slices -> one slice of several pieces.
void fuse(State& state);

// Slices and collectives -> their final order and ids.
void order(State& state);

// Everything so far -> the streams of each role.
void lower(State& state);
// Everything so far -> the streams of each role of a placed graph, with its transfers.
void lower_placed(State& state);

// What a rank computes in a step of `program`, whose tables are complete; `by_need` are its trained
// variables, in the order that decides among equals. With `scaling`, its barrier stands in it.
program::Stream compute_stream(const program::Program& program,
                               const std::vector<ir::VariableId>& by_need,
                               const std::optional<ir::LossScaling>& scaling);

struct Pass {
  const char* name;
  void (*function)(State&);
  // Whether lower() makes a verifiable Program of what the pass leaves.
  bool complete;
};

// The list: pipeline.cc.
const std::vector<Pass>& passes();

}  // namespace autodist::passes
