// simulate(Program, Cluster, CostModel): what a training step takes on a cluster that need not
// exist. The judge of every search. How it models what: docs/simulator.md.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/program/program.h"
#include "autodist/program/trace.h"
#include "autodist/sim/bounds.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/memory.h"

namespace autodist::sim {

struct SimulationOptions {
  // Steps are simulated until three in a row differ by less than a thousandth, at least and at most
  // so many; their mean is the step. Jobs with stale or asynchronous variables always take the
  // most; their period is the mean of the second half.
  std::uint32_t least_steps = 4;
  std::uint32_t most_steps = 16;
  // Of interest are only jobs whose steps take less. One that falls behind such a job, from the
  // third step on by more than a twentieth of a step, is left there, and `step` is what its few
  // steps say. 0: none is left; nor are jobs whose steps are meant to differ: stale, asynchronous,
  // with slow steps.
  Seconds hopeless;
  bool trace = false;    // fill `trace`
  bool symmetry = true;  // simulate one of the ranks that cannot be told apart; the same bits
};

// Of one node's card in a step, payload.
struct NodeUse {
  std::string node;
  Bytes sent;
  Bytes received;
  double sending = 0;    // share of the step that its sending side is busy
  double receiving = 0;  // share of the step that its receiving side is busy
  Seconds stolen;        // core seconds that the engine took from computing ranks
};

struct RankUse {
  Seconds computing;  // what the engine took included
  Seconds waiting;    // at gates
  Seconds owning;     // sums, updates, installations
};

struct Waited {
  ir::VariableId variable;
  Seconds seconds;  // per step, mean over the computing ranks
};

struct Simulation {
  Seconds step;        // of the steady state
  Seconds first_step;  // nothing to wait for, nothing overlapped with the step before
  bool settled = true;
  bool abandoned = false;  // as hopeless
  Bounds bounds;
  std::vector<MemoryUse> memory;  // by rank
  std::vector<NodeUse> nodes;     // by node of the cluster
  std::vector<RankUse> ranks;     // by rank
  std::vector<Waited> waits;      // longest first; those above zero
  std::uint32_t steps = 0;        // simulated
  std::uint64_t events = 0;
  std::uint32_t simulated_ranks = 0;
  program::Trace trace;
};

// Deterministic: the same arguments give the same bits, with symmetry and without.
//
// REQUIRES: verify(program) holds, `costs` is of this program, and the ranks' nodes stand in the
// cluster.
Simulation simulate(const program::Program& program, const cluster::Cluster& cluster,
                    const CostModel& costs, const SimulationOptions& options = {});

// `program` with a barrier before every step's first op: no variable may be read before all have
// their new version. What PyTorch's and TensorFlow's own loops do.
program::Program with_barrier(program::Program program);

}  // namespace autodist::sim
