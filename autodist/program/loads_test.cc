#include "autodist/program/loads.h"

#include <gtest/gtest.h>

namespace autodist::program {
namespace {

// 100 rows of 8 floats, of which each of four members touches 10.
SliceSize table() {
  SliceSize size;
  size.elements = 800;
  size.members = 4;
  size.row_elements = 8;
  size.touched_rows = 10;
  size.factor_elements = 60;
  return size;
}

Slices by_versions(const Payload& payload, UpdateAt at = UpdateAt::kOwner) {
  return {payload, Versions{0, at}};
}

constexpr Compression kHalf{Codec::kFp16};
const Compression kTopTenth{Codec::kTopK, true, 0.1};

TEST(Loads, DenseSlicesTravelWholeBothWays) {
  const Loads loads = loads_of(by_versions(Dense{}), table());
  EXPECT_EQ(loads.contribution, Bytes(3200));
  EXPECT_EQ(loads.result, Bytes(3200));
  EXPECT_EQ(loads.summed, Bytes(3200));
  EXPECT_EQ(loads.updated, Bytes(3200));
  EXPECT_EQ(loads.decoded + loads.encoded + loads.asked + loads.fetched, Bytes(0));
  EXPECT_EQ(loads.together, 4);
}

TEST(Loads, ResultsThatAreAskedForCountAsAnswers) {
  Dense dense;
  dense.delivery = Delivery::kAsked;
  const Slices exchange = by_versions(dense);
  const Loads loads = loads_of(exchange, table());
  EXPECT_EQ(loads.contribution, Bytes(3200));
  EXPECT_EQ(loads.result, Bytes(0));
  EXPECT_EQ(loads.asked, Bytes(8));
  EXPECT_EQ(loads.fetched, Bytes(3200));
  EXPECT_FALSE(keeps_whole_copies(exchange));
  EXPECT_EQ(to_string(exchange), "dense asked update=owner");
}

TEST(Loads, AveragesComeBackCompressedAndParametersDoNot) {
  const Loads parameters = loads_of(by_versions(Dense{Route::kDirect, kHalf}), table());
  EXPECT_EQ(parameters.contribution, Bytes(1600));
  EXPECT_EQ(parameters.result, Bytes(3200)) << "parameters are never compressed";
  EXPECT_EQ(parameters.decoded, Bytes(3200));
  EXPECT_EQ(parameters.encoded, Bytes(0));
  const Loads averages =
      loads_of(by_versions(Dense{Route::kDirect, kHalf, kHalf}, UpdateAt::kEveryRank), table());
  EXPECT_EQ(averages.result, Bytes(1600));
  EXPECT_EQ(averages.encoded, Bytes(3200));
  EXPECT_EQ(averages.updated, Bytes(0)) << "every rank updates";
}

TEST(Loads, ATopKAverageHasAtMostThePlacesOfAllMembers) {
  const Slices exchange =
      by_versions(Dense{Route::kDirect, kTopTenth, kTopTenth}, UpdateAt::kEveryRank);
  EXPECT_EQ(loads_of(exchange, table()).contribution, Bytes(80 * 8));
  EXPECT_EQ(loads_of(exchange, table()).result, Bytes(4 * 80 * 8));
  SliceSize many = table();
  many.members = 40;
  EXPECT_EQ(loads_of(exchange, many).result, Bytes(3200));
}

TEST(Loads, OnlyRowsThatAStepTouchesTravel) {
  const Loads fetched = loads_of(by_versions(Rows{RowTransfer::kFetch}), table());
  EXPECT_EQ(fetched.contribution, Bytes(10 * (32 + 8)));
  EXPECT_EQ(fetched.asked, Bytes(10 * 8));
  EXPECT_EQ(fetched.fetched, Bytes(10 * 32));
  EXPECT_EQ(fetched.result, Bytes(0));
  EXPECT_EQ(fetched.updated, fetched.contribution);
  const Loads returned = loads_of(by_versions(Rows{RowTransfer::kReturn}), table());
  EXPECT_EQ(returned.result, Bytes(40 * (32 + 8)));
  EXPECT_EQ(loads_of(by_versions(Rows{RowTransfer::kGather}), table()).result, Bytes(0));
  SliceSize all = table();
  all.touched_rows = 100;
  EXPECT_EQ(loads_of(by_versions(Rows{RowTransfer::kReturn}), all).contribution, Bytes(16 + 3200))
      << "a bit per row is shorter than its number";
}

TEST(Loads, FactorsTravelAsTwoMatrices) {
  const Loads loads = loads_of(by_versions(Factors{}, UpdateAt::kEveryRank), table());
  EXPECT_EQ(loads.contribution, Bytes(240));
  EXPECT_EQ(loads.result + loads.summed + loads.updated, Bytes(0));
}

TEST(Loads, AsynchronousContributionsAreAppliedOneByOne) {
  EXPECT_EQ(loads_of(Slices{Dense{}, Asynchronous{}}, table()).together, 1);
}

TEST(Loads, ALibraryReducesGradientsOrTwoFactorsWhereThesePay) {
  const Library plain{};
  EXPECT_EQ(loads_of(plain, {100, 40}).first, 4000);
  EXPECT_EQ(loads_of(plain, {100, 40}).second, 0);
  Library factors{};
  factors.codec.codec = Codec::kPowerSgd;
  factors.codec.rank = 2;
  factors.codec.error_feedback = true;
  const LibraryLoads two = loads_of(factors, {100, 4, 10});
  EXPECT_EQ(two.first, 200);
  EXPECT_EQ(two.second, 80);
  EXPECT_EQ(two.factored, 4000);
  EXPECT_EQ(two.kept, 4080);
  EXPECT_EQ(loads_of(factors, {40}).first, 40) << "a vector goes as it is";
}

TEST(Exchange, SaysWhatCopiesHoldAndHowFarTheyLag) {
  EXPECT_EQ(lag_of(Alone{}), 0U);
  EXPECT_EQ(lag_of(Slices{Dense{}, Versions{3}}), 3U);
  EXPECT_FALSE(lag_of(Slices{Dense{}, Asynchronous{}}));
  EXPECT_EQ(open_steps(Slices{Dense{}, Versions{3}}), 4U);
  EXPECT_EQ(open_steps(Slices{Dense{}, Asynchronous{}}), 1U);
  EXPECT_TRUE(keeps_whole_copies(Library{}));
  EXPECT_FALSE(keeps_whole_copies(by_versions(Rows{RowTransfer::kFetch})));
  EXPECT_TRUE(keeps_newest_copies(Library{}));
  EXPECT_TRUE(keeps_newest_copies(Slices{Dense{}, Versions{3}}));
  EXPECT_FALSE(keeps_newest_copies(Slices{Dense{}, Asynchronous{}}));
  EXPECT_FALSE(keeps_newest_copies(by_versions(Rows{RowTransfer::kFetch})));
  EXPECT_FALSE(is_lossless(by_versions(Dense{Route::kDirect, kHalf})));
  EXPECT_TRUE(is_lossless(by_versions(Factors{}, UpdateAt::kEveryRank)));
}

TEST(Exchange, SaysWhatADeviceCanMakeOfAGradient) {
  const auto cast = [](const Compression& up, DType dtype = DType::kFloat32) {
    return is_cast(by_versions(Dense{Route::kDirect, up}), dtype);
  };
  EXPECT_TRUE(cast(kHalf));
  EXPECT_TRUE(cast({Codec::kBf16}, DType::kFloat64));
  EXPECT_FALSE(cast(kHalf, DType::kFloat16)) << "nothing becomes smaller";
  EXPECT_FALSE(cast({Codec::kFp16, true})) << "what is lost is kept";
  EXPECT_FALSE(cast({Codec::kTopK, false, 0.1}));
  EXPECT_FALSE(cast({}));
  EXPECT_FALSE(is_cast(by_versions(Rows{RowTransfer::kFetch}), DType::kFloat32));
  EXPECT_FALSE(is_cast(Library{}, DType::kFloat32));
}

TEST(Exchange, SaysWhatIsSummedAndHow) {
  const Exchange rows = by_versions(Rows{RowTransfer::kReturn});
  EXPECT_FALSE(sums_all_elements(rows));
  EXPECT_FALSE(is_lossless(rows));
  EXPECT_EQ(largest_slice(rows, Bytes(100)), Bytes(kRowBlockBytes));
  const Exchange factors = by_versions(Factors{}, UpdateAt::kEveryRank);
  EXPECT_TRUE(sums_products(factors));
  for (const Exchange& each : {factors, Exchange(by_versions(Dense{})), Exchange(Library{})}) {
    EXPECT_TRUE(sums_all_elements(each)) << to_string(each);
    EXPECT_EQ(largest_slice(each, Bytes(100)), Bytes(100)) << to_string(each);
  }
  EXPECT_FALSE(sums_products(rows));
  EXPECT_TRUE(updates_on_arrival(Slices{Rows{}, Asynchronous{}}));
  EXPECT_FALSE(updates_on_arrival(Slices{Dense{}, Versions{3}}));
}

TEST(Exchange, SaysHowSlicesAreCutAndWhoPassesThemOn) {
  Dense asked;
  asked.delivery = Delivery::kAsked;
  EXPECT_TRUE(may_be_fused(by_versions(Dense{Route::kTree})));
  EXPECT_FALSE(may_be_fused(by_versions(asked)));
  EXPECT_FALSE(may_be_fused(by_versions(Rows{})));
  EXPECT_FALSE(may_be_fused(Library{}));
  EXPECT_TRUE(goes_in_slices(by_versions(Rows{})));
  EXPECT_FALSE(goes_in_slices(Library{}));
  EXPECT_FALSE(goes_in_slices(Alone{}));
  EXPECT_TRUE(is_passed_on(by_versions(Dense{Route::kProxies})));
  EXPECT_FALSE(is_passed_on(by_versions(Dense{})));
  EXPECT_FALSE(is_passed_on(by_versions(Rows{})));
}

TEST(Exchange, IsPrintedInTheTermsOfItsTypes) {
  EXPECT_EQ(to_string(by_versions(Dense{Route::kRing, kHalf, kHalf}, UpdateAt::kEveryRank)),
            "dense route=ring up=fp16 down=fp16 update=every_rank");
  EXPECT_EQ(to_string(Slices{Rows{RowTransfer::kFetch}, Asynchronous{}}),
            "rows=fetch asynchronous");
  EXPECT_EQ(to_string(Slices{Dense{}, Versions{2}}), "dense update=owner staleness=2");
  EXPECT_EQ(to_string(Library{}), "library");
  EXPECT_EQ(to_string(Alone{}), "alone");
}

}  // namespace
}  // namespace autodist::program
