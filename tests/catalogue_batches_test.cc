// What a step needs and does at a batch size, whatever the batch size that it was captured at.

#include <gtest/gtest.h>

#include <string>

#include "autodist/capture/capture.h"
#include "autodist/capture/testing/models.h"
#include "autodist/ir/liveness.h"
#include "autodist/models/catalogue.h"

namespace autodist {
namespace {

ir::Graph captured_at(const std::string& name, std::int64_t batch) {
  models::ModelOptions model;
  model.batch = batch;
  capture::Options options;
  options.self_check = false;
  options.cost_repetitions = 0;
  return capture::capture_step(models::make_model(name, model), options);
}

struct Work {
  std::int64_t flops = 0;
  std::int64_t bytes_moved = 0;

  friend bool operator==(const Work& a, const Work& b) {
    return a.flops == b.flops && a.bytes_moved == b.bytes_moved;
  }
};

Work work_of(const ir::Graph& graph, std::int64_t batch) {
  Work work;
  for (const ir::Op& op : graph.ops) {
    work.flops += op.flops.at(batch);
    work.bytes_moved += op.bytes_moved.at(batch);
  }
  return work;
}

// Of 8 samples.
constexpr std::int64_t kMostActivations = std::int64_t{6} << 30;

void expect_equal_at_every_batch(const std::string& name) {
  const ir::Graph one = captured_at(name, 1);
  ASSERT_EQ(one.batch_fixed_reason, "") << name;
  // gpt2 and lm1b need more than 24 GiB to be captured at 8.
  const std::int64_t larger = activation_bytes(one, 8) > kMostActivations ? 2 : 8;
  const ir::Graph more = captured_at(name, larger);
  ASSERT_EQ(more.batch_fixed_reason, "") << name;
  for (const std::int64_t batch : {1, 2, 3, 7, 8, 16, 64, 1000}) {
    EXPECT_EQ(activation_bytes(one, batch), activation_bytes(more, batch)) << name << batch;
    EXPECT_EQ(peak_bytes(one, batch), peak_bytes(more, batch)) << name << batch;
    EXPECT_TRUE(work_of(one, batch) == work_of(more, batch)) << name << batch;
  }
  EXPECT_GT(activation_bytes(one, 1), 0) << name;
  EXPECT_GT(work_of(one, 1).flops, 0) << name;
}

class Catalogue : public testing::TestWithParam<std::string> {};

TEST_P(Catalogue, CapturedAtOneAndAtEightIsTheSameAtEveryBatch) {
  expect_equal_at_every_batch(GetParam());
}

std::vector<std::string> names(bool small) {
  std::vector<std::string> result;
  for (const models::ModelInfo& model : models::catalogue()) {
    if (model.small == small) result.push_back(model.name);
  }
  return result;
}

std::string identifier(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Small, Catalogue, testing::ValuesIn(names(true)), identifier);
INSTANTIATE_TEST_SUITE_P(SlowPublished, Catalogue, testing::ValuesIn(names(false)), identifier);

}  // namespace
}  // namespace autodist
