#include "autodist/program/transition.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "autodist/base/check.h"
#include "autodist/base/error.h"

namespace autodist::program {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr ir::VariableId kWide(0);    // [4, 6]
constexpr ir::VariableId kNarrow(1);  // [5]
const std::vector<Rank> kAll{Rank(0), Rank(1), Rank(2)};

std::shared_ptr<const ir::Graph> two_variables() {
  auto graph = std::make_shared<ir::Graph>();
  ir::TensorType wide;
  wide.sizes = {{0, 4}, {0, 6}};
  ir::TensorType narrow;
  narrow.sizes = {{0, 5}};
  graph->values = {{ir::StorageId(0), 0, ir::SlotId(0), wide},
                   {ir::StorageId(1), 0, ir::SlotId(0), narrow}};
  graph->variables.resize(2);
  graph->variables[0].name = "wide";
  graph->variables[1].name = "narrow";
  graph->variables[1].value = ir::ValueId(1);
  for (ir::Variable& each : graph->variables) each.gradient = each.value;
  return graph;
}

// Three ranks, two of them on one node. `wide` lies in two shards along `axis`, each a slice, at
// the owners that are named; `narrow` is one slice.
Program job(std::uint32_t axis, const std::vector<std::uint32_t>& owners,
            const Slices& exchange = {}) {
  static const std::shared_ptr<const ir::Graph> kGraph = two_variables();
  Program program;
  program.graph = kGraph;
  program.ranks = {{"10.0.0.1", "10.0.0.1:CPU:0", 0},
                   {"10.0.0.2", "10.0.0.2:CPU:0", 1},
                   {"10.0.0.2", "10.0.0.2:CPU:1", 2}};
  const std::int64_t size = axis == 0 ? 4 : 6;
  program.shards = {{kWide, "wide/part_0", axis, 0, size / 2, 12},
                    {kWide, "wide/part_1", axis, size / 2, size, 12},
                    {kNarrow, "narrow", 0, 0, 5, 5}};
  program.variables.resize(2);
  for (std::size_t i = 0; i < program.shards.size(); ++i) {
    const std::int64_t elements = program.shards[i].elements;
    program.slices.push_back({{{ShardId(i), 0, elements}},
                              DType::kFloat32,
                              Rank(owners[i]),
                              Seconds(static_cast<double>(3 - i)),
                              kAll,
                              exchange});
    program.variables[program.shards[i].variable.value].slices.emplace_back(i);
  }
  return program;
}

Slices by(const Payload& payload, UpdateAt at) { return {payload, Versions{0, at}}; }
const Slices kEveryRank = by(Dense{}, UpdateAt::kEveryRank);
const Slices kAsked = by(Dense{Route::kDirect, {}, {}, Delivery::kAsked}, UpdateAt::kOwner);

// A job without slices: a library sums both variables.
Program library(const Compression& codec = {}) {
  Program program = job(0, {0, 0, 0});
  program.slices.clear();
  program.shards.clear();
  program.collectives = {{{kWide, kNarrow}, DType::kFloat32, kAll, "AUTO", {codec}}};
  for (VariablePlan& plan : program.variables) plan = {{}, CollectiveId(0), std::nullopt};
  return program;
}

std::vector<Program> plans() {
  Slices gathered = by(Rows{RowTransfer::kGather}, UpdateAt::kOwner);
  Slices fetched = by(Rows{RowTransfer::kFetch}, UpdateAt::kOwner);
  const Compression fp16{Codec::kFp16, true};
  return {job(0, {0, 1, 2}),
          job(1, {2, 0, 1}),
          job(1, {1, 1, 1}, kEveryRank),
          job(0, {2, 2, 0}, kAsked),
          job(0, {0, 2, 1}, gathered),
          job(0, {1, 0, 0}, fetched),
          job(1, {0, 1, 2}, {Dense{}, Asynchronous{}}),
          job(0, {0, 1, 2}, by(Dense{Route::kDirect, fp16, fp16}, UpdateAt::kEveryRank)),
          library(),
          library({Codec::kPowerSgd, true, 0, 2})};
}

TEST(Transition, IsCompleteBetweenAnyTwoPlans) {
  for (const Program& from : plans()) {
    for (const Program& to : plans()) {
      EXPECT_NO_THROW(verify(transition(from, to), from, to)) << to_text(from) << to_text(to);
    }
  }
}

TEST(Transition, ToTheSamePlanMovesNothingButWhatOwnersAloneHave) {
  for (const Program& plan : plans()) {
    const bool synchronous = plan.lag().has_value();
    if (synchronous) {
      EXPECT_TRUE(transition(plan, plan).moves.empty()) << to_text(plan);
    }
    EXPECT_TRUE(transition(plan, plan).forgotten.empty());
  }
  // Copies of an asynchronous variable begin at the owner's values.
  const Program asynchronous = job(1, {0, 1, 2}, {Dense{}, Asynchronous{}});
  for (const Move& move : transition(asynchronous, asynchronous).moves) {
    EXPECT_EQ(move.state, State::kParameters);
  }
}

TEST(Transition, StateOfARuleGoesFromOwnerToOwner) {
  const Program from = job(0, {0, 1, 2});
  const Program to = job(1, {0, 1, 2});
  // Rows 0 and 1 are at rank 0, 2 and 3 at rank 1; then columns 0 to 2, and 3 to 5.
  EXPECT_EQ(to_text(transition(from, to), to),
            "rule wide 0 -> 1: [3, 6) [9, 12)\n"
            "rule wide 1 -> 0: [12, 15) [18, 21)\n");
}

TEST(Transition, WhatEveryRankHasComesFromTheSameNode) {
  // Ranks 1 and 2 share a node; `narrow` lies at rank 0 alone.
  const Program from = job(0, {0, 1, 0}, kAsked);
  const Program to = job(0, {0, 1, 0});
  EXPECT_EQ(to_text(transition(from, to), to),
            "parameters narrow 0 -> 1: [0, 5)\n"
            "parameters narrow 0 -> 2: [0, 5)\n"
            "parameters wide 0 -> 1: [0, 12)\n"
            "parameters wide 0 -> 2: [0, 12)\n"
            "parameters wide 1 -> 0: [12, 24)\n"
            "parameters wide 1 -> 2: [12, 24)\n");
  const Program whole = job(0, {2, 2, 0}, kEveryRank);
  const Program owners = job(0, {2, 2, 0});
  EXPECT_TRUE(transition(whole, owners).moves.empty()) << "every rank has all of it";
  for (const Move& move : transition(owners, whole).moves) {
    if (move.variable == kWide) {
      EXPECT_EQ(move.from, Rank(2));
    }
  }
}

TEST(Transition, WhatCompressionOwesStaysOrIsNamedWhereItHasNoPlace) {
  const Compression fp16{Codec::kFp16, true};
  const Slices encoded = by(Dense{Route::kDirect, fp16, fp16}, UpdateAt::kEveryRank);
  const Program from = job(0, {0, 0, 0}, encoded);
  EXPECT_EQ(transition(from, job(0, {0, 0, 0})).forgotten,
            (std::vector<ir::VariableId>{kWide, kNarrow}));
  const Transition moved = transition(from, job(0, {1, 0, 0}, encoded));
  EXPECT_TRUE(moved.forgotten.empty());
  EXPECT_EQ(to_text(moved, from), "owed_average wide 0 -> 1: [0, 12)\n");
}

TEST(Transition, SaysHowManyBytesGoFromRankToRank) {
  const auto bytes_of = [](const Move& move) { return Bytes(4 * element_count(move)); };
  const Program from = job(0, {0, 1, 2});
  const auto moved = bytes_between(transition(from, job(0, {0, 2, 1})), bytes_of);
  EXPECT_EQ(moved.size(), 2U);
  EXPECT_EQ(moved.at({Rank(1), Rank(2)}), Bytes(48));
  EXPECT_EQ(moved.at({Rank(2), Rank(1)}), Bytes(20));
}

TEST(Transition, IsNotBetweenJobsOfOtherRanksOrStages) {
  const Program from = job(0, {0, 1, 2});
  Program moved = from;
  moved.ranks[1].node = "10.0.0.9";
  Program placed = from;
  placed.stages = 3;
  for (const Program& to : {moved, placed}) {
    try {
      (void)transition(from, to);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInfeasible);
      EXPECT_TRUE(contains(error.what(), "a plan changes between steps of one job"))
          << error.what();
    }
  }
}

