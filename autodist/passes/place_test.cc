#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/passes/pipeline.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::passes {
namespace {

// Ops up to the first that touches the second layer in stage 0, and what is theirs in the backward
// pass; the rest in stage 1.
std::vector<std::uint32_t> by_layer(const ir::Graph& graph) {
  const auto touches = [&](const ir::Op& op, const char* layer) {
    bool found = false;
    ir::for_each_read(op, [&](ir::ValueId value) {
      for (const ir::Variable& variable : graph.variables) {
        found = found || (variable.name.rfind(layer, 0) == 0 &&
                          graph.value(variable.value).storage == graph.value(value).storage);
      }
    });
    return found;
  };
  std::vector<std::uint32_t> stage_of;
  std::uint32_t stage = 0;
  for (const ir::Op& op : graph.ops) {
    if (touches(op, "fc2")) stage = 1;
    stage_of.push_back(touches(op, "fc1") ? 0 : stage);
  }
  return stage_of;
}

strategy::Strategy placed(const ir::Graph& graph, const cluster::Cluster& cluster,
                          const std::vector<std::uint32_t>& stage_of) {
  strategy::Strategy strategy = plan(graph, cluster, [&](std::size_t variable) {
    const auto& use = graph.variables[variable].first_use;
    return ps(stage_of[use ? use->value : 0] == 0 ? "10.0.0.1:CPU:0" : "10.0.0.2:CPU:0");
  });
  strategy.placement =
      strategy::Placement{strategy.replicas, 2, strategy::scopes_of(graph, stage_of)};
  return strategy;
}

program::Program rewritten(const ir::Graph& graph, const strategy::Strategy& strategy,
                           std::int64_t micro_batches = 1) {
  Options options;
  options.micro_batches = micro_batches;
  return rewrite(std::make_shared<const ir::Graph>(graph), strategy, hosts(2), options,
                 "plan.strategy");
}

std::string refusal(const ir::Graph& graph, const strategy::Strategy& strategy, ErrorCode code) {
  try {
    rewritten(graph, strategy);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(Place, EveryStageHasARoleAndEveryOpAStage) {
  const ir::Graph graph = two_layers();
  const auto stage_of = by_layer(graph);
  const program::Program program = rewritten(graph, placed(graph, hosts(2), stage_of));
  EXPECT_EQ(program.stages, 2U);
  ASSERT_EQ(program.roles.size(), 2U);
  std::vector<std::uint32_t> found(graph.ops.size(), 9);
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    for (const program::Instruction& each : program.roles[stage].streams.front().instructions) {
      if (const auto* compute = std::get_if<program::Compute>(&each))
        found[compute->op.value] = stage;
    }
  }
  EXPECT_EQ(found, stage_of);
  EXPECT_FALSE(program.transfers.empty());
  for (const program::Slice& slice : program.slices) {
    EXPECT_EQ(slice.members, std::vector<program::Rank>{slice.owner});
  }
  EXPECT_EQ(program::digest_of(program),
            program::digest_of(rewritten(graph, placed(graph, hosts(2), stage_of))));
  EXPECT_NE(program::to_text(program).find("send        @0"), std::string::npos);
}

TEST(Place, MicroBatchesGoForwardFirst) {
  const ir::Graph graph = two_layers();
  const program::Program program =
      rewritten(graph, placed(graph, hosts(2), by_layer(graph)), /*micro_batches=*/3);
  for (const program::Role& role : program.roles) {
    std::vector<std::pair<ir::Phase, std::uint32_t>> order;
    for (const program::Instruction& each : role.streams.front().instructions) {
      const auto* compute = std::get_if<program::Compute>(&each);
      if (compute == nullptr) continue;
      order.emplace_back(graph.op(compute->op).phase, compute->micro_batch);
    }
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(order.back(), std::make_pair(ir::Phase::kBackward, 2U));
  }
}

// x·w and z·wᵀ in stage 0, the bias between them in stage 1: stage 0 must not sit idle while the
// other has its micro-batch.
TEST(Place, AStageThatComesAgainBeginsTheNextMicroBatchMeanwhile) {
  const ir::Graph graph = tied_layers();
  std::vector<std::uint32_t> stage_of;
  for (const ir::Op& op : graph.ops) stage_of.push_back(op.name == "aten::add" ? 1 : 0);
  const program::Program program =
      rewritten(graph, placed(graph, hosts(2), stage_of), /*micro_batches=*/3);
  std::vector<std::pair<ir::OpId, std::uint32_t>> order;  // of stage 0, forward
  for (const program::Instruction& each : program.roles[0].streams.front().instructions) {
    const auto* compute = std::get_if<program::Compute>(&each);
    if (compute == nullptr || graph.op(compute->op).phase == ir::Phase::kBackward) continue;
    order.emplace_back(compute->op, compute->micro_batch);
  }
  const auto turn = [&](std::size_t op, std::uint32_t m) {
    return std::find(order.begin(), order.end(), std::make_pair(ir::OpId(op), m)) - order.begin();
  };
  const auto loss = static_cast<std::size_t>(order.back().first.value);
  EXPECT_LT(turn(0, 1), turn(loss, 0));
  EXPECT_LT(turn(loss, 0), turn(loss, 1));
}

TEST(Place, StrategiesKeepTheirPlacement) {
  const ir::Graph graph = two_layers();
  const strategy::Strategy strategy = placed(graph, hosts(2), by_layer(graph));
  EXPECT_EQ(strategy::deserialize(strategy::serialize(strategy), "raw"), strategy);
  EXPECT_EQ(strategy::from_text(strategy::to_text(strategy), "text"), strategy);
}

TEST(Place, RefusesWhatCannotBe) {
  const ir::Graph graph = two_layers();
  const auto stage_of = by_layer(graph);
  // A matrix that is read first and last.
  const ir::Graph tied = tied_layers();
  std::vector<std::uint32_t> parted(tied.ops.size());
  parted[tied.variables.front().last_read->value] = 1;
  EXPECT_NE(refusal(tied, placed(tied, hosts(2), parted), ErrorCode::kInfeasible)
                .find("Place them together"),
            std::string::npos);
  strategy::Strategy other = placed(graph, hosts(2), stage_of);
  other.placement->scopes.front().stages.pop_back();
  EXPECT_NE(refusal(graph, other, ErrorCode::kUsage).find("not placed"), std::string::npos);
  other = placed(graph, hosts(2), stage_of);
  other.nodes.front().synchronizer = direct(0);
  EXPECT_NE(refusal(graph, other, ErrorCode::kInfeasible).find("another synchronizer"),
            std::string::npos);
  other = placed(graph, hosts(2), stage_of);
  other.nodes.front().synchronizer = ps("10.0.0.2:CPU:0");
  EXPECT_NE(refusal(graph, other, ErrorCode::kInfeasible).find("is placed on 10.0.0.1:CPU:0"),
            std::string::npos);
}

// What verify() catches: a receipt that can never end, and a value that a stage does not have.
TEST(Place, VerifyRunsTheStreams) {
  const ir::Graph graph = two_layers();
  const program::Program good = rewritten(graph, placed(graph, hosts(2), by_layer(graph)));
  const auto is = [](auto kind) {
    return [](const program::Instruction& each) {
      return std::holds_alternative<std::decay_t<decltype(kind)>>(each);
    };
  };
  program::Program stuck = good;
  auto& first = stuck.roles[0].streams.front().instructions;
  const auto receive = std::find_if(first.begin(), first.end(), is(program::Receive{}));
  ASSERT_NE(receive, first.end());
  std::rotate(first.begin(), receive, receive + 1);
  EXPECT_THROW(program::verify(stuck), InternalError);
  program::Program missing = good;
  auto& all = missing.roles[1].streams.front().instructions;
  all.erase(std::find_if(all.begin(), all.end(), is(program::Receive{})));
  EXPECT_THROW(program::verify(missing), InternalError);
}

}  // namespace
}  // namespace autodist::passes
