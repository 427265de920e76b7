// The builders against goldens: what AutoDist's algorithms give, read off by hand for small graphs.

#include "autodist/search/builders/builders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

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
  ir::Graph graph = graph_of({{"embed", {9, 4}},
                              {"fc.weight", {6, 4}},
                              {"fc.bias", {6}},
                              {"scale", {}},
                              {"row", {1, 8}},
                              {"prime", {5, 2}}});
  graph.variables.front().sparse_gradient = true;
  return graph;
}

cluster::Cluster two_servers() {
  return cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0, 1], chief: true}, {address: 10.0.0.2}]", "c");
}

void expect_golden(const std::string& specification) {
  const strategy::Strategy strategy = build_strategy(specification, small(), two_servers());
  std::string name = specification;
  for (char& c : name) {
    if (c == ':' || c == ',' || c == '=') c = '_';
  }
  const std::string path =
      std::string(AUTODIST_SOURCE_DIR) + "/autodist/search/builders/testdata/" + name + ".pbtxt";
  const std::string text = strategy::to_text(strategy);
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path)) << name;
  strategy::check(strategy, small(), two_servers(), name);
}

TEST(Builders, OfOtherSystemsNameSaySoBesideTheirTimes) {
  EXPECT_EQ(shown_name("DDP-like"), "DDP-like (as AutoDist runs it)");
  EXPECT_EQ(shown_name("Horovod-like:cycle_ms=5"), "Horovod-like:cycle_ms=5 (as AutoDist runs it)");
  EXPECT_EQ(shown_name("builder DDP-like"), "builder DDP-like (as AutoDist runs it)");
  for (const char* other :
       {"PartitionedPS", "AllReduce:algorithm=library", "found 3", "a.strategy"}) {
    EXPECT_EQ(shown_name(other), other);
  }
}

TEST(Builders, GiveAutoDistsResults) {
  for (const char* specification :
       {"PS", "PSLoadBalancing", "PSLoadBalancing:local_proxy_variable=true,staleness=2",
        "PartitionedPS", "UnevenPartitionedPS", "AllReduce:chunk_size=4",
        "AllReduce:all_reduce_spec=RING,compressor=HorovodCompressorEF",
        "PartitionedAR:chunk_size=3", "RandomAxisPartitionAR:chunk_size=4", "Parallax:chunk_size=2",
        "PartitionedPS:max_shards=2"}) {
    expect_golden(specification);
  }
}

TEST(Builders, GiveWhatUsersOfOtherSystemsRun) {
  for (const char* specification :
       {"BytePS:partition_bytes=40", "P3:slice_parameters=8",
        "DDP-like:first_bucket_mib=0.00003,bucket_mib=0.0001", "Horovod-like:fusion_mib=0.0001"}) {
    expect_golden(specification);
  }
}

TEST(Builders, HorovodsBuffersLeaveWithTheirCycle) {
  ir::Graph graph = small();
  graph.ops.resize(graph.variables.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    graph.ops[i].cost.fixed = Seconds(0.9e-3);
    graph.variables[i].gradient_complete = ir::OpId(graph.ops.size() - 1 - i);
  }
  const auto groups = [&](const std::string& specification) {
    std::vector<std::int32_t> found;
    for (const auto& node : build_strategy(specification, graph, two_servers()).nodes) {
      found.push_back(std::get<strategy::AllReduceSynchronizer>(node.synchronizer).group);
    }
    return found;
  };
  EXPECT_EQ(groups("Horovod-like:cycle_ms=2"), (std::vector<std::int32_t>{2, 2, 1, 1, 0, 0}));
  EXPECT_EQ(groups("Horovod-like:cycle_ms=9"), (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0}));
  std::swap(graph.variables[1].gradient_complete, graph.variables[5].gradient_complete);
  EXPECT_EQ(groups("Horovod-like:cycle_ms=2"), (std::vector<std::int32_t>{2, 0, 1, 1, 0, 2}))
      << "by completion";
  std::swap(graph.variables[1].gradient_complete, graph.variables[5].gradient_complete);
  // 144 and 96 bytes, two to a cycle: one buffer does not take both.
  EXPECT_EQ(groups("Horovod-like:cycle_ms=2,fusion_mib=0.0002"),
            (std::vector<std::int32_t>{3, 2, 1, 1, 0, 0}));
}

