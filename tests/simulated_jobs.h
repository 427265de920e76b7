// Jobs for the simulator's tests: random ones, and ones whose times can be worked out by hand.

#pragma once

#include <memory>
#include <random>
#include <string>

#include "autodist/cluster/cluster.h"
#include "autodist/passes/pipeline.h"
#include "autodist/program/program.h"
#include "autodist/sim/simulator.h"

namespace autodist {

struct SimulatedJob {
  program::Program program;
  cluster::Cluster cluster;
  sim::CostModel costs;

  [[nodiscard]] sim::Simulation simulate(const sim::SimulationOptions& options = {}) const {
    return sim::simulate(program, cluster, costs, options);
  }
};

// `layers` linear layers of width x width parameters; each op takes `seconds` (backward: twice).
std::shared_ptr<const ir::Graph> stack(int layers, std::int64_t width, double seconds);

// By `builder` on `nodes` machines of 1 Gbit/s with `ranks_per_node` ranks each.
SimulatedJob job_of(const std::shared_ptr<const ir::Graph>& graph, const std::string& builder,
                    int nodes, int ranks_per_node = 1);
SimulatedJob job_on(const std::shared_ptr<const ir::Graph>& graph, const std::string& builder,
                    const cluster::Cluster& cluster, passes::Options options = {});

cluster::Cluster machines(int nodes, int ranks_per_node = 1);

// Any graph, strategy, cluster and costs.
SimulatedJob random_job(std::mt19937& random);

// Nothing but the wire costs anything: no messages, sums, updates, copies, cores; all of the rate.
void only_the_wire(sim::CostModel& costs);

}  // namespace autodist
