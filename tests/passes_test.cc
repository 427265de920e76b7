#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/testing/random_graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/builders/builders.h"

namespace autodist::passes {
namespace {

using ir::batch;
using ir::contiguous;

// Two linear layers and a variable that no op uses: y = relu(x·a)·b.
std::shared_ptr<const ir::Graph> two_layers(double op_seconds = 1e-3, bool clip = false) {
  ir::GraphBuilder step("two_layers", 4);
  ir::Effects effects;
  effects.cost.fixed = Seconds{op_seconds};
  const auto x = step.input("x", contiguous({batch(), 8}));
  const auto a = step.variable("a", contiguous({8, 7}));
  const auto bias = step.variable("bias", contiguous({7}));
  const auto b = step.variable("b", contiguous({7, 2}));
  step.variable("idle", contiguous({5}));
  step.scope("layer1");
  const auto h = step.op("aten::addmm", {bias, x, a}, contiguous({batch(), 7}), effects);
  const auto r = step.op("aten::relu", {h}, contiguous({batch(), 7}), effects);
  step.scope("layer2");
  const auto y = step.op("aten::mm", {r, b}, contiguous({batch(), 2}), effects);
  step.output(step.op("aten::mean", {y}, contiguous({}), effects));
  step.backward();
  const auto dy = step.op("aten::ones_like", {y}, contiguous({batch(), 2}), effects);
  step.gradient(b, step.op("aten::mm", {r, dy}, contiguous({7, 2}), effects));
  const auto dr = step.op("aten::mm", {dy, b}, contiguous({batch(), 7}), effects);
  step.scope("layer1");
  const auto dh = step.op("aten::threshold_backward", {dr, r}, contiguous({batch(), 7}), effects);
  step.gradient(bias, step.op("aten::sum", {dh}, contiguous({7}), effects));
  step.gradient(a, step.op("aten::mm", {x, dh}, contiguous({8, 7}), effects));
  auto graph = std::make_shared<ir::Graph>(step.finish());
  if (clip) graph->clips.push_back({1.0, {ir::VariableId(0), ir::VariableId(2)}});
  return graph;
}

// A look-up of rows, whose gradient is sparse, and a dense layer. The numbers of the rows are
// computed from the batch.
std::shared_ptr<const ir::Graph> lookup() {
  ir::GraphBuilder step("lookup", 4);
  const auto words = step.input("words", contiguous({batch()}, DType::kInt32));
  const auto table = step.variable("table", contiguous({10, 4}));
  const auto w = step.variable("w", contiguous({4, 2}));
  const auto ids = step.op("aten::_to_copy", {words}, contiguous({batch()}, DType::kInt64));
  const auto h = step.op("aten::embedding", {table, ids}, contiguous({batch(), 4}));
  const auto y = step.op("aten::mm", {h, w}, contiguous({batch(), 2}));
  step.output(step.op("aten::mean", {y}, contiguous({})));
  step.backward();
  const auto dy = step.op("aten::ones_like", {y}, contiguous({batch(), 2}));
  step.gradient(w, step.op("aten::mm", {h, dy}, contiguous({4, 2})));
  const auto dh = step.op("aten::mm", {dy, w}, contiguous({batch(), 4}));
  step.gradient(table, step.op("aten::embedding_sparse_backward", {dh, ids}, contiguous({10, 4})),
                /*sparse=*/true);
  return std::make_shared<ir::Graph>(step.finish());
}

cluster::Cluster nodes(int workers, bool server = false) {
  std::string yaml = "nodes:\n";
  for (int i = 1; i <= workers; ++i) {
    yaml += "  - {address: 10.0.0." + std::to_string(i) + (i == 1 ? ", chief: true}\n" : "}\n");
  }
  if (server) yaml += "  - {address: 10.0.0.9, role: server}\n";
  return cluster::parse_resource_spec(yaml, "c.yml");
}

program::Program rewritten(std::shared_ptr<const ir::Graph> graph, const std::string& builder,
                           const cluster::Cluster& cluster, const Options& options = {}) {
  const strategy::Strategy strategy = search::build_strategy(builder, *graph, cluster);
  return rewrite(std::move(graph), strategy, cluster, options, "test");
}

void expect_golden(const std::string& name, const program::Program& program) {
  const std::string path =
      std::string(AUTODIST_SOURCE_DIR) + "/tests/testdata/" + name + ".program";
  const std::string text = program::to_text(program);
  if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
  EXPECT_EQ(text, read_file(path)) << name;
}

TEST(Rewrite, GivesTheProgramsOfTheGoldens) {
  Options fine;
  fine.slice_bytes = Bytes{64};
  fine.fuse_below = Bytes{0};
  expect_golden("alone", rewritten(two_layers(), "PS", nodes(1)));
  expect_golden("ps_2", rewritten(two_layers(), "PS", nodes(2)));
  expect_golden("ps_2_sliced", rewritten(two_layers(), "PS", nodes(2), fine));
  expect_golden("ps_load_balancing_2_server",
                rewritten(two_layers(), "PSLoadBalancing", nodes(2, true)));
  expect_golden("uneven_partitioned_ps_3",
                rewritten(two_layers(), "UnevenPartitionedPS", nodes(3)));
  expect_golden("all_reduce_3", rewritten(two_layers(), "AllReduce:chunk_size=2", nodes(3)));
  expect_golden("all_reduce_2_clip", rewritten(two_layers(1e-3, true), "AllReduce", nodes(2)));
  expect_golden("rows_fetched_2", rewritten(lookup(), "PS", nodes(2)));
  expect_golden("rows_returned_2", rewritten(lookup(), "PS:local_proxy_variable=true", nodes(2)));
  expect_golden("rows_gathered_2", rewritten(lookup(), "AllReduce", nodes(2)));
  expect_golden("rows_fetched_from_all_3", rewritten(lookup(), "AllReduce", nodes(3)));
  expect_golden("library_2",
                rewritten(two_layers(), "AllReduce:algorithm=library,chunk_size=1", nodes(2)));
  expect_golden("library_2_clip",
                rewritten(two_layers(1e-3, true), "AllReduce:algorithm=library", nodes(2)));
}

// A barrier behind the last gradient; updates here come after it, and those of collectives after
// all collectives.
TEST(Rewrite, PutsTheBarrierOfLossScalingBeforeAllUpdates) {
  Options options;
  options.loss_scaling = ir::LossScaling();
  expect_golden("alone_loss_scaling", rewritten(two_layers(1e-3, true), "PS", nodes(1), options));
  expect_golden("ps_2_loss_scaling", rewritten(two_layers(), "PS", nodes(2), options));
  expect_golden("library_2_loss_scaling",
                rewritten(two_layers(1e-3, true), "AllReduce:algorithm=library,chunk_size=1",
                          nodes(2), options));
  const program::Program program = rewritten(two_layers(), "PS", nodes(2), options);
  EXPECT_EQ(program::loss_scaling_of(program), options.loss_scaling);
  EXPECT_EQ(program::digest_of(for_other_shapes(program, *two_layers())),
            program::digest_of(program));
  options.loss_scaling->interval = 7;
  EXPECT_NE(program::digest_of(rewritten(two_layers(), "PS", nodes(2), options)),
            program::digest_of(program));
}

TEST(Rewrite, RefusesLossScalingWhereAStepIsNotAllThere) {
  Options options;
  options.loss_scaling = ir::LossScaling();
  for (const char* builder :
       {"PS:staleness=1", "PS:sync=false", "AllReduce:compressor=HorovodCompressorEF"}) {
    try {
      rewritten(two_layers(), builder, nodes(2), options);
      ADD_FAILURE() << builder;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInfeasible) << error.what();
    }
  }
}

TEST(Rewrite, ReadsNoMeasuredTime) {
  for (const char* builder : {"PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
    const auto graph = two_layers(1e-3);
    const strategy::Strategy strategy = search::build_strategy(builder, *graph, nodes(2));
    EXPECT_EQ(program::digest_of(rewrite(graph, strategy, nodes(2), {}, "a")),
              program::digest_of(rewrite(two_layers(7.0), strategy, nodes(2), {}, "b")));
  }
}

TEST(Rewrite, PutsWhatIsNeededFirstFirst) {
  const auto graph = two_layers();
  strategy::Strategy strategy = search::build_strategy("PS", *graph, nodes(2));
  for (strategy::NodeConfig& node : strategy.nodes) node.needed = Seconds{9};
  strategy.nodes[2].needed = Seconds{1};  // b
  Options options;
  options.fuse_below = Bytes{0};
  const program::Program program = rewrite(graph, strategy, nodes(2), options, "test");
  EXPECT_EQ(program.shard(program.slices.front().pieces.front().shard).name, "b");
  EXPECT_EQ(program.slices.front().needed, Seconds{1});
}

TEST(Rewrite, FusesSmallNeighboursOfOneOwnerUpToTheBound) {
  Options options;
  options.fuse_below = Bytes{300};
  const program::Program fused = rewritten(two_layers(), "PS", nodes(2), options);
  ASSERT_EQ(fused.slices.size(), 2u) << "a (224) and bias (28) fit in 300 bytes, b (56) does not";
  EXPECT_EQ(fused.slices[0].pieces.size(), 2u);
}

TEST(Rewrite, RefusesWhatItCannotCarryOut) {
  const auto refusal = [](const std::string& builder) -> std::string {
    try {
      rewritten(two_layers(), builder, nodes(2));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal("PS:staleness=33").find("'a' has staleness=33"), std::string::npos);
  EXPECT_NE(refusal("AllReduce:compressor=PowerSGDCompressor,algorithm=tree").find("powersgd(1)"),
            std::string::npos);
}

TEST(Rewrite, AStrategyForAnotherClusterIsRefused) {
  const auto graph = two_layers();
  const strategy::Strategy strategy = search::build_strategy("PS", *graph, nodes(3));
  EXPECT_THROW(rewrite(graph, strategy, nodes(2), {}, "plan"), Error);
}

TEST(Rewrite, WithCpusInPlaceOfGpusNamesThemAsCpus) {
  const cluster::Cluster cluster =
      cluster::parse_resource_spec("nodes: [{address: a, gpus: [0, 1]}]", "c");
  Options options;
  options.cpu_only = true;
  const program::Program program = rewritten(two_layers(), "AllReduce", cluster, options);
  EXPECT_EQ(program.ranks[1].device, "a:CPU:1");
  EXPECT_EQ(program.replica_count(), 2u);
}

// Bytes that a rank sends: (M - o) + (N - 1)·o for a machine that owns o of M.
TEST(Rewrite, SendsWhatTheFormulaSays) {
  for (int n : {2, 3, 4}) {
    for (const char* builder :
         {"PS", "PSLoadBalancing", "PartitionedPS", "AllReduce", "PartitionedAR"}) {
      const program::Program program = rewritten(two_layers(), builder, nodes(n));
      const std::int64_t all = (56 + 7 + 14) * 4;
      std::int64_t sum = 0;
      for (std::uint32_t rank = 0; rank < program.ranks.size(); ++rank) {
        std::int64_t owned = 0;
        for (const program::Slice& slice : program.slices) {
          if (slice.owner == program::Rank(rank)) owned += program::bytes_of(slice).value;
        }
        sum += (all - owned) + (n - 1) * owned;
        if (std::string(builder) == "AllReduce") {
          EXPECT_LE(std::abs(owned - all / n), 4) << "spread evenly, to one element";
        }
      }
      EXPECT_EQ(sum, 2 * all * (n - 1)) << builder << " on " << n;
    }
  }
}

// Over random graphs, builders and clusters: rewrite() verifies what it returns (coverage, gates,
// releases), and is deterministic.
TEST(Rewrite, HoldsItsLawsOverRandomGraphs) {
  std::mt19937 random(23);
  const std::vector<std::string> builders{"PS",
                                          "PSLoadBalancing",
                                          "PartitionedPS",
                                          "UnevenPartitionedPS",
                                          "AllReduce:chunk_size=2",
                                          "PartitionedAR:chunk_size=3",
                                          "AllReduce:algorithm=library,chunk_size=2"};
  int sliced = 0;
  for (int i = 0; i < 150; ++i) {
    const auto graph = std::make_shared<const ir::Graph>(ir::random_graph(random));
    if (graph->variables.empty()) continue;
    Options options;
    options.slice_bytes = Bytes{static_cast<std::int64_t>(random() % 200 + 1)};
    options.fuse_below = Bytes{static_cast<std::int64_t>(random() % 100)};
    const std::string& builder = builders[random() % builders.size()];
    const cluster::Cluster cluster = nodes(static_cast<int>(random() % 4 + 1), random() % 2 == 0);
    const program::Program program = rewritten(graph, builder, cluster, options);
    EXPECT_EQ(program::to_text(program),
              program::to_text(rewritten(graph, builder, cluster, options)));
    sliced += program.slices.empty() ? 0 : 1;
  }
  EXPECT_GT(sliced, 30);
}

}  // namespace
}  // namespace autodist::passes
