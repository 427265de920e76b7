#include "autodist/ir/graph_file.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <complex>
#include <map>
#include <random>

#include "autodist/base/error.h"
#include "autodist/ir/graph.pb.h"
#include "autodist/ir/testing/random_graph.h"

namespace autodist::ir {
namespace {

TEST(GraphFile, EveryGraphComesBackEqual) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Graph graph = random_graph(random);
    graph.clips.push_back({0.5, {}});
    graph.device = "cpu";
    graph.schedule.kind = Schedule::Kind::kCosine;
    if (!graph.ops.empty() && !graph.ops[0].arguments.empty()) {
      graph.ops[0].cost = {Seconds{1e-3}, Seconds{2e-3}, {3, 4}};
    }
    if (!graph.ops.empty()) graph.ops[0].arguments.push_back(std::complex<double>{0.5, -2});
    EXPECT_EQ(deserialize(serialize(graph), "test"), graph);
  }
}

TEST(GraphFile, DamageIsRefusedInOneLineAndNeverCrashes) {
  std::mt19937 random(4);
  const std::string sound = serialize(random_graph(random));
  const auto refused = [](const std::string& bytes) {
    try {
      deserialize(bytes, "f.adg");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("PK\x03\x04"));
  for (std::size_t length = 0; length < sound.size(); length += 7) {
    EXPECT_TRUE(refused(sound.substr(0, length))) << length;
  }
  std::string newer = sound;
  newer[8] = 9;
  EXPECT_TRUE(refused(newer));
  for (int i = 0; i < 300; ++i) {
    std::string flipped = sound;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    refused(flipped);  // accepted or refused, but never a crash
  }
}

// The contents of a graph file, packed as a writer would.
std::string packed(const std::string& contents) {
  std::string bytes("ADGRAPH\0\1", 9);
  std::string body(ZSTD_compressBound(contents.size()), '\0');
  body.resize(ZSTD_compress(body.data(), body.size(), contents.data(), contents.size(), 3));
  return bytes + body;
}

std::string repeated(const std::string& field, std::size_t times) {
  std::string bytes;
  for (std::size_t i = 0; i < times; ++i) bytes += field;
  return bytes;
}

TEST(GraphFile, ASmallFileMayNotFillTheMemory) {
  proto::Graph wide;  // values that share a type of many dimensions
  wide.add_types();
  for (int i = 0; i < 100'000; ++i) wide.mutable_types(0)->add_sizes();
  for (int i = 0; i < 1000; ++i) wide.add_values();
  proto::Graph named;  // ops that share a long name
  named.add_op_names(std::string(1 << 20, 'x'));
  for (int i = 0; i < 10'000; ++i) named.add_ops();
  const std::map<std::string, std::string> files{
      {"values", repeated(std::string("\x52\0", 2), 600'000)},
      {"unknown numbers", repeated("\xf8\x07\x01", 6'000'000)},
      {"unknown groups", repeated("\xfb\x07\xfc\x07", 600'000)},
      {"types", wide.SerializeAsString()},
      {"names", named.SerializeAsString()}};
  for (const auto& [name, contents] : files) {
    const std::string bytes = packed(contents);
    EXPECT_LT(bytes.size(), 30'000U) << name;
    try {
      deserialize(bytes, "f.adg");
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("in memory, which no captured graph does"),
                std::string::npos)
          << name << ": " << error.what();
    }
  }
  const std::string zeros = packed(std::string(std::size_t{400} << 20, '\0'));
  EXPECT_THROW(deserialize(zeros, "f.adg"), Error);
}

}  // namespace
}  // namespace autodist::ir
