#include "autodist/program/sums.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace autodist::program {
namespace {

const std::vector<Rank> kBoth{Rank(0), Rank(1)};

// Four variables of four elements on two ranks, two to a slice.
Program job(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& fused,
            const Slices& exchange = {}) {
  static const std::shared_ptr<const ir::Graph> kGraph = [] {
    auto graph = std::make_shared<ir::Graph>();
    ir::TensorType type;
    type.sizes = {{0, 4}};
    graph->variables.resize(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      graph->values.push_back({ir::StorageId(i), 0, ir::SlotId(0), type});
      graph->variables[i].name = std::string(1, static_cast<char>('a' + i));
      graph->variables[i].value = ir::ValueId(i);
      graph->variables[i].gradient = ir::ValueId(i);
    }
    return graph;
  }();
  Program program;
  program.graph = kGraph;
  program.ranks = {{"10.0.0.1", "10.0.0.1:CPU:0", 0}, {"10.0.0.2", "10.0.0.2:CPU:0", 1}};
  program.variables.resize(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    program.shards.push_back({ir::VariableId(i), kGraph->variables[i].name, 0, 0, 4, 4});
  }
  for (std::size_t i = 0; i < fused.size(); ++i) {
    program.slices.push_back({{{ShardId(fused[i].first), 0, 4}, {ShardId(fused[i].second), 0, 4}},
                              DType::kFloat32,
                              Rank(0),
                              Seconds{},
                              kBoth,
                              exchange});
    program.variables[fused[i].first].slices = {SliceId(i)};
    program.variables[fused[i].second].slices = {SliceId(i)};
  }
  return program;
}

Program with_clip(Program program) {
  for (VariablePlan& plan : program.variables) plan.clip = ClipId(0);
  return program;
}

Program owned_by(Program program, std::uint32_t owner) {
  for (Slice& slice : program.slices) slice.owner = Rank(owner);
  return program;
}

Slices by(const Dense& dense, UpdateAt at = UpdateAt::kOwner) { return {dense, Versions{0, at}}; }

TEST(SumDigest, IsTheSameForPlansThatAddUpInRankOrder) {
  const Digest digest = sum_digest(job({{0, 1}, {2, 3}}));
  EXPECT_EQ(sum_digest(job({{0, 2}, {1, 3}})), digest) << "other slices";
  EXPECT_EQ(sum_digest(owned_by(job({{0, 1}, {2, 3}}), 1)), digest) << "another owner";
  EXPECT_EQ(sum_digest(job({{0, 1}, {2, 3}}, by({}, UpdateAt::kEveryRank))), digest);
  EXPECT_EQ(sum_digest(job({{0, 1}, {2, 3}}, by(Dense{Route::kProxies}))), digest);
  const Dense asked{Route::kDirect, {}, {}, Delivery::kAsked};
  EXPECT_EQ(sum_digest(job({{0, 1}, {2, 3}}, by(asked))), digest);
}

TEST(SumDigest, TellsApartWhatRoundsDifferently) {
  const auto of = [](const Slices& exchange) {
    return sum_digest(job({{0, 1}, {2, 3}}, exchange));
  };
  Dense fp16;
  fp16.up = {Codec::kFp16};
  const std::vector<Digest> all{of({}),
                                of(by(fp16)),
                                of(by(Dense{Route::kRing})),
                                of(by(Dense{Route::kTree})),
                                of({Dense{}, Versions{1}}),
                                of({Dense{}, Asynchronous{}}),
                                of({Factors{}, Versions{0, UpdateAt::kEveryRank}}),
                                sum_digest(with_clip(job({{0, 1}, {2, 3}}))),
                                [] {
                                  Program shared = job({{0, 1}, {2, 3}});
                                  shared.batch_shares = {3, 1};
                                  return sum_digest(shared);
                                }()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(all[i], all[k]) << i << " and " << k;
  }
  EXPECT_NE(sum_digest(owned_by(job({{0, 1}, {2, 3}}, by(Dense{Route::kRing})), 1)),
            of(by(Dense{Route::kRing})))
      << "a ring adds from behind its owner on";
}

// The norm of a clip is added up slice by slice.
TEST(SumDigest, UnderAClipCoversWhichVariablesShareASlice) {
  const Digest one = sum_digest(with_clip(job({{0, 2}, {1, 3}})));
  EXPECT_NE(sum_digest(with_clip(job({{0, 3}, {1, 2}}))), one);
  EXPECT_EQ(sum_digest(owned_by(with_clip(job({{0, 2}, {1, 3}})), 1)), one);
}

// Elements are picked among those of the slice.
TEST(SumDigest, CoversWhichVariablesShareASliceThatIsEncodedAsOne) {
  for (const CodecTraits& traits : kCodecs) {
    if (traits.unit == EncodedUnit::kGradient) continue;
    Dense dense;
    dense.up = {traits.codec, true, 0.25};
    EXPECT_EQ(sum_digest(job({{0, 2}, {1, 3}}, by(dense))) ==
                  sum_digest(job({{0, 3}, {1, 2}}, by(dense))),
              traits.unit != EncodedUnit::kSlice)
        << traits.name;
  }
}

}  // namespace
}  // namespace autodist::program