TEST(Builders, CompressWhatEveryBuilderPlans) {
  for (const char* specification :
       {"PartitionedPS:compressor=bf16+ef", "AllReduce:compressor=topk,density=0.25",
        "PSLoadBalancing:compressor=HorovodCompressor"}) {
    expect_golden(specification);
  }
  for (const Builder& builder : builders()) {
    const strategy::Strategy strategy =
        build_strategy(builder.name + ":compressor=fp16", small(), two_servers());
    const strategy::NodeConfig& node = strategy.nodes.front();
    const program::Compression compression = strategy::compression_of(
        node.parts.empty() ? node.synchronizer : node.parts.front().synchronizer);
    EXPECT_EQ(program::to_string(compression), "fp16") << builder.name;
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

TEST(Shards, KeepACap) {
  EXPECT_EQ(least_divisor(10007, 64), 64) << "a prime";
  EXPECT_EQ(least_divisor(35, 4), 4) << "no divisor up to the cap";
  EXPECT_EQ(least_divisor(35, 6), 5);
  EXPECT_EQ(least_divisor(3, 64), 3);
  EXPECT_EQ(least_non_divisor(6, 3), 3);
}

// The load of the busiest link when every server-only node owns `share` of all bytes: it hands them
// to each worker; a worker's link carries what the others own besides, and what it owns to them.
double busiest(std::int64_t ranks, std::int64_t server_only, double share) {
  const auto n = static_cast<double>(ranks);
  const double own = (1 - share * static_cast<double>(server_only)) / n;
  const double worker = (1 - own) + (n - 1) * own;
  return server_only == 0 ? worker : std::max(worker, n * share);
}

TEST(BytePs, SharesCarryLeastOnTheBusiestLink) {
  for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
    for (std::int64_t alone = 0; alone <= 8; ++alone) {
      const ServerShares shares = byteps_shares(ranks, alone);
      EXPECT_NEAR(static_cast<double>(ranks) * shares.co_located +
                      static_cast<double>(alone) * shares.server_only,
                  1, 1e-12);
      double least = busiest(ranks, alone, 0);
      for (int i = 1; alone > 0 && i <= 10000; ++i) {
        least = std::min(least, busiest(ranks, alone, i / 10000.0 / static_cast<double>(alone)));
      }
      EXPECT_LE(busiest(ranks, alone, shares.server_only), least + 1e-9) << ranks << " " << alone;
    }
  }
}

TEST(BytePs, NodesThatOnlyServeTakeMore) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, chief: true}, {address: 10.0.0.2}, {address: 10.0.0.3, role: "
      "server}]",
      "c");
  const strategy::Strategy strategy =
      build_strategy("BytePS:partition_bytes=4000", graph_of({{"w", {8000, 100}}}), cluster);
  std::map<std::string, int> shards;
  for (const strategy::NodeConfig& part : strategy.nodes.front().parts) {
    ++shards[std::get<strategy::PsSynchronizer>(part.synchronizer).reduction_destination];
  }
  // n = 2 workers, k = 1: 2/4 of the bytes for the server, 1/4 for each worker.
  EXPECT_EQ(shards,
            (std::map<std::string, int>{
                {"10.0.0.1:CPU:0", 200}, {"10.0.0.2:CPU:0", 200}, {"10.0.0.3:CPU:0", 400}}));
}

TEST(Builders, AVariableWithoutElementsIsNotCut) {
  for (const char* specification : {"BytePS", "P3"}) {
    const strategy::Strategy strategy =
        build_strategy(specification, graph_of({{"empty", {4, 0}}, {"w", {4, 4}}}), two_servers());
    EXPECT_TRUE(strategy.nodes.front().parts.empty()) << specification;
  }
}

