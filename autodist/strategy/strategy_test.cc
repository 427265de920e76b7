#include "autodist/strategy/strategy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"
#include "tests/outcome_of.h"

namespace autodist::strategy {
namespace {

using testing_jobs::refusal;

// Written by AutoDist: W:0 on a parameter server, b:0 all-reduced with defaults, E:0 in two shards.
const std::string kGoldenHex =
    "0a163230323030353035543137343331314d3635303336341a190a03573a3012120a0e31302e302e302e313a435055"
    "3a"
    "3018011a070a03623a301a001a360a03453a302203322c312a140a0a452f706172745f303a301a060801100118032a"
    "14"
    "0a0a452f706172745f313a301a0608011001180322200a0e31302e302e302e313a4750553a300a0e31302e302e302e"
    "32"
    "3a4750553a30";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

ir::Graph graph_of_e_w_b(std::int64_t rows) {
  ir::GraphBuilder builder("ewb");
  builder.variable("W", ir::contiguous({3, 3}));
  builder.variable("b", ir::contiguous({3}));
  builder.variable("E", ir::contiguous({rows, 4}));
  return builder.finish();
}

cluster::Cluster two_gpus() {
  return cluster::parse_resource_spec(
      "nodes: [{address: 10.0.0.1, gpus: [0], chief: true}, {address: 10.0.0.2, gpus: [0]}]", "c");
}

TEST(Strategy, MovesToOtherMachines) {
  Strategy strategy = deserialize(from_hex(kGoldenHex), "golden");
  strategy.placement = Placement{{"10.0.0.1:GPU:0", "10.0.0.2:GPU:0"}, 2, {}};
  strategy.nodes[2].parts[0].synchronizer = PsSynchronizer{"10.0.0.2:CPU:0"};
  const Strategy moved = on_machines(strategy, {{"10.0.0.2", "fd09::7"}, {"10.0.0", "no"}});
  EXPECT_EQ(moved.replicas, (std::vector<std::string>{"10.0.0.1:GPU:0", "fd09::7:GPU:0"}));
  EXPECT_EQ(moved.placement->devices, moved.replicas);
  EXPECT_EQ(moved.nodes[0], strategy.nodes[0]);
  const auto& part = moved.nodes[2].parts[0].synchronizer;
  EXPECT_EQ(std::get<PsSynchronizer>(part).reduction_destination, "fd09::7:CPU:0");
  EXPECT_EQ(on_machines(moved, {{"fd09::7", "10.0.0.2"}}), strategy);
}

TEST(Strategy, ReadsAndWritesAutoDistsBytes) {
  const std::string bytes = from_hex(kGoldenHex);
  ASSERT_EQ(bytes.size(), 150u);
  const Strategy strategy = deserialize(bytes, "golden");
  ASSERT_EQ(strategy.nodes.size(), 3u);
  const auto& ps = std::get<PsSynchronizer>(strategy.nodes[0].synchronizer);
  EXPECT_EQ(ps.reduction_destination, "10.0.0.1:CPU:0");
  EXPECT_TRUE(ps.sync);
  EXPECT_EQ(std::get<AllReduceSynchronizer>(strategy.nodes[1].synchronizer),
            AllReduceSynchronizer{});
  EXPECT_EQ(strategy.nodes[2].partitioner, "2,1");
  ASSERT_EQ(strategy.nodes[2].parts.size(), 2u);
  const auto& shard = std::get<AllReduceSynchronizer>(strategy.nodes[2].parts[1].synchronizer);
  EXPECT_EQ(shard.spec, AllReduceSpec::kNccl);
  EXPECT_EQ(shard.compressor, Compressor::kHorovod);
  EXPECT_EQ(shard.group, 3);
  EXPECT_EQ(strategy.replicas.size(), 2u);
  EXPECT_EQ(serialize(strategy), bytes);
}

TEST(Strategy, IsToldFromOtherFiles) {
  const Strategy strategy = deserialize(from_hex(kGoldenHex), "golden");
  EXPECT_TRUE(looks_like_strategy(serialize(strategy)));
  EXPECT_TRUE(looks_like_strategy(to_text(strategy)));
  EXPECT_EQ(parse_strategy(serialize(strategy), "f"), parse_strategy(to_text(strategy), "f"));
  EXPECT_FALSE(looks_like_strategy(""));
  EXPECT_FALSE(looks_like_strategy("nodes:\n  - address: a\n"));
  EXPECT_FALSE(looks_like_strategy("PK\x03\x04 not this"));
}

TEST(Strategy, ComesBackFromItsTextWithOurOwnFields) {
  Strategy strategy = deserialize(from_hex(kGoldenHex), "golden");
  strategy.slice_bytes = Bytes{4096};
  strategy.window_bytes = Bytes{65536};
  strategy.batch_shares = {48, 16};
  strategy.nodes[0].needed = Seconds{0};
  strategy.nodes[1].needed = Seconds{0.1};
  EXPECT_EQ(from_text(to_text(strategy), "text"), strategy);
  EXPECT_EQ(deserialize(serialize(strategy), "bytes"), strategy);
}

TEST(Strategy, ComesBackWithEveryCodecAndDelivery) {
  for (const program::CodecTraits& traits : program::kCodecs) {
    Strategy strategy = deserialize(from_hex(kGoldenHex), "golden");
    auto& ps = std::get<PsSynchronizer>(strategy.nodes[0].synchronizer);
    ps.compression.codec = traits.codec;
    ps.delivery = program::Delivery::kAsked;
    EXPECT_EQ(deserialize(serialize(strategy), "bytes"), strategy) << traits.name;
  }
}

TEST(Strategy, RefusesWhatIsNone) {
  const std::string bytes = from_hex(kGoldenHex);
  EXPECT_NE(refusal([&] { deserialize(bytes.substr(0, 100), "f"); }), "");
  EXPECT_NE(refusal([] { deserialize("", "f"); }).find("names no variable"), std::string::npos);
  EXPECT_NE(refusal([] { deserialize("PK\x03\x04 not this", "f"); }), "");
  EXPECT_NE(refusal([] { from_text("nodes { }", "f"); }).find("f:1:"), std::string::npos);
}

TEST(Strategy, PartitionersSplitExactlyOneAxis) {
  const Partitioning second = parse_partitioner("1,2,1", "p");
  EXPECT_EQ(second.axis, 1U);
  EXPECT_EQ(second.shards, 2);
  EXPECT_EQ(second.axes, 3U);
  for (const char* bad :
       {"", "0,1", "1,1", "2,2", "2,", "a", "-2", "2 ,1", "9999999999999999999999"}) {
    EXPECT_THROW(parse_partitioner(bad, "p"), Error) << bad;
  }
}

TEST(Check, NamesWhatDoesNotFit) {
  const Strategy sound = deserialize(from_hex(kGoldenHex), "golden");
  const auto refused = [&](auto change, std::int64_t rows = 8) {
    Strategy strategy = sound;
    change(strategy);
    return refusal([&] { check(strategy, graph_of_e_w_b(rows), two_gpus(), "plan"); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  EXPECT_EQ(refused([](Strategy&) {}), "");
  expect(refused([](Strategy&) {}, 1), "axis 0 has 1 rows, cannot be split in 2. Use at most 1.");
  expect(refused([](Strategy& s) { s.nodes[0].name = "Ww:0"; }), "Nearest: 'W'");
  expect(refused([](Strategy& s) { s.nodes.pop_back(); }), "no node for the variable 'E'");
  expect(refused([](Strategy& s) { s.nodes.push_back(s.nodes[0]); }), "stands twice");
  expect(refused([](Strategy& s) { s.nodes[2].parts[1].name = s.nodes[2].parts[0].name; }),
         "the shard 'E/part_0:0' stands twice");
  expect(refused([](Strategy& s) { s.nodes[2].partitioner = "2"; }), "has 1 axes");
  expect(refused([](Strategy& s) { s.nodes[2].partitioner = "4,1"; }), "makes 4 shards, 2");
  expect(refused([](Strategy& s) { s.nodes[0].synchronizer = {}; }), "no synchronizer");
  expect(refused([](Strategy& s) { s.replicas.clear(); }), "no replica");
  EXPECT_EQ(refused([](Strategy& s) { s.batch_shares = {3, 1}; }), "");
  expect(refused([](Strategy& s) { s.batch_shares = {3}; }), "batch_shares: 1 of them, 2 replicas");
  expect(refused([](Strategy& s) { s.batch_shares = {3, 0}; }), "batch_shares: 0, a whole number");
  expect(refused([](Strategy& s) { s.batch_shares = {3, 2'000'000}; }), "from 1 to 1000000");
  expect(refused([](Strategy& s) {
           s.batch_shares = {3, 1};
           std::get<PsSynchronizer>(s.nodes[0].synchronizer).sync = false;
         }),
         "counts as much, whatever its samples");
  expect(refused([](Strategy& s) { s.replicas[0] = "10.0.0.9:GPU:0"; }),
         "no device of the cluster");
  expect(refused([](Strategy& s) {
           std::get<PsSynchronizer>(s.nodes[0].synchronizer) = {"10.0.0.1:CPU:0", false, false, 2};
         }),
         "needs sync");
}

TEST(Priorities, AreTheStartOfTheFirstUse) {
  ir::GraphBuilder builder("two", 4);
  const auto x = builder.input("x", ir::contiguous({ir::batch(), 2}));
  const auto a = builder.variable("a", ir::contiguous({2}));
  const auto b = builder.variable("b", ir::contiguous({2}));
  const ir::Cost cost{Seconds{1}, Seconds{0.5}};
  const auto y =
      builder.op("aten::mul", {x, a}, ir::contiguous({ir::batch(), 2}), {{}, false, cost, {}, {}});
  builder.output(builder.op("aten::mul", {y, b}, ir::contiguous({ir::batch(), 2})));
  const ir::Graph graph = builder.finish();
  Strategy strategy;
  strategy.nodes = {{"a:0", {}, "", {}, {}}, {"b:0", {}, "", {}, {}}};
  fix_priorities(strategy, graph);
  EXPECT_EQ(strategy.nodes[0].needed, Seconds{0});
  EXPECT_EQ(strategy.nodes[1].needed, Seconds{3});
}

// Zeros would say that all are needed at once.
TEST(Priorities, AreLeftOutWhereNothingWasMeasured) {
  Strategy strategy;
  strategy.nodes = {{"W:0", {}, "", {}, {}}};
  ir::GraphBuilder builder("w");
  builder.op("aten::neg", {builder.variable("W", ir::contiguous({2}))}, ir::contiguous({2}));
  fix_priorities(strategy, builder.finish());
  EXPECT_FALSE(strategy.nodes[0].needed);
}

TEST(Ids, AreTimesInUtc) { EXPECT_EQ(make_id(1580924621635634), "20200205T174341M635634"); }

TEST(StrategyText, PassesOverTheFieldsOfOlderDocumentation) {
  const std::string text =
      "node_config { var_name: 'w:0' PSSynchronizer { reduction_destinations: 'a:CPU:0' } }";
  std::vector<std::string> warnings;
  EXPECT_EQ(from_text(text, "old.txt", &warnings).nodes.size(), 1U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("reduction_destinations"), std::string::npos) << warnings[0];
  from_text("node_config { var_name: 'b:0' AllReduceSynchronizer { chunk_size: 128 } }", "old.txt",
            &warnings);
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[1].find("chunk_size"), std::string::npos) << warnings[1];
  EXPECT_THROW(from_text("node_config { var_name: 'w:0' colour: 'red' }", "new.txt"), Error);
}

TEST(StrategyText, RefusesNestingThatWouldOverflowTheStack) {
  for (const std::string level : {"part_config {", "colour {", "colour: [", "colour: <"}) {
    std::string text = "node_config {";
    for (int i = 0; i < 200'000; ++i) text += level;
    EXPECT_NE(refusal([&] { from_text(text, "deep.txt"); }).find("deep.txt:1:"), std::string::npos)
        << level;
  }
}

// Ranks could not read what their chief had accepted.
TEST(Strategy, RefusesNamesThatAreNotUtf8WithoutPrintingThem) {
  testing::internal::CaptureStderr();
  EXPECT_NE(refusal([] { from_text("node_config { var_name: '\\377' }", "f"); }).find("not UTF-8"),
            std::string::npos);
  EXPECT_NE(refusal([] { deserialize("\x1a\x03\x0a\x01\xff", "f"); }), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// As --write-plans and --plans do.
TEST(StrategyHistory, ReadsWhatItWroteAndKnowsWhichPlanHolds) {
  const std::string path = testing::TempDir() + "/a.plans";
  const Strategy strategy = deserialize(from_hex(kGoldenHex), "golden");
  StrategyHistory history{{3, strategy, "PS"}, {10, strategy, "found 4"}};
  history[1].strategy.id = "another";
  std::ofstream(path) << to_text(history);
  const StrategyHistory again = read_history(path);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].step, 3);
  EXPECT_EQ(again[1].name, "found 4");
  EXPECT_EQ(again[1].strategy, history[1].strategy);
  EXPECT_EQ(entry_at(again, 0), 0u) << "the first holds before its step, too";
  EXPECT_EQ(entry_at(again, 9), 0u);
  EXPECT_EQ(entry_at(again, 10), 1u);

  const auto refused = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    return refusal([&] { read_history(path); });
  };
  EXPECT_NE(refused("").find("no plan"), std::string::npos);
  EXPECT_NE(refused(to_text(strategy)).find("one strategy"), std::string::npos);
  EXPECT_NE(refused(to_text({history[1], history[0]})).find("from step 3"), std::string::npos);
  EXPECT_NE(refused("entry { stap: 3 }").find("stap"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace autodist::strategy
