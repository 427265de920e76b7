// Steps in several micro-batches: the gradients of all of them, weighted by samples, are those of
// the whole batch, and one contribution per variable leaves.

#include <gtest/gtest.h>

#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

class Accumulate : public ::testing::TestWithParam<SmallJob> {};

TEST_P(Accumulate, EqualsTheWholeBatch) {
  SmallJob job = GetParam();
  if (testing_jobs::is_left_out(job.builder)) GTEST_SKIP() << "this build has no Gloo";
  job.example_rows = 2;
  expect_close(run_job(job), trained_by_sgd(job.model, job.ranks, job.batch), job.builder, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    , Accumulate,
    ::testing::Values(SmallJob{"digits", "PSLoadBalancing", 1, 12, 3},
                      SmallJob{"digits", "PSLoadBalancing", 2, 12, 3},
                      SmallJob{"digits", "AllReduce", 2, 7, 2},
                      SmallJob{"digits", "AllReduce:algorithm=library", 2, 12, 2},
                      SmallJob{"digits", "AllReduce:algorithm=library", 1, 12, 4},
                      SmallJob{"digits", "PS:results=asked", 2, 12, 3},
                      SmallJob{"digits", "PS", 2, 3, 2},
                      SmallJob{"digits", "PS:results=asked", 2, 3, 2},
                      SmallJob{"ncf-small-sparse", "PartitionedPS", 2, 12, 3}));

}  // namespace
}  // namespace autodist
