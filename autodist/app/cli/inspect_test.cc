// What `autodist inspect` and `autodist plan` say of AutoDist's own files, as goldens:
// AUTODIST_UPDATE_GOLDENS=1 writes them anew. The files have names that tell nothing.

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/ir/graph_file.h"
#include "autodist/strategy/strategy.h"
#include "tests/outcome_of.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;

// Written by AutoDist: W:0 on a parameter server, b:0 all-reduced with defaults, E:0 in two shards.
const std::string kStrategyHex =
    "0a163230323030353035543137343331314d3635303336341a190a03573a3012120a0e31302e302e302e313a435055"
    "3a3018011a070a03623a301a001a360a03453a302203322c312a140a0a452f706172745f303a301a06080110011803"
    "2a140a0a452f706172745f313a301a0608011001180322200a0e31302e302e302e313a4750553a300a0e31302e302e"
    "302e323a4750553a30";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

class Cli : public testing::Test {
 protected:
  void SetUp() override { fs::current_path(scratch_ / ""); }
  void TearDown() override { fs::current_path(before_); }

  using Declaration = Action(CLI::App&);
  static std::string said(Declaration& declare, const std::string& arguments, bool json = false) {
    CLI::App verb;
    const Action action = declare(verb);
    verb.parse(arguments);
    std::ostringstream out;
    std::ostringstream err;
    Console console{out, err, json, false};
    EXPECT_EQ(action(console), 0);
    EXPECT_EQ(err.str(), "");
    return out.str();
  }

  static void expect_golden(const std::string& name, const std::string& text) {
    const std::string path = AUTODIST_SOURCE_DIR "/autodist/app/cli/testdata/" + name;
    if (std::getenv("AUTODIST_UPDATE_GOLDENS") != nullptr) write_file_atomically(path, text);
    EXPECT_EQ(text, read_file(path));
  }

  // As text for people and as one line of JSON.
  static void expect_shown(const std::string& file) {
    expect_golden(file + ".txt", said(declare_inspect, file));
    const std::string json = said(declare_inspect, file, true);
    EXPECT_EQ(json.find('\n'), json.size() - 1);
    expect_golden(file + ".json", nlohmann::ordered_json::parse(json).dump(1) + "\n");
  }

  static void copy(const std::string& from, const std::string& to) {
    write_file_atomically(to, read_file(std::string(AUTODIST_SOURCE_DIR) + "/" + from));
  }

 private:
  const fs::path before_ = fs::current_path();
  const testing_jobs::Scratch scratch_;
};

TEST_F(Cli, ShowsAStrategyInEitherForm) {
  const std::string bytes = from_hex(kStrategyHex);
  ASSERT_EQ(bytes.size(), 150U);
  write_file_atomically("strategy", bytes);
  expect_shown("strategy");
  const strategy::Strategy strategy = strategy::deserialize(bytes, "strategy");
  EXPECT_EQ(said(declare_inspect, "strategy --text"), strategy::to_text(strategy));
  write_file_atomically("as_text", strategy::to_text(strategy));
  EXPECT_EQ(said(declare_inspect, "as_text"), said(declare_inspect, "strategy"));
}

TEST_F(Cli, ShowsShardsThatDiffer) {
  strategy::Strategy strategy = strategy::deserialize(from_hex(kStrategyHex), "strategy");
  strategy.nodes[2].parts[1].synchronizer = strategy::PsSynchronizer{"10.0.0.2:CPU:0"};
  strategy.nodes[0].needed = Seconds(0.002);
  strategy.slice_bytes = Bytes(4096);
  write_file_atomically("shards_differ", strategy::serialize(strategy));
  expect_shown("shards_differ");
}

TEST_F(Cli, ShowsAGraphItemAndPlansWithIt) {
  copy("autodist/ir/testdata/small.graph_item", "graph_item");
  expect_shown("graph_item");
  for (const char* builder : {"Parallax", "PartitionedPS"}) {
    expect_golden(
        std::string("graph_item_") + builder + ".txt",
        said(declare_plan,
             std::string("graph_item --cluster local:2 -o planned --builder ") + builder));
  }
  const strategy::Strategy planned = strategy::read_strategy("planned");
  ASSERT_EQ(planned.nodes.size(), 2U);
  EXPECT_EQ(planned.nodes[0].name, "emb:0");
  EXPECT_EQ(planned.nodes[1].name, "W:0");
}

TEST_F(Cli, ShowsACapturedGraph) {
  ir::GraphBuilder step("step", 4);
  const auto x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const auto w = step.variable("w", ir::contiguous({8, 4}));
  step.output(step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4})));
  step.backward();
  step.gradient(w, step.op("aten::mm", {x, x}, ir::contiguous({8, 4})));
  ir::write_graph("graph", step.finish());
  expect_shown("graph");
}

TEST_F(Cli, ShowsClustersOfEveryForm) {
  write_file_atomically("resource_spec",
                        "nodes:\n  - address: 10.0.0.1\n    gpus: [0, 1]\n    chief: true\n"
                        "  - address: 10.0.0.2\n    gpus: [0]\n    ssh_config: conf\n"
                        "    network_bandwidth: 40\n"
                        "ssh:\n  conf: {username: me, key_file: ~/.ssh/none}\n");
  expect_shown("resource_spec");
  write_file_atomically("hosts", "# two machines\na slots=2\n[fd00::2]:1\n");
  expect_shown("hosts");
  write_file_atomically("host_list", "[\"a\", \"b\"]");
  expect_shown("host_list");
}

TEST_F(Cli, ShowsMeasuredTimes) {
  write_file_atomically("runtime", "average: 0.25\nruntime: [0.24, 0.26]\n");
  expect_shown("runtime");
}

TEST_F(Cli, SaysWhatItCannotTell) {
  write_file_atomically("bytes", std::string("\x80\x81\x00\x01", 4));
  try {
    said(declare_inspect, "bytes");
    FAIL() << "shown";
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "bytes: neither a graph, a graph_item, a strategy nor a cluster, or damaged. `autodist "
        "capture` makes graphs, `autodist plan -o` strategies.");
  }
}

}  // namespace
}  // namespace autodist::app
