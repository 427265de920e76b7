// Steps in several micro-batches: the gradients of all of them, weighted by samples, are those of
// the whole batch, and one contribution per variable leaves.

#include <gtest/gtest.h>

#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

struct AccumulateCase {
  std::string model;
  std::string builder;
  std::uint32_t ranks;
  std::int64_t batch;
  std::uint32_t micro_batches;
};

class Accumulate : public ::testing::TestWithParam<AccumulateCase> {};

TEST_P(Accumulate, EqualsTheWholeBatch) {
  const AccumulateCase& each = GetParam();
  if (testing_jobs::is_left_out(each.builder)) GTEST_SKIP() << "this build has no Gloo";
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < each.ranks; ++rank) {
    steps.push_back(make_step(each.model, 2));
  }
  const Parameters ours = run_job(
      steps, each.builder, optimizer_of(each.model), kSteps,
      [&](int step, std::uint32_t rank) {
        return rows_of(batch_at(each.model, step, each.batch), rank, each.ranks);
      },
      nullptr, each.micro_batches);
  const Parameters plain = train_plain(each.model, each.ranks, each.batch, sgd_of(each.model));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i], plain[i], 1e-9, 1e-12)) << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Accumulate,
    ::testing::Values(AccumulateCase{"digits", "PSLoadBalancing", 1, 12, 3},
                      AccumulateCase{"digits", "PSLoadBalancing", 2, 12, 3},
                      AccumulateCase{"digits", "AllReduce", 2, 7, 2},
                      AccumulateCase{"digits", "AllReduce:algorithm=library", 2, 12, 2},
                      AccumulateCase{"digits", "AllReduce:algorithm=library", 1, 12, 4},
                      AccumulateCase{"digits", "PS:results=asked", 2, 12, 3},
                      AccumulateCase{"digits", "PS", 2, 3, 2},
                      AccumulateCase{"digits", "PS:results=asked", 2, 3, 2},
                      AccumulateCase{"ncf-small-sparse", "PartitionedPS", 2, 12, 3}));

}  // namespace
}  // namespace autodist
