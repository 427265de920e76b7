// Ten steps of every small model under every strategy on 1, 2 and 4 ranks (threads over the
// in-process transport), against plain libtorch on the union of the batches; and the same bits
// twice.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "autodist/models/catalogue.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// Float64; sums in another order than libtorch's own reduction over the batch. Ninety batch norms
// in a row over few values (twelve per channel at the end, on four ranks) amplify the last bits.
double tolerance_of(const std::string& model) { return model == "inception-small" ? 1e-8 : 1e-9; }

class EverySmallModel : public testing::TestWithParam<SmallJob> {};

TEST_P(EverySmallModel, EqualsPlainLibtorchAndItself) {
  const SmallJob& job = GetParam();
  if (testing_jobs::is_left_out(job.builder)) GTEST_SKIP() << "this build has no Gloo";
  const Parameters ours = run_job(job);
  const Parameters& plain = trained_by_sgd(job.model, job.ranks);
  ASSERT_EQ(ours.size(), plain.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = (ours[i] - plain[i]).abs().max().item<double>();
    EXPECT_LE(difference, tolerance_of(job.model) * (1 + plain[i].abs().max().item<double>()))
        << "tensor " << i;
  }
  expect_equal(ours, run_job(job), "again");
}

// The families in which every way through the engine differs; the rest has the full product under
// the label `slow`, and two ranks here.
bool is_quick(const std::string& model) {
  const std::set<std::string> quick{"digits",    "digits-norm",      "gpt-small",
                                    "ncf-small", "ncf-small-sparse", "lstm-small"};
  return quick.count(model) > 0;
}

std::vector<SmallJob> cases(bool slow) {
  std::vector<SmallJob> all;
  for (const models::ModelInfo& model : models::catalogue()) {
    if (!model.small) continue;
    for (const char* builder : {"PS", "PSLoadBalancing", "PartitionedPS", "AllReduce",
                                "PartitionedAR", "AllReduce:algorithm=library"}) {
      for (const std::uint32_t ranks : {1u, 2u, 4u}) {
        const bool is_slow = !is_quick(model.name) && ranks != 2;
        if (is_slow == slow) all.push_back({model.name, builder, ranks});
      }
    }
    if (is_quick(model.name) != slow) all.push_back({model.name, "AllReduce:update_at=owner", 2});
    // They make the same kinds of Programs; cut finely, so that small models have something to cut.
    for (const char* builder :
         {"UnevenPartitionedPS", "RandomAxisPartitionAR:chunk_size=4,seed=1",
          "Parallax:chunk_size=4", "BytePS:partition_bytes=4096", "P3:slice_parameters=300",
          "DDP-like:bucket_mib=0.02,first_bucket_mib=0.001,algorithm=library",
          "Horovod-like:fusion_mib=0.02,algorithm=library"}) {
      const bool is_slow =
          model.name != "digits" && model.name != "gpt-small" && model.name != "ncf-small-sparse";
      if (is_slow == slow) all.push_back({model.name, builder, 2});
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<SmallJob>& info) {
  std::string name =
      info.param.model + "_" + info.param.builder + "_" + std::to_string(info.param.ranks);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EverySmallModel, testing::ValuesIn(cases(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Slow, EverySmallModel, testing::ValuesIn(cases(true)), name_of);

// Batches that do not divide: 7 rows on 2 and 3 ranks, and 2 rows on 3, where one rank has none.
TEST(Training, UnevenBatchesAreWeightedBySamples) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    for (const std::int64_t batch : {std::int64_t{7}, std::int64_t{2}}) {
      for (const char* builder : {"PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
        if (testing_jobs::is_left_out(builder)) continue;
        expect_close(run_job({"digits", builder, ranks, batch}),
                     trained_by_sgd("digits", ranks, batch),
                     fmt::format("{}, {} rows on {}", builder, batch, ranks));
      }
    }
  }
}

// Wherever the owners sit, the sums are made in rank order: the bits are the same.
TEST(Training, OwnersDoNotChangeTheBits) {
  const Parameters ps = run_job({"digits", "PS"});
  for (const char* builder : {"PSLoadBalancing", "PartitionedPS", "AllReduce", "PartitionedAR"}) {
    expect_equal(run_job({"digits", builder}), ps, builder);
  }
}

}  // namespace
}  // namespace autodist
