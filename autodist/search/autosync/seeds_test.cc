#include "autodist/search/autosync/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "autodist/search/autosync/autosync.h"
#include "autodist/search/builders/builders.h"
#include "autodist/search/testing/small_problems.h"

namespace autodist::search {
namespace {

std::size_t groups_of(const strategy::Strategy& strategy) {
  std::set<std::int32_t> groups;
  for (const strategy::NodeConfig& node : strategy.nodes) {
    groups.insert(std::get<strategy::AllReduceSynchronizer>(node.synchronizer).group);
  }
  return groups.size();
}

// Captured where a layer takes many cycles, on devices on which all of them take less than one.
TEST(Seeds, BuildersGroupGradientsByTheTimesOfTheClustersDevices) {
  const auto graph = layers({300, 300, 300}, 5e-3);
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0], chief: true, devices: {kind: fast, tflops: 100, "
      "memory_gib: 16, memory_bandwidth_gb_per_s: 900}}, {address: 10.0.0.2, gpus: [0], "
      "devices: {kind: fast, tflops: 100, memory_gib: 16, memory_bandwidth_gb_per_s: 900}}]",
      "test");
  const Judge judge(graph, cluster, {}, costs_on(cluster));
  const program::Program program = seed_program(judge, *graph, cluster);
  const ir::Graph timed = sim::with_times(program, judge.costs_of(program));
  const std::string name = "Horovod-like";
  EXPECT_EQ(groups_of(build_strategy(name, *graph, cluster)), 3U);
  EXPECT_EQ(groups_of(build_strategy(name, timed, cluster)), 1U);

  class NoClock final : public Clock {
    [[nodiscard]] Seconds now() const override { return Seconds{}; }
  };
  SearchOptions options;
  options.budget = {Seconds{}, 1};
  const Found found = search(graph, cluster, {}, costs_on(cluster), options, NoClock());
  const auto seed = std::find_if(found.candidates.begin(), found.candidates.end(),
                                 [&](const Candidate& each) { return each.name == name; });
  ASSERT_NE(seed, found.candidates.end());
  EXPECT_EQ(groups_of(seed->strategy), 1U);
}

// What other systems sum by a library goes round a ring where a job has no library, as an encrypted
// one, and is left out where there is neither.
TEST(Seeds, LibraryAllReducesBecomeRingsWhereAJobHasNoLibrary) {
  using strategy::AllReduceAlgorithm;
  const auto has = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  Allowed allowed;
  EXPECT_TRUE(has(seeds(allowed), "Parallax:algorithm=library"));
  EXPECT_FALSE(has(seeds(allowed), "Parallax:algorithm=ring"));
  EXPECT_TRUE(has(seeds(allowed), "AllReduce:algorithm=sufficient_factors"));
  EXPECT_TRUE(has(seeds(allowed), "AllReduce:algorithm=hierarchical"));
  allowed.algorithms = {AllReduceAlgorithm::kDirect, AllReduceAlgorithm::kRing};
  EXPECT_TRUE(has(seeds(allowed), "Parallax:algorithm=ring"));
  EXPECT_FALSE(has(seeds(allowed), "AllReduce:algorithm=sufficient_factors"));
  allowed.algorithms = {AllReduceAlgorithm::kDirect};
  for (const std::string& seed : seeds(allowed)) {
    EXPECT_EQ(seed.find("algorithm="), std::string::npos) << seed;
  }
}

}  // namespace
}  // namespace autodist::search
