#include "autodist/studies/gpu_times.h"

#include <gtest/gtest.h>

#include <set>

namespace autodist::studies {
namespace {

TEST(GpuTimes, CardsCountAsFittedWhereTheyAreAmongThePublishedTrainings) {
  std::set<std::string> published;
  for (const PublishedStep& each : published_steps()) published.insert(each.device);
  published.insert("V100 32GB");  // of which some of the rows of V100 are
  for (const sim::DeviceRow& row : sim::device_table()) {
    EXPECT_EQ(row.is_fitted, published.count(row.kind) > 0) << row.kind;
  }
}

// What every GPU updates takes time, and so does what is reduced.
TEST(GpuTimes, SeveralGpusAreNoFasterThanSoManyTimesOne) {
  const std::vector<GpuTime> times = predict_published_steps();
  int compared = 0;
  for (const GpuTime& several : times) {
    for (const GpuTime& one : times) {
      const PublishedStep& a = several.published;
      const PublishedStep& b = one.published;
      const bool is_same = a.model == b.model && a.device == b.device && a.batch == b.batch &&
                           a.precision == b.precision;
      if (!is_same || a.gpus == 1 || b.gpus > 1) continue;
      ++compared;
      EXPECT_LE(several.samples_per_second, one.samples_per_second * a.gpus * 1.001)
          << a.model << " on " << a.gpus << " of " << a.device;
    }
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace autodist::studies
