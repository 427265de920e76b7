#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "autodist/base/check.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/program/program.h"

namespace autodist::program {
namespace {

// Two linear layers: x -> mm w -> add b -> sum; their gradients in reverse.
std::shared_ptr<const ir::Graph> linear() {
  ir::GraphBuilder step("linear", 4);
  const ir::UpdateRule sgd{ir::Rule::kSgd, {{"lr", 0.1}}, ""};
  const ir::ValueId x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const ir::ValueId w = step.variable("fc.weight", ir::contiguous({8, 4}), sgd);
  const ir::ValueId b = step.variable("fc.bias", ir::contiguous({4}), sgd);
  step.scope("fc");
  const ir::ValueId y = step.op("aten::mm", {x, w}, ir::contiguous({ir::batch(), 4}));
  const ir::ValueId z = step.op("aten::add", {y, b}, ir::contiguous({ir::batch(), 4}));
  step.scope("");
  step.output(step.op("aten::sum", {z}, ir::contiguous({})));
  step.backward();
  step.scope("fc");
  const ir::ValueId ones = step.op("aten::ones_like", {z}, ir::contiguous({ir::batch(), 4}));
  step.gradient(b, step.op("aten::sum", {ones}, ir::contiguous({4})));
  step.gradient(w, step.op("aten::mm", {x, ones}, ir::contiguous({8, 4})));
  return std::make_shared<const ir::Graph>(step.finish());
}

// fc.weight in two shards at a server and at the chief, fc.bias by a collective.
Program small_program() {
  Program program;
  program.graph = linear();
  program.ranks = {{"10.0.0.1", "10.0.0.1:CPU:0", 0},
                   {"10.0.0.2", "10.0.0.2:CPU:0", 1},
                   {"10.0.0.3", "10.0.0.3:CPU:0", std::nullopt}};
  const ir::VariableId w(0);
  const ir::VariableId b(1);
  program.shards = {{w, "fc.weight/part_0", 0, 0, 5, 20}, {w, "fc.weight/part_1", 0, 5, 8, 12}};
  const std::vector<Rank> workers{Rank(0), Rank(1)};
  program.slices = {{{{ShardId(0), 0, 16}}, DType::kFloat32, Rank(2), Seconds{0}, workers},
                    {{{ShardId(0), 16, 20}, {ShardId(1), 0, 12}},
                     DType::kFloat32,
                     Rank(0),
                     Seconds{0.0005},
                     workers}};
  program.collectives = {{{b}, DType::kFloat32, workers, "AUTO"}};
  program.variables = {{{SliceId(0), SliceId(1)}, std::nullopt, std::nullopt},
                       {{}, CollectiveId(0), std::nullopt}};
  const ir::Graph& graph = *program.graph;
  Stream compute{StreamKind::kCompute,
                 {Gate{w}, Compute{ir::OpId(0)}, Release{w}, Gate{b}, Compute{ir::OpId(1)},
                  Release{b}, Compute{ir::OpId(2)}, Compute{ir::OpId(3)}, Compute{ir::OpId(4)},
                  Contribute{b, *graph.variable(b).gradient}, Compute{ir::OpId(5)},
                  Contribute{w, *graph.variable(w).gradient}}};
  Stream collective{StreamKind::kCollective, {AllReduce{CollectiveId(0)}, Update{b}}};
  program.roles = {{workers, {compute, collective}}, {{Rank(2)}, {}}};
  return program;
}

void expect_defect(const std::function<void(Program&)>& damage, const std::string& message) {
  Program program = small_program();
  damage(program);
  try {
    verify(program);
    FAIL() << "accepted, expected: " << message;
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

std::vector<Instruction>& compute_stream(Program& program) {
  return program.roles[0].streams[0].instructions;
}

TEST(VerifyProgram, AcceptsAWholeOne) { EXPECT_NO_THROW(verify(small_program())); }

TEST(VerifyProgram, FindsSlicesThatOverlapOrLeaveElementsOut) {
  expect_defect([](Program& p) { p.slices[0].pieces[0].end = 15; },
                "slices overlap or leave elements of fc.weight/part_0 uncovered");
  expect_defect([](Program& p) { p.slices[0].pieces[0].end = 17; }, "slices overlap");
  expect_defect([](Program& p) { p.slices[1].pieces[1].end = 13; }, "[0, 13) of fc.weight/part_1");
  expect_defect(
      [](Program& p) {
        p.shards[1].begin = 4;
        p.shards[1].elements = 16;
      },
      "the shards of fc.weight do not tile it");
  expect_defect([](Program& p) { p.shards[1].elements = 13; }, "expected 12");
}

TEST(VerifyProgram, FindsPlansThatContradictTheTables) {
  expect_defect([](Program& p) { p.variables[0].slices.pop_back(); },
                "fc.weight names other slices than those that hold it");
  expect_defect([](Program& p) { p.variables[1].collective.reset(); },
                "fc.bias does not name its collective 0");
  expect_defect([](Program& p) { p.collectives.clear(); }, "fc.bias has collective 0");
  expect_defect([](Program& p) { p.slices[0].owner = Rank(3); }, "owned by 3");
  expect_defect([](Program& p) { p.slices[0].members = {Rank(1), Rank(0)}; }, "do not ascend");
  expect_defect(
      [](Program& p) {
        p.collectives.clear();
        p.variables[1].collective.reset();
        p.roles[0].streams.pop_back();
      },
      "fc.bias is trained by several replicas and synchronised by nothing");
}

TEST(VerifyProgram, FindsAnOpThatIsMissingTwiceOrTooEarly) {
  expect_defect([](Program& p) { compute_stream(p).erase(compute_stream(p).begin() + 6); },
                "op 2 (aten::sum) is missing");
  expect_defect([](Program& p) { compute_stream(p).push_back(Compute{ir::OpId(2)}); },
                "op 2 is there twice");
  expect_defect([](Program& p) { std::swap(compute_stream(p)[7], compute_stream(p)[8]); },
                "op 4 (aten::sum) runs before op 3, which it depends on");
}

TEST(VerifyProgram, FindsGatesContributionsAndReleasesInTheWrongPlace) {
  expect_defect([](Program& p) { std::swap(compute_stream(p)[0], compute_stream(p)[1]); },
                "op 0 reads fc.weight before its gate");
  expect_defect([](Program& p) { std::swap(compute_stream(p)[1], compute_stream(p)[2]); },
                "fc.weight is released before its last read");
  expect_defect([](Program& p) { std::swap(compute_stream(p)[8], compute_stream(p)[9]); },
                "fc.bias contributes before its gradient is complete");
  expect_defect([](Program& p) { compute_stream(p).pop_back(); }, "fc.weight never contributes");
}

TEST(VerifyProgram, FindsRanksWithoutARole) {
  expect_defect([](Program& p) { p.roles.pop_back(); }, "rank 2 has 0 roles");
  expect_defect([](Program& p) { p.ranks[2].replica = 2; }, "rank 2 computes without streams");
}

TEST(VerifyProgram, FindsSharesOfABatchThatAreNone) {
  expect_defect([](Program& p) { p.batch_shares = {1, 1, 1}; }, "3 shares of a batch in 2 parts");
  expect_defect([](Program& p) { p.batch_shares = {1, 0}; }, "a share of 0");
}

TEST(VerifyProgram, FindsCollectivesInAnotherOrder) {
  expect_defect(
      [](Program& p) {
        p.roles.push_back(p.roles[0]);
        p.roles[0].ranks = {Rank(0)};
        p.roles[2].ranks = {Rank(1)};
        p.roles[2].streams[1].instructions.clear();
      },
      "collectives stand in another order");
}

TEST(ProgramDigest, TellsEveryFieldApartAndRepeats) {
  const Digest whole = digest_of(small_program());
  EXPECT_EQ(whole, digest_of(small_program()));
  const std::vector<std::function<void(Program&)>> changes{
      [](Program& p) { p.ranks[1].node = "10.0.0.9"; },
      [](Program& p) { p.ranks[1].replica.reset(); },
      [](Program& p) { p.shards[0].end = 6; },
      [](Program& p) { p.slices[0].owner = Rank(1); },
      [](Program& p) { p.slices[0].needed = Seconds{1}; },
      [](Program& p) {
        p.slices[0].exchange.order = Versions{0, UpdateAt::kEveryRank};
      },
      [](Program& p) { p.slices[0].exchange.order = Versions{1}; },
      [](Program& p) { p.slices[0].exchange.order = Asynchronous{}; },
      [](Program& p) { p.slices[0].exchange.payload = Dense{Route::kRing}; },
      [](Program& p) {
        p.slices[0].exchange.payload = Dense{Route::kDirect, {Codec::kFp16}};
      },
      [](Program& p) {
        p.slices[0].exchange.payload = Dense{Route::kDirect, {}, {Codec::kFp16}};
      },
      [](Program& p) { p.slices[0].exchange.payload = Rows{RowTransfer::kFetch}; },
      [](Program& p) { p.slices[0].exchange.payload = Rows{RowTransfer::kGather}; },
      [](Program& p) { p.slices[0].exchange.payload = Factors{}; },
      [](Program& p) { p.collectives[0].exchange.codec.codec = Codec::kPowerSgd; },
      [](Program& p) { p.collectives[0].spec = "RING"; },
      [](Program& p) { p.variables[0].clip = ClipId(0); },
      [](Program& p) { std::swap(compute_stream(p)[0], compute_stream(p)[1]); },
      [](Program& p) { compute_stream(p).push_back(StepBarrier{}); },
      [](Program& p) { p.roles[0].streams[1].kind = StreamKind::kTransfer; },
      [](Program& p) {
        p.batch_shares = {3, 1};
      },
      [](Program& p) {
        p.batch_shares = {1, 3};
      },
      [](Program& p) {
        ir::Graph graph = *p.graph;
        graph.variables[0].update.options["lr"] = 0.2;
        p.graph = std::make_shared<const ir::Graph>(graph);
      },
  };
  std::vector<Digest> seen{whole};
  for (const auto& change : changes) {
    Program program = small_program();
    change(program);
    for (const Digest& other : seen) EXPECT_NE(digest_of(program), other);
    seen.push_back(digest_of(program));
  }
}

TEST(BatchParts, AreEqualOrAsTheirShares) {
  using Rows = std::pair<std::int64_t, std::int64_t>;
  Program program = small_program();
  ASSERT_EQ(program.batch_parts(), 2u);
  EXPECT_EQ(part_rows(program, 7, 0), (Rows{0, 4}));
  EXPECT_EQ(part_rows(program, 7, 1), (Rows{4, 7}));
  program.batch_shares = {3, 1};
  EXPECT_EQ(part_rows(program, 64, 0), (Rows{0, 48}));
  EXPECT_EQ(part_rows(program, 64, 1), (Rows{48, 64}));
  program.batch_shares = {1'000'000, 999'999};
  const std::int64_t large = std::int64_t{1} << 60;
  EXPECT_GT(part_rows(program, large, 0).second, large / 2);
  EXPECT_LT(part_rows(program, large, 0).second, large / 2 + large / 1'000'000);
  program.batch_shares = {3, 1};
  // Whatever the batch, each row is somebody's and nobody's twice.
  for (std::int64_t batch = 0; batch < 9; ++batch) {
    EXPECT_EQ(part_rows(program, batch, 0).first, 0);
    EXPECT_EQ(part_rows(program, batch, 0).second, part_rows(program, batch, 1).first);
    EXPECT_EQ(part_rows(program, batch, 1).second, batch);
  }
}

TEST(Reproducible, AProgramInStepWithSumsInRankOrderIsReproducible) {
  Program program = small_program();
  EXPECT_TRUE(program.in_step());
  EXPECT_FALSE(program.reproducible()) << "a library adds up fc.bias";
  program.collectives.clear();
  EXPECT_TRUE(program.reproducible());
  program.slices.front().exchange.order = Versions{1};
  EXPECT_FALSE(program.in_step());
  EXPECT_FALSE(program.reproducible());
}

TEST(ProgramDigest, CoversNoMeasuredTime) {
  Program program = small_program();
  ir::Graph graph = *program.graph;
  graph.ops[0].cost = {Seconds{1}, Seconds{2}};
  graph.peak_bytes = {1, 2};
  program.graph = std::make_shared<const ir::Graph>(graph);
  EXPECT_EQ(digest_of(program), digest_of(small_program()));
}

TEST(Instruction, IsEqualWhenKindAndFieldsAre) {
  EXPECT_EQ(Instruction(Gate{ir::VariableId(1)}), Instruction(Gate{ir::VariableId(1)}));
  EXPECT_FALSE(Instruction(Gate{ir::VariableId(1)}) == Instruction(Gate{ir::VariableId(2)}));
  EXPECT_FALSE(Instruction(Gate{ir::VariableId(1)}) == Instruction(Release{ir::VariableId(1)}));
  EXPECT_EQ(small_program().roles, small_program().roles);
}

TEST(ProgramText, ShowsTheWholeJob) {
  const Program program = small_program();
  const std::string expected = "program format=2 digest=" + to_string(digest_of(program)) +
                               R"( graph="linear" ranks=3 replicas=2

ranks:
  0  10.0.0.1:CPU:0  replica=0
  1  10.0.0.2:CPU:0  replica=1
  2  10.0.0.3:CPU:0  serves

slices:
  #0  fc.weight/part_0[0, 16)                             f32  64 B  owner=2  needed=0.0 us    members={0, 1}  dense update=owner
  #1  fc.weight/part_0[16, 20) + fc.weight/part_1[0, 12)  f32  64 B  owner=0  needed=500.0 us  members={0, 1}  dense update=owner

collectives:
  group=0  {fc.bias}  f32  spec=AUTO  members={0, 1}  library

variables:
  fc.weight  f32[8, 4]  sgd lr=0.1  slices=#0,#1  fc.weight/part_0=[0, 5) of axis 0 fc.weight/part_1=[5, 8) of axis 0
  fc.bias    f32[4]     sgd lr=0.1  group=0

role {0, 1}:
  stream compute:
    gate        fc.weight
    compute     %3 = aten::mm(%x, fc.weight)  # 0 fc fwd
    release     fc.weight
    gate        fc.bias
    compute     %4 = aten::add(%3, fc.bias)  # 1 fc fwd
    release     fc.bias
    compute     %5 = aten::sum(%4)  # 2 fwd
    compute     %6 = aten::ones_like(%4)  # 3 fc bwd
    compute     %7 = aten::sum(%6)  # 4 fc bwd
    contribute  fc.bias <- %7
    compute     %8 = aten::mm(%x, %6)  # 5 fc bwd
    contribute  fc.weight <- %8
  stream collective:
    all_reduce  group=0
    update      fc.bias

role {2}: serves
)";
  EXPECT_EQ(to_text(program), expected);
}

TEST(LossScaling, StandsInAProgramAsTheAgreementOnFiniteness) {
  Program program;
  program.roles = {{{Rank(0)}, {{StreamKind::kCompute, {StepBarrier{}}}}}};
  EXPECT_FALSE(loss_scaling_of(program));
  const ir::LossScaling scaling = ir::parse_loss_scaling("dynamic:scale=2,interval=5");
  program.roles[0].streams[0].instructions.push_back(AgreeFinite{scaling});
  EXPECT_EQ(loss_scaling_of(program), scaling);
}

}  // namespace
}  // namespace autodist::program
