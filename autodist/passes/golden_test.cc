// Each file in testdata/ is a whole example: a cluster, a strategy, a graph and the Program that
// they make. AUTODIST_UPDATE_GOLDENS=1 writes them anew.

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "autodist/base/file.h"
#include "autodist/ir/graph_text.h"
#include "autodist/passes/pipeline.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::passes {
namespace {

struct Job {
  ir::Graph graph;
  cluster::Cluster cluster;
  strategy::Strategy strategy;
  Options options;
};

std::string text_of(const Job& job, const std::string& name) {
  const program::Program program = rewrite(std::make_shared<const ir::Graph>(job.graph),
                                           job.strategy, job.cluster, job.options, name);
  return "# cluster\n" + cluster::to_yaml(job.cluster) + "\n\n# strategy\n" +
         strategy::to_text(job.strategy) + "\n# graph\n" + ir::to_text(job.graph) +
         "\n# program\n" + program::to_text(program);
}

void expect_golden(const std::string& name, const Job& job) {
  const std::string path = AUTODIST_SOURCE_DIR "/autodist/passes/testdata/" + name + ".txt";
  const std::string text = text_of(job, name);
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path));
}

// Slices of 40 elements, fusion below 12.
Options small_slices() {
  Options options;
  options.slice_bytes = Bytes{160};
  options.fuse_below = Bytes{48};
  return options;
}

Job job(ir::Graph graph, cluster::Cluster cluster,
        const std::function<strategy::Synchronizer(std::size_t variable)>& choose) {
  strategy::Strategy strategy = plan(graph, cluster, choose);
  return {std::move(graph), std::move(cluster), std::move(strategy), small_slices()};
}

TEST(Golden, ParameterServerSlicesEveryVariableAndUpdatesAtTheOwner) {
  expect_golden("ps", job(two_layers(), hosts(2), [](auto) { return ps("10.0.0.1:CPU:0"); }));
}

TEST(Golden, PartitionedParameterServersTakeUnevenShards) {
  Job partitioned = job(two_layers(), hosts(2), [](auto) { return ps("10.0.0.1:CPU:0"); });
  const auto in_turn = [](int i) { return ps(i % 2 == 0 ? "10.0.0.1:CPU:0" : "10.0.0.2:CPU:0"); };
  split(partitioned.strategy.nodes[0], 0, 2, 3, in_turn);
  split(partitioned.strategy.nodes[2], 1, 2, 2, in_turn);
  expect_golden("partitioned_ps", partitioned);
}

TEST(Golden, LoadBalancedParameterServersOwnWholeVariables) {
  expect_golden("load_balanced_ps", job(two_layers(), hosts(3), [](std::size_t i) {
                  return ps("10.0.0." + std::to_string(1 + i % 3) + ":CPU:0");
                }));
}

TEST(Golden, DirectAllReduceSpreadsEachGroupOverAllReplicas) {
  expect_golden("direct", job(two_layers(), hosts(3),
                              [](std::size_t i) { return direct(static_cast<int>(i / 2)); }));
}

TEST(Golden, LibraryAllReducesFollowTheCompletionOfGradients) {
  expect_golden("library", job(two_layers(), hosts(2),
                               [](std::size_t i) { return library(static_cast<int>(i / 2)); }));
}

TEST(Golden, OneRankAloneUpdatesInItsComputeStream) {
  expect_golden("one_rank", job(two_layers(), hosts(1), [](auto) { return direct(0); }));
}

TEST(Golden, AServerOwnsAndComputesNothing) {
  cluster::Cluster cluster = hosts(3);
  cluster.nodes[1].role = cluster::NodeRole::kServer;
  expect_golden("server", job(two_layers(), cluster, [](auto) { return ps("10.0.0.2:CPU:0"); }));
}

TEST(Golden, ATiedWeightIsReleasedAfterItsLastUseAndContributesOnce) {
  expect_golden("tied", job(tied_layers(), hosts(2), [](auto) { return ps("10.0.0.2:CPU:0"); }));
}

TEST(Golden, VariablesWithoutGradientCostNothing) {
  expect_golden("unused", job(layers_with_unused(), hosts(2), [](auto) { return direct(0); }));
}

TEST(Golden, AClipIsOneNormBeforeTheUpdatesThatItHolds) {
  ir::Graph graph = two_layers();
  graph.clips.push_back({1.0, {ir::VariableId(0), ir::VariableId(1)}});
  graph.clips.push_back({2.0, {ir::VariableId(3)}});
  expect_golden("clip", job(graph, hosts(2), [](std::size_t i) -> strategy::Synchronizer {
                  if (i == 0) return ps("10.0.0.1:CPU:0");
                  if (i == 1) return direct(0);
                  return library(1);
                }));
}

TEST(Golden, CpuRanksStandForTheGpusThatTheStrategyNames) {
  cluster::Cluster cluster = hosts(2);
  for (cluster::Node& node : cluster.nodes) {
    node.gpus = {{cluster::DeviceKind::kGpu, 0, {}}, {cluster::DeviceKind::kGpu, 1, {}}};
  }
  Job gpus = job(two_layers(), cluster, [](std::size_t i) {
    return ps(i % 2 == 0 ? "10.0.0.2:CPU:0" : "10.0.0.1:GPU:1");
  });
  gpus.options.cpu_only = true;
  expect_golden("cpu_only", gpus);
}

}  // namespace
}  // namespace autodist::passes