TEST(VerifyTransition, FindsPiecesThatAreMissingDoubledOrNotThere) {
  const Program from = job(0, {0, 1, 2});
  const Program to = job(1, {0, 1, 2});
  const auto expect_defect = [&](const std::function<void(Transition&)>& damage,
                                 const std::string& message) {
    Transition damaged = transition(from, to);
    damage(damaged);
    try {
      verify(damaged, from, to);
      ADD_FAILURE() << "accepted, expected: " << message;
    } catch (const InternalError& error) {
      EXPECT_TRUE(contains(error.what(), message)) << error.what();
    }
  };
  expect_defect([](Transition& t) { t.moves.pop_back(); }, "rule of wide does not come to rank 0");
  expect_defect([](Transition& t) { t.moves[0].stretches.pop_back(); }, "does not come to rank 1");
  expect_defect([](Transition& t) { t.moves.push_back(t.moves[0]); }, "comes twice to rank 1");
  expect_defect([](Transition& t) { t.moves[0].from = Rank(2); }, "which has not got it");
  expect_defect([](Transition& t) { t.moves[1].stretches[0].begin = 11; }, "which has not got it");
}

TEST(Gathering, BringsToOneRankWhatOthersHave) {
  const Program program = job(0, {0, 1, 2});
  const Transition all = gathering(program, State::kRule, Rank(0));
  EXPECT_EQ(to_text(all, program),
            "rule wide 1 -> 0: [12, 24)\n"
            "rule narrow 2 -> 0: [0, 5)\n");
  EXPECT_TRUE(gathering(job(0, {2, 2, 2}, kEveryRank), State::kRule, Rank(0)).moves.empty());
}

TEST(Holders, TheExchangeSaysWhichRanksHoldASlicesState) {
  const auto of = [](const Slices& exchange, State state) {
    return holders_of(job(0, {1, 1, 1}, exchange).slices.front(), state);
  };
  const std::vector<Rank> owner{Rank(1)};
  EXPECT_EQ(of({}, State::kRule), owner);
  EXPECT_EQ(of({}, State::kParameters), kAll);
  EXPECT_EQ(of(kAsked, State::kParameters), owner);
  EXPECT_EQ(of({Dense{}, Asynchronous{}}, State::kParameters), owner);
  EXPECT_EQ(of(kEveryRank, State::kRule), kAll);
  EXPECT_TRUE(of({}, State::kOwed).empty());
  for (const UpdateAt at : kUpdatePlaces) {
    const Compression codec{Codec::kFp16, true};
    const bool averages = at == UpdateAt::kEveryRank;
    const Slices encoded = by(Dense{Route::kDirect, codec, averages ? codec : Compression{}}, at);
    EXPECT_EQ(of(encoded, State::kOwed), kAll);
    EXPECT_EQ(of(encoded, State::kOwedAverage), averages ? owner : std::vector<Rank>{});
  }
}

}  // namespace
}  // namespace autodist::program
