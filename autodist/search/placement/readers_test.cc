// Readers of published graphs: what they take, and what they refuse in one line.

#include "autodist/search/placement/readers.h"

#include <gtest/gtest.h>

#include <random>

#include "autodist/base/error.h"
#include "autodist/ir/testing/random_graph.h"
#include "autodist/search/placement/from_graph.h"
#include "autodist/search/placement/generators.h"
#include "autodist/search/placement/gzip.h"

namespace autodist::search::placement {
namespace {

const char* const kThroughput = R"({"maxSizePerFPGA": 8, "maxFPGAs": 2, "maxCPUs": 1,
  "nodes": [{"id": 7, "name": "a", "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1,
             "isBackwardNode": 0, "colorClass": 40, "size": 3},
            {"id": 9, "supportedOnFpga": false, "cpuLatency": 5, "fpgaLatency": 0,
             "isBackwardNode": true, "colorClass": 40}],
  "edges": [{"sourceId": 7, "destId": 9, "cost": 0.5, "size": 2}]})";

TEST(Readers, ThroughputJson) {
  const TaskGraph graph = parse_task_graph(kThroughput, "folder/net.json.gz");
  EXPECT_EQ(graph.name, "net");
  ASSERT_EQ(graph.tasks.size(), 2u);
  EXPECT_EQ(graph.stated, (StatedDevices{2, 1, 8}));
  EXPECT_EQ(graph.tasks[0].cost, 1);
  EXPECT_EQ(graph.tasks[0].colour, graph.tasks[1].colour);
  EXPECT_EQ(graph.tasks[0].outputs[0], (TaskOutput{2, 0.5}));
  EXPECT_EQ(graph.tasks[1].cost, kNotSupported);
  EXPECT_EQ(graph.tasks[1].name, "9");
  EXPECT_TRUE(graph.tasks[1].backward);
}

TEST(Readers, PipedreamTextWithBackwardTasks) {
  const std::string text =
      "node1 -- Conv2d(3, 64) -- forward_compute_time=1.5, backward_compute_time=2.000, "
      "activation_size=100.000, parameter_size=40.000\n"
      "node2 -- LSTM(4) -- forward_compute_time=1, backward_compute_time=3, "
      "activation_size=[10.0; 20.0], parameter_size=0.000\n"
      "\tnode1 -- node2\n";
  const TaskGraph graph = parse_task_graph(text, "net.txt");
  ASSERT_EQ(graph.tasks.size(), 4u);
  EXPECT_EQ(graph.tasks[0].cost, 1500);
  EXPECT_EQ(graph.tasks[0].memory, 40);
  EXPECT_EQ(graph.tasks[1].outputs[0].bytes, 30);
  EXPECT_EQ(graph.tasks[2].name, "b_node1");
  EXPECT_EQ(graph.tasks[2].inputs, (std::vector<TaskInput>{{TaskId(0), 0}, {TaskId(3), 0}}));
}

TEST(Readers, StandardTaskGraph) {
  const TaskGraph graph = parse_task_graph("1\n 0 0 0\n 1 5 1 0\n 2 0 1 1\n# comment", "r.stg");
  ASSERT_EQ(graph.tasks.size(), 3u);
  EXPECT_EQ(graph.tasks[1].cost, 5);
}

TEST(Readers, WhatIsWrongIsRefusedInOneLine) {
  for (const std::string text :
       {"", "   ", "{", "{}", "hello", "3\n0 0", "1\n0 0 0\n1 5 1 9\n2 0 0", "99999999999",
        "1\n0 0 1 2\n1 1 1 0\n2 0 1 1",  // a circle
        R"({"maxFPGAs": 1, "maxSizePerFPGA": 1, "nodes": [], "edges": []})",
        R"({"maxFPGAs": 1, "maxSizePerFPGA": 1, "nodes": [{"id": 1}], "edges": []})",
        R"({"graph_def": [{"name": "a", "input": ["b"]}], "cost_us": {"a": 1},
            "output_bytes": {"a": [1]}})",
        R"({"graph_def": [{"name": "a", "input": []}, {"name": "b", "input": ["a:5"]}],
            "cost_us": {"a": 1, "b": 1}, "output_bytes": {"a": [1], "b": [1]}})",
        "a -- b\n", "node1 -- X -- forward_compute_time=1\n", "\tnode1 -- node2 -- \n"}) {
    try {
      parse_task_graph(text, "file");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("file", 0), 0u) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Readers, NegativeCostsAreRefused) {
  std::string text = kThroughput;
  text.replace(text.find("\"fpgaLatency\": 1"), 16, "\"fpgaLatency\": -1");
  EXPECT_THROW(parse_task_graph(text, "file"), Error);
}

TEST(Readers, DamagedGzipIsRefused) {
  EXPECT_THROW(gunzip(std::string("\x1f\x8b\x08\x00 damaged", 12), "file"), Error);
}

TEST(Generators, EveryFamilyMakesLargeGraphsThatDifferBySeed) {
  for (const std::string& family : families()) {
    for (std::uint64_t seed = 0; seed < 32; ++seed) {
      const TaskGraph graph = generate(family, seed);
      EXPECT_GT(graph.tasks.size(), 150u) << graph.name;
      EXPECT_LT(graph.tasks.size(), 450u) << graph.name;
      EXPECT_EQ(graph, generate(family, seed));
      EXPECT_NE(graph.tasks, generate(family, seed + 1).tasks);
    }
  }
  EXPECT_THROW(generate("cels", 0), Error);
}

TEST(Readers, EveryCapturedGraphIsATaskGraph) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const ir::Graph graph = ir::random_graph(random);
    const TaskGraph tasks = task_graph_of(graph, 4);
    EXPECT_EQ(tasks.tasks.size(), graph.ops.size());
  }
}

}  // namespace
}  // namespace autodist::search::placement
