#include "tests/simulated_jobs.h"

#include <fmt/format.h>

#include "autodist/ir/graph_builder.h"
#include "autodist/ir/testing/random_graph.h"
#include "autodist/passes/testing/small_jobs.h"
#include "autodist/search/builders/builders.h"

namespace autodist {
namespace {

constexpr double kNoTime = 1e18;  // bytes per second

ir::Effects takes(double seconds) {
  ir::Effects effects;
  effects.cost = {Seconds(seconds), Seconds{}};
  return effects;
}

class Drawn {
 public:
  explicit Drawn(std::mt19937& random) : random_(random) {}
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  double upto(double most) { return most * (below(1000) + 1) / 1000; }

 private:
  std::mt19937& random_;
};

program::Compression power_sgd(std::int32_t rank) {
  program::Compression compression;
  compression.codec = program::Codec::kPowerSgd;
  compression.error_feedback = true;
  compression.rank = rank;
  return compression;
}

// Clipping by a norm needs every step's gradients at once.
strategy::Synchronizer synchronizer(Drawn& drawn, const std::vector<std::string>& servers,
                                    bool may_lag) {
  const int kind = drawn.below(6);
  if (kind == 0) return passes::direct(drawn.below(3));
  if (kind == 1) {
    auto library = std::get<strategy::AllReduceSynchronizer>(passes::library(drawn.below(2)));
    // A group has one compressor.
    if (library.group == 1) library.compression = power_sgd(1);
    return library;
  }
  if (kind < 4) {
    auto by_way = std::get<strategy::AllReduceSynchronizer>(passes::direct(drawn.below(3)));
    constexpr strategy::AllReduceAlgorithm kWays[] = {
        strategy::AllReduceAlgorithm::kRing, strategy::AllReduceAlgorithm::kTree,
        strategy::AllReduceAlgorithm::kHierarchical,
        strategy::AllReduceAlgorithm::kSufficientFactors};
    by_way.algorithm = kWays[drawn.below(4)];
    if (drawn.below(2) == 0 && kind == 3) by_way.update_at = program::UpdateAt::kOwner;
    if (by_way.algorithm == strategy::AllReduceAlgorithm::kSufficientFactors) {
      by_way.update_at = program::UpdateAt::kEveryRank;
    }
    return by_way;
  }
  strategy::PsSynchronizer ps;
  ps.reduction_destination =
      servers[static_cast<std::size_t>(drawn.below(static_cast<int>(servers.size())))];
  if (may_lag && drawn.below(4) == 0) ps.staleness = 1 + drawn.below(2);
  if (may_lag && ps.staleness == 0) ps.sync = drawn.below(6) != 0;
  if (drawn.below(4) == 0) ps.compression.codec = program::Codec::kFp16;
  ps.local_replication = drawn.below(3) == 0;
  return ps;
}

}  // namespace

std::shared_ptr<const ir::Graph> stack(int layers, std::int64_t width, double seconds) {
  ir::GraphBuilder step("stack", 4);
  const auto wide = ir::contiguous({ir::batch(), width});
  std::vector<ir::ValueId> inputs{step.input("x", wide)};
  std::vector<ir::ValueId> weights;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(step.variable(fmt::format("w{}", i), ir::contiguous({width, width}),
                                    {ir::Rule::kSgd, {{"lr", 0.1}}, ""}));
    inputs.push_back(step.op("aten::mm", {inputs.back(), weights.back()}, wide, takes(seconds)));
  }
  step.output(step.op("aten::sum", {inputs.back()}, ir::contiguous({})));
  step.backward();
  ir::ValueId gradient = step.op("aten::ones_like", {inputs.back()}, wide);
  for (int i = layers; i-- > 0;) {
    const auto index = static_cast<std::size_t>(i);
    step.gradient(weights[index], step.op("aten::mm", {inputs[index], gradient},
                                          ir::contiguous({width, width}), takes(seconds)));
    gradient = step.op("aten::mm", {gradient, weights[index]}, wide, takes(seconds));
  }
  return std::make_shared<const ir::Graph>(step.finish());
}

