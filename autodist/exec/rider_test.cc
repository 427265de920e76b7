#include "autodist/exec/rider.h"

#include <gtest/gtest.h>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

ir::Graph graph_of_two() {
  ir::Graph graph;
  for (const char* name : {"w", "b"}) {
    ir::Variable variable;
    variable.name = name;
    variable.update = ir::default_rule(ir::Rule::kAdam);
    graph.variables.push_back(variable);
  }
  return graph;
}

const ir::VariableId kW(0);
const ir::VariableId kB(1);

TEST(Rider, WhatIsEncodedIsDecodedAndNothingIsNoBytes) {
  const ir::Graph graph = graph_of_two();
  EXPECT_EQ(encode(Rider{}), "");
  EXPECT_EQ(encode_news(graph, {{kW, {}}}), "");
  const News news{{kW, {{{"lr", 0.1}, {"weight_decay", -0.0}}, {}}}, {kB, {{}, 12345}}};
  const Rider rider{encode_news(graph, news), {1.5, -2}, "values"};
  const Rider again = decode_rider(encode(rider));
  EXPECT_EQ(decode_news(graph, again.news), news);
  EXPECT_EQ(again.sums, rider.sums);
  EXPECT_EQ(again.values, "values");
}

TEST(Rider, DamagedBytesAreRefused) {
  const ir::Graph graph = graph_of_two();
  const std::string news = encode_news(graph, {{kB, {{{"lr", 0.1}}, 7}}});
  for (std::size_t size = 1; size < news.size(); ++size) {
    EXPECT_THROW(decode_news(graph, news.substr(0, size)), InternalError) << size;
  }
  EXPECT_THROW(decode_rider(std::string("\x01\0\0\0", 4)), InternalError);
}

TEST(Rider, RanksThatDisagreeAreNamedWithWhatTheySaid) {
  const ir::Graph graph = graph_of_two();
  const std::string slow = encode_news(graph, {{kB, {{{"lr", 0.05}}, {}}}});
  const std::string none;
  EXPECT_NO_THROW(
      check_agreement(graph, 3, {{program::Rank(0), &slow}, {program::Rank(1), &slow}}));
  try {
    check_agreement(
        graph, 3,
        {{program::Rank(0), &none}, {program::Rank(1), &slow}, {program::Rank(4), &slow}});
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(
        text.find("step 3: the ranks disagree: lr of 'b' is 0.001 at rank 0, 0.05 at rank 1, 4"),
        std::string::npos)
        << text;
  }
}

TEST(Rider, ARuleFollowsTheNews) {
  const ir::UpdateRule declared = ir::default_rule(ir::Rule::kAdam);
  const ir::UpdateRule rule = rule_by(declared, {{{"beta1", 0.5}}, {}});
  EXPECT_EQ(rule.options.at("beta1"), 0.5);
  EXPECT_EQ(rule.options.at("lr"), declared.options.at("lr"));
}

}  // namespace
}  // namespace autodist::exec
