#include "autodist/exec/sparse_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "autodist/base/check.h"
#include "autodist/exec/row_update.h"

namespace autodist::exec {
namespace {

const RowBlock kBlock{0, 200, 2, DType::kFloat32};

struct Values {
  std::vector<float> values;
  Rows rows;
};

// Rows whose values count from `first`.
Values numbered(std::vector<std::int64_t> numbers, float first) {
  Values made;
  for (std::size_t i = 0; i < 2 * numbers.size(); ++i) {
    made.values.push_back(first + static_cast<float>(i));
  }
  made.rows.numbers = std::move(numbers);
  made.rows.values = reinterpret_cast<const std::byte*>(made.values.data());
  return made;
}

std::vector<float> values_of(const Rows& rows) {
  std::vector<float> values(2 * rows.numbers.size());
  std::memcpy(values.data(), rows.values, values.size() * sizeof(float));
  return values;
}

TEST(SparseRows, AFewTravelAsAListOfEightBytesAndTheirValuesEach) {
  const Values few = numbered({3, 64, 199}, 1);
  const comm::Payload payload = pack_rows(kBlock, few.rows);
  EXPECT_EQ(payload.size, 3 * (8 + kBlock.row_bytes()));
  const Rows back = unpack_rows(kBlock, payload);
  EXPECT_EQ(back.numbers, few.rows.numbers);
  EXPECT_EQ(values_of(back), few.values);
}

TEST(SparseRows, MostTravelDenseWithABitEach) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < 199; ++row) numbers.push_back(row);
  const Values most = numbered(numbers, 1);
  const comm::Payload payload = pack_rows(kBlock, most.rows);
  EXPECT_EQ(payload.size, 32 + 200 * kBlock.row_bytes());
  const Rows back = unpack_rows(kBlock, payload);
  EXPECT_EQ(back.numbers, most.rows.numbers);
  EXPECT_EQ(values_of(back), most.values);
}

TEST(SparseRows, NoRowsAreNoBytes) {
  EXPECT_EQ(pack_rows(kBlock, {}).size, 0);
  EXPECT_TRUE(unpack_rows(kBlock, {}).numbers.empty());
}

TEST(SparseRows, ForeignBytesAreNoRows) {
  const Values rows = numbered({3, 64}, 1);
  const std::string good = pack_rows(kBlock, rows.rows).to_string();
  const auto unpacked = [](std::string bytes, std::size_t at, char value) {
    if (at < bytes.size()) bytes[at] = value;
    return unpack_rows(kBlock, comm::Payload::copy_of(bytes));
  };
  EXPECT_THROW(unpacked(good, 8, 2), InternalError);                        // descends
  EXPECT_THROW(unpacked(good, 8, static_cast<char>(200)), InternalError);   // beyond the block
  EXPECT_THROW(unpacked(good, 7, static_cast<char>(0x80)), InternalError);  // negative
  EXPECT_THROW(unpacked(good + "x", good.size() + 1, 0), InternalError);    // of no such size
}

TEST(SparseRows, SumsAreTheDenseOnesBits) {
  const Values a = numbered({1, 5, 7}, 0.1F);
  const Values b = numbered({5, 6}, 0.3F);
  const Rows sum = sum_rows(kBlock, {{&a.rows, 0.7}, {&b.rows, 0.3}});
  EXPECT_EQ(sum.numbers, (std::vector<std::int64_t>{1, 5, 6, 7}));
  const auto weighted = [](float x, float y) { return 0.7F * x + 0.3F * y; };
  EXPECT_EQ(values_of(sum),
            (std::vector<float>{0.7F * a.values[0], 0.7F * a.values[1],
                                weighted(a.values[2], b.values[0]),
                                weighted(a.values[3], b.values[1]), 0.3F * b.values[2],
                                0.3F * b.values[3], 0.7F * a.values[4], 0.7F * a.values[5]}));
}

TEST(SparseRows, RowsThatAreNotNamedKeepParametersAndState) {
  ir::UpdateRule rule;
  rule.rule = ir::Rule::kAdagrad;
  rule.options = {{"lr", 0.5},
                  {"lr_decay", 0},
                  {"weight_decay", 0},
                  {"eps", 0.0},
                  {"initial_accumulator_value", 0}};
  const RowBlock block{0, 3, 2, DType::kFloat32};
  std::vector<float> parameters{1, 1, 1, 1, 1, 1};
  UpdateState state(rule, 6, DType::kFloat32);
  const Values gradient = numbered({1}, 3);
  apply_rows({rule, 1, 0}, block, gradient.rows, reinterpret_cast<std::byte*>(parameters.data()),
             state);
  EXPECT_EQ(parameters, (std::vector<float>{1, 1, 0.5F, 0.5F, 1, 1}));
  const auto* sums = static_cast<const float*>(state.data(0));
  EXPECT_EQ(std::vector<float>(sums, sums + 6), (std::vector<float>{0, 0, 9, 16, 0, 0}));
}

}  // namespace
}  // namespace autodist::exec
