#include "autodist/passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/passes/slice_table.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::passes {
namespace {

GraphPointer shared(ir::Graph graph) { return std::make_shared<const ir::Graph>(std::move(graph)); }

program::Program rewritten(const ir::Graph& graph, const strategy::Strategy& strategy,
                           const cluster::Cluster& cluster, const Options& options = {}) {
  return rewrite(shared(graph), strategy, cluster, options, "plan.strategy");
}

std::string refusal(const ir::Graph& graph, const strategy::Strategy& strategy,
                    const cluster::Cluster& cluster, ErrorCode code) {
  try {
    rewritten(graph, strategy, cluster);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

strategy::Strategy all_ps(const ir::Graph& graph, const cluster::Cluster& cluster) {
  return plan(graph, cluster, [](auto) { return ps("10.0.0.1:CPU:0"); });
}

// Variables of these numbers of elements, each used by one op in order and its gradient made in
// reverse.
ir::Graph chain(const std::vector<std::int64_t>& sizes) {
  ir::GraphBuilder step("chain");
  std::vector<ir::ValueId> variables;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    variables.push_back(step.variable("w" + std::to_string(i), ir::contiguous({sizes[i]})));
  }
  for (ir::ValueId variable : variables) {
    step.output(step.op("aten::sum", {variable}, ir::contiguous({})));
  }
  step.backward();
  for (std::size_t i = sizes.size(); i-- > 0;) {
    step.gradient(variables[i],
                  step.op("aten::ones_like", {variables[i]}, ir::contiguous({sizes[i]})));
  }
  return step.finish();
}

TEST(Pipeline, DumpsAfterEveryPassItNames) {
  Options options;
  std::vector<std::string> dumped;
  std::string last;
  options.dump = [&](const std::string& pass, const std::string& text) {
    dumped.push_back(pass);
    last = text;
  };
  const auto program = rewritten(two_layers(), all_ps(two_layers(), hosts(2)), hosts(2), options);
  EXPECT_EQ(dumped, pass_names());
  EXPECT_EQ(pass_names(), (std::vector<std::string>{"partition", "replicate", "place",
                                                    "synchronise", "fuse", "order", "lower"}));
  EXPECT_EQ(last, program::to_text(program));
}

TEST(Pipeline, RefusesWhatThisBuildDoesNotRun) {
  const ir::Graph graph = two_layers();
  const auto cluster = hosts(2);
  auto stale = all_ps(graph, cluster);
  std::get<strategy::PsSynchronizer>(stale.nodes[1].synchronizer).staleness = 33;
  EXPECT_EQ(refusal(graph, stale, cluster, ErrorCode::kInfeasible),
            "plan.strategy: 'fc1.bias' has staleness=33, at most 32 expected");
  std::get<strategy::PsSynchronizer>(stale.nodes[1].synchronizer).staleness = 2;
  ir::Graph clipped = graph;
  clipped.clips = {{1.0, {ir::VariableId(0), ir::VariableId(1)}}};
  EXPECT_EQ(refusal(clipped, stale, cluster, ErrorCode::kInfeasible),
            "plan.strategy: 'fc1.bias' has staleness=2, and clipping by a norm needs every step's "
            "gradients at once. Use sync=true and staleness=0, or leave that out.");

  auto asynchronous = all_ps(graph, cluster);
  std::get<strategy::PsSynchronizer>(asynchronous.nodes[1].synchronizer).sync = false;
  EXPECT_EQ(refusal(clipped, asynchronous, cluster, ErrorCode::kInfeasible),
            "plan.strategy: 'fc1.bias' has sync=false, and clipping by a norm needs every step's "
            "gradients at once. Use sync=true and staleness=0, or leave that out.");

  auto compressed = all_ps(graph, cluster);
  split(compressed.nodes[0], 0, 2, 2, [](int) {
    return strategy::AllReduceSynchronizer{strategy::AllReduceSpec::kAuto,
                                           strategy::Compressor::kPowerSgd, 0,
                                           strategy::AllReduceAlgorithm::kRing};
  });
  EXPECT_EQ(refusal(graph, compressed, cluster, ErrorCode::kInfeasible),
            "plan.strategy: 'fc1.weight/part_0' asks for powersgd(1)+ef of an all-reduce with "
            "algorithm=ring, which does not sum factors; use algorithm=library");

  auto by_library = all_ps(graph, cluster);
  by_library.nodes[0].synchronizer = strategy::AllReduceSynchronizer{
      strategy::AllReduceSpec::kAuto, strategy::Compressor::kHorovodEf, 0,
      strategy::AllReduceAlgorithm::kLibrary};
  EXPECT_EQ(refusal(graph, by_library, cluster, ErrorCode::kInfeasible),
            "plan.strategy: 'fc1.weight' asks for fp16+ef of an all-reduce with algorithm=library, "
            "which sums what it is given; use algorithm=direct");
}

TEST(Pipeline, RefusesALibrarysAllReduceWhereRanksEncryptWhatTheySay) {
  const ir::Graph graph = two_layers();
  Options options;
  options.encrypted = true;
  const auto rewritten = [&](int nodes, strategy::AllReduceAlgorithm algorithm) {
    auto strategy = all_ps(graph, hosts(nodes));
    strategy.nodes[0].synchronizer = strategy::AllReduceSynchronizer{
        strategy::AllReduceSpec::kAuto, strategy::Compressor::kNone, 0, algorithm};
    try {
      rewrite(std::make_shared<const ir::Graph>(graph), strategy, hosts(nodes), options,
              "plan.strategy");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      rewritten(2, strategy::AllReduceAlgorithm::kLibrary),
      "plan.strategy: 'fc1.weight' asks for a library's all-reduce, which sends in clear what "
      "this job encrypts. Use algorithm=direct; on a trusted network --encrypt off (in a "
      "program: JobOptions::encryption, in Python encrypt='off')");
  EXPECT_EQ(rewritten(2, strategy::AllReduceAlgorithm::kDirect), "");
  EXPECT_EQ(rewritten(1, strategy::AllReduceAlgorithm::kLibrary), "") << "nobody to talk to";
  options.encrypted = false;
  EXPECT_EQ(rewritten(2, strategy::AllReduceAlgorithm::kLibrary), "");
}

TEST(Pipeline, RefusesShardsOfOneVariableThatGoDifferentWays) {
  const ir::Graph graph = two_layers();
  auto mixed = all_ps(graph, hosts(2));
  split(mixed.nodes[0], 0, 2, 2, [](int i) { return i == 0 ? ps("10.0.0.1:CPU:0") : direct(0); });
  EXPECT_EQ(refusal(graph, mixed, hosts(2), ErrorCode::kInfeasible),
            "plan.strategy: shard 'fc1.weight/part_1:0' goes to a direct all-reduce, "
            "'fc1.weight/part_0:0' to a parameter server. Use one way for all shards of a "
            "variable.");
}

TEST(Pipeline, ChecksTheStrategyFirst) {
  const ir::Graph graph = two_layers();
  auto shards = all_ps(graph, hosts(2));
  split(shards.nodes[3], 0, 1, 5, [](int) { return ps("10.0.0.1:CPU:0"); });
  EXPECT_NE(refusal(graph, shards, hosts(2), ErrorCode::kInfeasible)
                .find("has 4 rows, cannot be split in 5. Use at most 4."),
            std::string::npos);
  auto nowhere = all_ps(graph, hosts(2));
  nowhere.nodes[0].synchronizer = ps("10.0.0.9:CPU:0");
  EXPECT_NE(refusal(graph, nowhere, hosts(2), ErrorCode::kInfeasible).find("10.0.0.9:CPU:0"),
            std::string::npos);
}

TEST(Pipeline, RefusesReplicasThatNoRankComputes) {
  const ir::Graph graph = two_layers();
  auto cluster = hosts(2);
  auto strategy = all_ps(graph, cluster);
  cluster.nodes[1].role = cluster::NodeRole::kServer;
  EXPECT_EQ(
      refusal(graph, strategy, cluster, ErrorCode::kInfeasible),
      "plan.strategy: the replica '10.0.0.2:CPU:0' is on a node with role: server, which "
      "computes nothing. Take it out of graph_config.replicas, or the role out of the cluster "
      "file.");
}

TEST(Pipeline, RefusesPrioritiesThatAreNoTimesAndVariablesInTwoClips) {
  ir::Graph graph = two_layers();
  auto strategy = all_ps(graph, hosts(2));
  strategy.nodes[0].needed = Seconds{-1};
  EXPECT_EQ(refusal(graph, strategy, hosts(2), ErrorCode::kUsage),
            "plan.strategy: 'fc1.weight:0' is needed at -1 s, a time from 0 on expected");
  strategy.nodes[0].needed.reset();
  graph.clips = {{1.0, {ir::VariableId(1)}}, {1.0, {ir::VariableId(1)}}};
  EXPECT_EQ(refusal(graph, strategy, hosts(2), ErrorCode::kUsage),
            "graph 'two_layers': two clips name the variable 'fc1.bias', one expected");
}

TEST(Replicate, LetsARankOwnWithoutComputing) {
  const ir::Graph graph = two_layers();
  auto strategy = plan(graph, hosts(3), [](auto) { return ps("10.0.0.2:CPU:0"); });
  strategy.replicas = {"10.0.0.3:CPU:0", "10.0.0.1:CPU:0"};
  const auto program = rewritten(graph, strategy, hosts(3));
  EXPECT_EQ(program.ranks[0].replica, 0u);
  EXPECT_EQ(program.ranks[1].replica, std::nullopt);
  EXPECT_EQ(program.ranks[2].replica, 1u);
  EXPECT_EQ(program.slices[0].owner, program::Rank(1));
  EXPECT_EQ(program.slices[0].members,
            (std::vector<program::Rank>{program::Rank(0), program::Rank(2)}));
}

TEST(Replicate, NumbersTheChiefsRanksFirst) {
  auto cluster = hosts(2);
  std::swap(cluster.nodes[0].chief, cluster.nodes[1].chief);
  const auto program = rewritten(two_layers(), all_ps(two_layers(), cluster), cluster);
  EXPECT_EQ(program.ranks[0].device, "10.0.0.2:CPU:0");
  EXPECT_EQ(program.slices[0].owner, program::Rank(1));
}

// Shares are in the order of the strategy's replicas, parts in that of the ranks, which begin with
// the chief's; and a CPU in a GPU's place has its share.
TEST(Replicate, GivesEveryReplicaItsShareOfTheBatch) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0], ssh_config: a}, {address: 10.0.0.2, gpus: [0], "
      "chief: "
      "true}]\nssh: {a: {}}",
      "two");
  strategy::Strategy strategy =
      plan(two_layers(), cluster, [](auto) { return ps("10.0.0.1:CPU:0"); });
  strategy.replicas = {"10.0.0.1:GPU:0", "10.0.0.2:GPU:0"};
  strategy.batch_shares = {3, 1};
  for (const bool cpu_only : {false, true}) {
    Options options;
    options.cpu_only = cpu_only;
    const program::Program program = rewritten(two_layers(), strategy, cluster, options);
    EXPECT_EQ(program.ranks.front().node, "10.0.0.2");
    EXPECT_EQ(program.batch_shares, (std::vector<std::int64_t>{1, 3}));
  }
}