cluster::Cluster machines(int nodes, int ranks_per_node) {
  cluster::Cluster cluster = passes::hosts(nodes);
  for (cluster::Node& node : cluster.nodes) node.slots = static_cast<unsigned>(ranks_per_node);
  return cluster;
}

SimulatedJob job_on(const std::shared_ptr<const ir::Graph>& graph, const std::string& builder,
                    const cluster::Cluster& cluster, passes::Options options) {
  strategy::Strategy strategy = search::build_strategy(builder, *graph, cluster);
  strategy::fix_priorities(strategy, *graph);
  options.verify_each = false;
  SimulatedJob job;
  job.cluster = cluster;
  job.program = passes::rewrite(graph, strategy, cluster, options, builder);
  job.costs = sim::cost_model(job.program, cluster, {options.batch, options.micro_batches, ""});
  return job;
}

SimulatedJob job_of(const std::shared_ptr<const ir::Graph>& graph, const std::string& builder,
                    int nodes, int ranks_per_node) {
  return job_on(graph, builder, machines(nodes, ranks_per_node));
}

SimulatedJob random_job(std::mt19937& random) {
  Drawn drawn(random);
  ir::Graph drawn_graph = ir::random_graph(random);
  for (ir::Op& op : drawn_graph.ops) op.cost = {Seconds(drawn.upto(1e-3)), Seconds(1e-6)};
  const auto graph = std::make_shared<const ir::Graph>(std::move(drawn_graph));
  SimulatedJob job;
  job.cluster = machines(1 + drawn.below(4), drawn.below(3));
  const bool alike = drawn.below(2) == 0;
  const double bandwidth = drawn.upto(1e6);
  for (cluster::Node& node : job.cluster.nodes) {
    node.bandwidth_bytes_per_s = bandwidth;
    if (alike) continue;
    node.bandwidth_bytes_per_s = drawn.upto(1e6);
    node.latency = Seconds(drawn.upto(1e-4));
  }
  if (!alike && job.cluster.nodes.size() > 1 && drawn.below(3) == 0) {
    job.cluster.nodes.back().role = cluster::NodeRole::kServer;
    job.cluster.nodes.back().slots = 0;
  }
  if (!alike && job.cluster.nodes.size() > 2 && drawn.below(4) == 0) {
    job.cluster.switches.push_back(
        {"rack", {job.cluster.nodes[0].address, job.cluster.nodes[1].address}, 4});
  }
  const std::vector<std::string> servers = cluster::servers_of(job.cluster);
  strategy::Strategy strategy = passes::plan(*graph, job.cluster, [&](auto) {
    return synchronizer(drawn, servers, graph->clips.empty());
  });
  strategy::fix_priorities(strategy, *graph);
  passes::Options options;
  options.slice_bytes = Bytes{4 + drawn.below(60)};
  options.fuse_below = Bytes{drawn.below(40)};
  options.verify_each = false;
  job.program = passes::rewrite(graph, strategy, job.cluster, options, "random");
  job.costs = sim::cost_model(job.program, job.cluster);
  job.costs.engine.window = Bytes{64 + drawn.below(1000)};
  job.costs.engine.nic_budget = job.costs.engine.window * 3;
  if (drawn.below(4) == 0) job.costs.engine.stream_bytes_per_s = drawn.upto(1e5);
  return job;
}

void only_the_wire(sim::CostModel& costs) {
  sim::EngineCost& engine = costs.engine;
  engine.message = Seconds{};
  engine.goodput = 1;
  engine.send_cpu_s_per_byte = 0;
  engine.receive_cpu_s_per_byte = 0;
  engine.sum_bytes_per_s = kNoTime;
  engine.update_bytes_per_s = kNoTime;
  engine.install_bytes_per_s = kNoTime;
  engine.encode_bytes_per_s = kNoTime;
  costs.collectives.start = Seconds{};
  costs.collectives.round = Seconds{};
  costs.collectives.efficiency = 1;
  costs.collectives.cpu_s_per_byte = 0;
}

}  // namespace autodist
