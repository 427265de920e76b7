// The builders against goldens: what AutoDist's algorithms give, read off by hand for small graphs.

#include "autodist/search/builders/builders.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/search/builders/algorithms.h"

namespace autodist::search {
namespace {

// Variables alone: builders look at nothing else.
ir::Graph graph_of(
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& variables) {
  ir::GraphBuilder builder("variables");
  for (const auto& [name, shape] : variables) {
    std::vector<ir::Affine> sizes;
    for (std::int64_t size : shape) sizes.push_back({0, size});
    builder.variable(name, ir::contiguous(sizes));
  }
  return builder.finish();
}

ir::Graph small() {
  return graph_of({{"embed", {9, 4}},
                   {"fc.weight", {6, 4}},
                   {"fc.bias", {6}},
                   {"scale", {}},
                   {"row", {1, 8}},
                   {"prime", {5, 2}}});
}

cluster::Cluster two_servers() {
  return cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0, 1], chief: true}, {address: 10.0.0.2}]", "c");
}

void expect_golden(const std::string& name, const strategy::Strategy& strategy) {
  const std::string path =
      std::string(AUTODIST_SOURCE_DIR) + "/autodist/search/builders/testdata/" + name + ".pbtxt";
  const std::string text = strategy::to_text(strategy);
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path)) << name;
  strategy::check(strategy, small(), two_servers(), name);
}

TEST(Builders, GiveAutoDistsResults) {
  for (const char* specification :
       {"PS", "PSLoadBalancing", "PSLoadBalancing:local_proxy_variable=true,staleness=2",
        "PartitionedPS", "UnevenPartitionedPS", "AllReduce:chunk_size=4",
        "AllReduce:all_reduce_spec=RING,compressor=HorovodCompressorEF",
        "PartitionedAR:chunk_size=3"}) {
    std::string file = specification;
    for (char& c : file) {
      if (c == ':' || c == ',' || c == '=') c = '_';
    }
    expect_golden(file, build_strategy(specification, small(), two_servers()));
  }
}

TEST(Builders, ReplicasAreTheGpusThenTheCpusOfNodesWithoutGpus) {
  EXPECT_EQ(build_strategy("PS", small(), two_servers()).replicas,
            (std::vector<std::string>{"10.0.0.1:GPU:0", "10.0.0.1:GPU:1", "10.0.0.2:CPU:0"}));
}

TEST(Builders, LoadBalancingGivesEachVariableToTheLeastLoadedServer) {
  const auto destination = [](const strategy::NodeConfig& node) {
    return std::get<strategy::PsSynchronizer>(node.synchronizer).reduction_destination;
  };
  // Bytes: 144 | 96 | 24 | 4 | 32 | 40. After each: 144/0, 144/96, 144/120, 144/124, 144/156,
  // 184/156.
  const strategy::Strategy strategy = build_strategy("PSLoadBalancing", small(), two_servers());
  std::vector<std::string> servers;
  for (const auto& node : strategy.nodes) servers.push_back(destination(node));
  const std::string a = "10.0.0.1:CPU:0";
  const std::string b = "10.0.0.2:CPU:0";
  EXPECT_EQ(servers, (std::vector<std::string>{a, b, b, b, b, a}));
}

TEST(Shards, FollowTheFirstDimension) {
  EXPECT_EQ(least_divisor(9), 3);
  EXPECT_EQ(least_divisor(6), 2);
  EXPECT_EQ(least_divisor(7), 7) << "a prime gives as many shards as rows";
  EXPECT_EQ(least_divisor(1), 1);
  EXPECT_EQ(least_non_divisor(9), 2);
  EXPECT_EQ(least_non_divisor(6), 4);
  EXPECT_EQ(least_non_divisor(2), 2);
  EXPECT_EQ(least_non_divisor(1), 1);
}

TEST(Builders, RefuseWhatTheyDoNotKnow) {
  const auto refusal = [](const std::string& specification) -> std::string {
    try {
      build_strategy(specification, small(), two_servers());
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("PartitonedPS").find("Nearest: 'PartitionedPS'"), std::string::npos);
  EXPECT_NE(refusal("AllReduce:chunk=4").find("Nearest: 'chunk_size'"), std::string::npos);
  EXPECT_NE(refusal("AllReduce:chunk_size=0").find("at least 1"), std::string::npos);
  EXPECT_NE(refusal("AllReduce:compressor=zip").find("one of NoneCompressor"), std::string::npos);
  EXPECT_NE(refusal("PS:staleness=1,sync=false").find("needs sync=true"), std::string::npos);
  EXPECT_NE(refusal("PS:sync=maybe").find("true or false"), std::string::npos);
}

}  // namespace
}  // namespace autodist::search