TEST(Synchronise, SendsTheOnlyReplicasGradientsToAServerElsewhere) {
  auto strategy = plan(two_layers(), hosts(2), [](std::size_t i) {
    return ps(i == 0 ? "10.0.0.1:CPU:0" : "10.0.0.2:CPU:0");
  });
  strategy.replicas = {"10.0.0.1:CPU:0"};
  const auto program = rewritten(two_layers(), strategy, hosts(2));
  EXPECT_TRUE(program.variables[0].slices.empty());
  EXPECT_FALSE(program.variables[1].slices.empty());
}

TEST(Synchronise, KeepsDifferentSpecsOfOneGroupInCollectivesOfTheirOwn) {
  const auto program = rewritten(two_layers(),
                                 plan(two_layers(), hosts(2),
                                      [](std::size_t i) {
                                        return library(0, i == 0 ? strategy::AllReduceSpec::kRing
                                                                 : strategy::AllReduceSpec::kAuto);
                                      }),
                                 hosts(2));
  ASSERT_EQ(program.collectives.size(), 2u);
  EXPECT_EQ(program.collectives[0].variables.size() + program.collectives[1].variables.size(), 4u);
}

TEST(Cut, MakesTheFewestEvenRanges) {
  const auto pieces = cut({program::ShardId(0), 3, 13}, 4);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0], (program::Piece{program::ShardId(0), 3, 7}));
  EXPECT_EQ(pieces[1], (program::Piece{program::ShardId(0), 7, 10}));
  EXPECT_EQ(pieces[2], (program::Piece{program::ShardId(0), 10, 13}));
  EXPECT_EQ(cut({program::ShardId(0), 5, 5}, 4).size(), 1u);
}

