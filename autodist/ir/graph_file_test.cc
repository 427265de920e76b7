#include "autodist/ir/graph_file.h"

#include <gtest/gtest.h>

#include <random>

#include "autodist/base/error.h"
#include "autodist/ir/random_graph.h"

namespace autodist::ir {
namespace {

TEST(GraphFile, EveryGraphComesBackEqual) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Graph graph = random_graph(random);
    graph.clips.push_back({0.5, {}});
    graph.schedule.kind = Schedule::Kind::kCosine;
    if (!graph.ops.empty() && !graph.ops[0].arguments.empty())
      graph.ops[0].cost.fixed = Seconds{1e-3};
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

}  // namespace
}  // namespace autodist::ir