TEST(Builders, AUsersOwnStandsBesideOurs) {
  const Builder everything_on_the_last{
      "Last",
      "every variable on the last server",
      {{"sync", "true"}},
      [](const ir::Graph& graph, const cluster::Cluster& cluster, const BuilderOptions& options) {
        strategy::Strategy strategy =
            build_strategy("PS:sync=" + options.at("sync"), graph, cluster);
        for (strategy::NodeConfig& node : strategy.nodes) {
          std::get<strategy::PsSynchronizer>(node.synchronizer).reduction_destination =
              cluster::servers_of(cluster).back();
        }
        return strategy;
      }};
  const strategy::Strategy strategy =
      build_strategy("Last:sync=true", small(), two_servers(), {everything_on_the_last});
  strategy::check(strategy, small(), two_servers(), "Last");
  EXPECT_EQ(std::get<strategy::PsSynchronizer>(strategy.nodes[3].synchronizer),
            (strategy::PsSynchronizer{"10.0.0.2:CPU:0", false, true, 0}));
}

TEST(Builders, AnExceptionOfAUsersOwnNamesIt) {
  const Builder careless{
      "Careless",
      "",
      {{"n", "1"}},
      [](const ir::Graph&, const cluster::Cluster&, const BuilderOptions& options) {
        std::stoi(options.at("n"));
        return strategy::Strategy{};
      }};
  try {
    build_strategy("Careless:n=x", small(), two_servers(), {careless});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("builder Careless:n=x: "), std::string::npos);
  }
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
  EXPECT_NE(refusal("AllReduce:compressor=topk,density=0").find("density='0'"), std::string::npos);
  EXPECT_NE(refusal("PS:compressor=PowerSGDCompressor").find("takes an all-reduce"),
            std::string::npos);
  EXPECT_NE(refusal("PS:staleness=1,sync=false").find("needs sync=true"), std::string::npos);
  EXPECT_NE(refusal("PS:sync=maybe").find("true or false"), std::string::npos);
  for (const char* capital : {"Auto", "AUTO"}) {
    EXPECT_NE(refusal(capital).find("Nearest: 'auto'"), std::string::npos) << refusal(capital);
  }
  EXPECT_NE(refusal("allreduce").find("Nearest: 'AllReduce'"), std::string::npos);
  EXPECT_NE(refusal("auto:budget=3").find("Give what it takes beside it"), std::string::npos);
}

TEST(Builders, RefuseOptionsWithoutEffect) {
  const auto expect = [](const std::string& specification, const std::string& part) {
    try {
      build_strategy(specification, small(), two_servers());
      ADD_FAILURE() << specification << ": accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect("AllReduce:density=0.1",
         "builder AllReduce: density=0.1 counts with compressor=topk alone, and that is "
         "NoneCompressor. Add compressor=topk, or leave density out.");
  expect("PS:density=0.1,compressor=fp16", "and that is fp16");
  expect("AllReduce:rank=4", "Add compressor=powersgd");
  expect("AllReduce:compressor=PowerSGDCompressor,rank=4", "Set compressor=powersgd");
  expect("DDP-like:warm_start=false", "Add compressor=powersgd");
  expect("AllReduce:all_reduce_spec=RING,algorithm=tree", "Set algorithm=by_spec");
  expect("PS:density=0.1,compressor=topj", "compressor='topj', one of");
  expect("AllReduce:all_reduce_spec=RING,algorithm=tee", "algorithm='tee', one of");
  // As AutoDist's classes write them.
  for (const char* each : {"AllReduce:all_reduce_spec=NCCL,algorithm=tree", "PS:density=0.010"}) {
    EXPECT_NO_THROW(build_strategy(each, small(), two_servers())) << each;
  }
}

}  // namespace
}  // namespace autodist::search