TEST(Window, TheStrategysWindowReplacesTheOptionsAndHoldsTwoSlices) {
  const ir::Graph graph = chain({2, 3});
  strategy::Strategy strategy = all_ps(graph, hosts(2));
  Options options;
  const auto window = [&] { return rewritten(graph, strategy, hosts(2), options).window; };
  EXPECT_EQ(window(), Bytes{0});
  const Digest open = program::digest_of(rewritten(graph, strategy, hosts(2), options));
  options.slice_bytes = Bytes{1000};
  options.window = Bytes{4096};
  EXPECT_EQ(window(), Bytes{4096});
  EXPECT_FALSE(program::digest_of(rewritten(graph, strategy, hosts(2), options)) == open);
  strategy.slice_bytes = Bytes{3000};
  EXPECT_EQ(window(), Bytes{6000});
  strategy.window_bytes = Bytes{512};
  EXPECT_EQ(window(), Bytes{512});
}

TEST(Fuse, JoinsSmallNeighboursUpToTheLimitAndStopsAtALargeOne) {
  const ir::Graph graph = chain({2, 3, 20, 4, 5, 6});
  const auto sizes = [&](Bytes slice_bytes, Bytes fuse_below) {
    Options options;
    options.slice_bytes = slice_bytes;
    options.fuse_below = fuse_below;
    std::vector<std::int64_t> sizes;
    for (const program::Slice& slice :
         rewritten(graph, all_ps(graph, hosts(2)), hosts(2), options).slices) {
      sizes.push_back(program::element_count(slice));
    }
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(sizes(Bytes{100}, Bytes{64}), (Sizes{5, 20, 15}));
  EXPECT_EQ(sizes(Bytes{100}, Bytes{40}), (Sizes{5, 20, 9, 6}));
  EXPECT_EQ(sizes(Bytes{40}, Bytes{64}), (Sizes{5, 10, 10, 9, 6})) << "a slice is the limit";
  EXPECT_EQ(sizes(Bytes{100}, Bytes{0}), (Sizes{2, 3, 20, 4, 5, 6}));
}

TEST(Fuse, JoinsNothingAcrossOwnersClipsOrFarPriorities) {
  ir::Graph graph = chain(std::vector<std::int64_t>(20, 1));
  const auto slices = [&](const strategy::Strategy& strategy) {
    return rewritten(graph, strategy, hosts(2)).slices.size();
  };
  const auto strategy = all_ps(graph, hosts(2));
  EXPECT_EQ(slices(strategy), 2u);  // 17 places, then 3
  EXPECT_EQ(slices(plan(graph, hosts(2),
                        [](std::size_t i) {
                          return ps(i % 2 == 0 ? "10.0.0.1:CPU:0" : "10.0.0.2:CPU:0");
                        })),
            4u);
  graph.clips.push_back({1.0, {ir::VariableId(3)}});
  EXPECT_EQ(slices(strategy), 3u);
}

TEST(Order, FollowsTheStrategysPrioritiesAndElseTheFirstUse) {
  const ir::Graph graph = chain({50, 60, 70});
  auto strategy = all_ps(graph, hosts(2));
  Options options;
  options.fuse_below = Bytes{0};
  const auto sizes = [&] {
    std::vector<std::int64_t> sizes;
    for (const program::Slice& slice : rewritten(graph, strategy, hosts(2), options).slices) {
      sizes.push_back(program::element_count(slice));
    }
    return sizes;
  };
  EXPECT_EQ(sizes(), (std::vector<std::int64_t>{50, 60, 70}));
  strategy.nodes[0].needed = Seconds{0.3};
  strategy.nodes[1].needed = Seconds{0.2};
  strategy.nodes[2].needed = Seconds{0.1};
  EXPECT_EQ(sizes(), (std::vector<std::int64_t>{70, 60, 50}));
}

TEST(Lower, EvaluationIsComputeAlone) {
  ir::GraphBuilder step("evaluate");
  const auto w = step.variable("w", ir::contiguous({4}));
  step.output(step.op("aten::sum", {w}, ir::contiguous({})));
  const ir::Graph graph = step.finish();
  const auto program = rewritten(graph, all_ps(graph, hosts(2)), hosts(2));
  ASSERT_EQ(program.roles.size(), 1u);
  ASSERT_EQ(program.roles[0].streams.size(), 1u);
  EXPECT_EQ(program.roles[0].streams[0].instructions,
            (std::vector<program::Instruction>{program::Compute{ir::OpId(0)}}));
}

TEST(Lower, PutsTheNormOfALocalClipBehindAllContributions) {
  ir::Graph graph = two_layers();
  graph.clips.push_back({1.0, {ir::VariableId(2), ir::VariableId(0)}});
  // fc2.weight is local and complete early; fc1.weight is the server's and complete late.
  auto strategy = plan(graph, hosts(2), [](std::size_t i) {
    return ps(i == 2 ? "10.0.0.1:CPU:0" : "10.0.0.2:CPU:0");
  });
  strategy.replicas = {"10.0.0.1:CPU:0"};
  const auto program = rewritten(graph, strategy, hosts(2));
  const auto& stream = program.roles[0].streams[0].instructions;
  const auto find = [&](const program::Instruction& instruction) {
    return std::find(stream.begin(), stream.end(), instruction) - stream.begin();
  };
  const ir::VariableId w1(0);
  const auto contributed = find(program::Contribute{w1, *graph.variable(w1).gradient});
  const auto norm = find(program::Norm{program::ClipId(0)});
  const auto update = find(program::Update{ir::VariableId(2)});
  EXPECT_LT(contributed, norm);
  EXPECT_EQ(norm + 1, update);
  EXPECT_LT(update, static_cast<std::ptrdiff_t>(stream.size()));
}

TEST(Lower, PutsANormThatWaitsForSlicesBehindAllCollectives) {
  ir::Graph graph = two_layers();
  // fc2.bias is the library's and complete first; fc1.weight travels in slices.
  graph.clips.push_back({1.0, {ir::VariableId(3), ir::VariableId(0)}});
  const auto strategy = plan(graph, hosts(2), [](std::size_t i) {
    return i == 0 ? direct(0) : library(static_cast<int>(i));
  });
  const auto program = rewritten(graph, strategy, hosts(2));
  ASSERT_EQ(program.roles[0].streams.size(), 2u);
  const auto& stream = program.roles[0].streams[1].instructions;
  ASSERT_EQ(stream.size(), 7u);  // three collectives, the updates of two of them, norm, update
  EXPECT_EQ(stream[0], program::Instruction(program::AllReduce{program::CollectiveId(0)}));
  EXPECT_EQ(stream[5], program::Instruction(program::Norm{program::ClipId(0)}));
  EXPECT_EQ(stream[6], program::Instruction(program::Update{ir::VariableId(3)}));
}

}  // namespace
}  // namespace autodist::passes
