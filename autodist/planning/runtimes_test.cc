#include "autodist/planning/runtimes.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"

namespace autodist::planning {
namespace {

TEST(Runtimes, AreReadFromYamlAndFromOlderJson) {
  const Runtimes expected{Seconds(0.25), {Seconds(0.24), Seconds(0.26)}};
  EXPECT_EQ(parse_runtimes("average: 0.25\nruntime:\n- 0.24\n- 0.26\n", "r"), expected);
  EXPECT_EQ(parse_runtimes(R"({"average": 0.25, "runtime": [0.24, 0.26], "x": 1})", "r"), expected);
  EXPECT_EQ(parse_runtimes("runtime: [0.24, 0.26]", "r").average, Seconds(0.25));
  EXPECT_EQ(parse_runtimes("average: 1", "r"), (Runtimes{Seconds(1), {}}));
  EXPECT_EQ(parse_runtimes(to_yaml(expected), "r"), expected);
}

TEST(Runtimes, RefuseWhatAreNone) {
  for (const char* text : {"", "[1, 2]", "a: 1", "average: soon", "average: -1", "average: .nan",
                           "runtime: 3", "runtime: [[1]]", "average: {", "average: [1]"}) {
    EXPECT_THROW(parse_runtimes(text, "r"), Error) << text;
  }
}

}  // namespace
}  // namespace autodist::planning
