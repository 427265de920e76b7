// AutoDist's own integration tests, as assertions: its models under its strategies on its ten
// resource specifications, against plain libtorch on the union of what the replicas read. Ranks as
// threads, on CPUs. The default run covers every pair of case, strategy and specification; the full
// product is slow.
//
// Two of its cases are elsewhere: c9, a bound on staleness, is Staleness.CaseC9 in
// staleness_test.cc; c10, checkpoints that the chief alone writes, is in process_test.cc.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "autodist/base/file.h"
#include "autodist/search/builders/builders.h"
#include "tests/autodist_cases.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

JobPlace place_of(const std::string& file) {
  return {cluster::read_cluster(AUTODIST_SOURCE_DIR "/tests/testdata/resource_specs/" + file),
          true};
}

// AutoDist's, unchanged.
JobPlace specification(std::size_t number) {
  return place_of(fmt::format("autodist/r{}.yml", number));
}
constexpr std::size_t kSpecifications = 10;

struct Strategy {
  std::string name;
  std::string builder;
  bool rounds = false;  // gradients travel as fp16
  bool stale = false;
};

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all{
      {"PS", "PS"},
      {"PartitionedPS", "PartitionedPS:local_proxy_variable=true"},
      {"AllReduce", "AllReduce"},
      {"AllReduceHorovod", "AllReduce:compressor=HorovodCompressor", true},
      {"AllReduceHorovodEfRing", "AllReduce:all_reduce_spec=RING,compressor=HorovodCompressorEF",
       true},
      {"PSLoadBalancing", "PSLoadBalancing:local_proxy_variable=true"},
      {"Parallax", "Parallax:local_proxy_variable=true"},
      {"PartitionedAR", "PartitionedAR"},
      {"UnevenPartitionedPS", "UnevenPartitionedPS:local_proxy_variable=true"},
      {"RandomAxisPartitionAR", "RandomAxisPartitionAR:chunk_size=4"},
      {"StalePS", "PS:staleness=2", false, true},
      {"AllReduceRing", "AllReduce:all_reduce_spec=RING"},
      {"AllReduceHierarchical", "AllReduce:algorithm=hierarchical"},
      {"AllReduceSufficientFactors", "AllReduce:algorithm=sufficient_factors"},
  };
  return all;
}

struct Trained {
  Parameters parameters;
  std::vector<torch::Tensor> outputs;  // of the last rank's model
};

Trained train(const AutoDistCase& subject, const std::string& builder, const JobPlace& place,
              int steps) {
  const Places ranks = cluster::ranks_of(place.cluster, place.cpu_only);
  std::vector<TrainingStep> models;
  for (std::size_t r = 0; r < ranks.size(); ++r) models.push_back(subject.make());
  Trained trained;
  trained.parameters = run_job(
      models, builder, subject.optimizer, steps,
      [&](int step, std::uint32_t rank) { return subject.rows(step, rank, ranks); }, nullptr, 1,
      nullptr, &place);
  const torch::NoGradGuard no_grad;
  if (!subject.held_out.empty()) trained.outputs = models.back().evaluate(subject.held_out);
  return trained;
}

// Float64; sums in another order than libtorch's own reduction over the batch.
constexpr double kExact = 1e-9;
// A gradient is rounded to eleven bits on the way to its sum and again on the way back, half a unit
// (2^-11 = 0.0005) each time; in length, of the way that the parameters went.
constexpr double kRounded = 2e-3;
// A lag of two steps bends the way that the parameters go, as far as gradients change in two steps.
constexpr double kStale = 0.5;

void expect_near(const Trained& ours, const PlainResult& plain, bool rounds) {
  ASSERT_EQ(ours.parameters.size(), plain.after.size());
  const double moved = distance(plain.after, plain.before);
  ASSERT_GT(moved, 1e-3) << "nothing was trained";
  EXPECT_LE(distance(ours.parameters, plain.after), (rounds ? kRounded : kExact) * moved);
  for (std::size_t i = 0; i < plain.outputs.size(); ++i) {
    const double scale = 1 + plain.outputs[i].abs().max().item<double>();
    EXPECT_LE((ours.outputs[i] - plain.outputs[i]).abs().max().item<double>(),
              (rounds ? kRounded : kExact) * scale)
        << "evaluated";
  }
}

struct Trial {
  std::size_t subject = 0;
  std::size_t strategy = 0;
  std::size_t specification = 0;
};

class AutoDistCases : public testing::TestWithParam<Trial> {};

TEST_P(AutoDistCases, EqualPlainLibtorch) {
  const AutoDistCase& subject = autodist_cases()[GetParam().subject];
  const Strategy& strategy = strategies()[GetParam().strategy];
  const JobPlace place = specification(GetParam().specification);
  const Places ranks = cluster::ranks_of(place.cluster, true);
  if (!strategy.stale) {
    const Trained ours = train(subject, strategy.builder, place, subject.steps);
    const PlainResult plain = train_whole(subject, ranks, subject.steps);
    expect_near(ours, plain, strategy.rounds);
    if (strategy.rounds && ranks.size() > 1) {
      EXPECT_GT(distance(ours.parameters, plain.after), 1e-12) << "nothing was rounded";
    }
    return;
  }
  // The first step has nothing older to read; of the others only the direction is certain.
  expect_near(train(subject, strategy.builder, place, 1), train_whole(subject, ranks, 1), false);
  const PlainResult plain = train_whole(subject, ranks, subject.steps);
  EXPECT_LE(
      distance(train(subject, strategy.builder, place, subject.steps).parameters, plain.after),
      kStale * distance(plain.after, plain.before));
}

// Every (case, strategy), (case, specification) and (strategy, specification) stands in one of
// these.
bool is_covering(const Trial& run) {
  return run.subject == (run.strategy + run.specification) % autodist_cases().size();
}

std::vector<Trial> runs(bool covering) {
  std::vector<Trial> all;
  for (std::size_t subject = 0; subject < autodist_cases().size(); ++subject) {
    for (std::size_t strategy = 0; strategy < strategies().size(); ++strategy) {
      for (std::size_t number = 0; number < kSpecifications; ++number) {
        const Trial run{subject, strategy, number};
        if (is_covering(run) == covering) all.push_back(run);
      }
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Trial>& info) {
  return autodist_cases()[info.param.subject].name + "_" + strategies()[info.param.strategy].name +
         "_" + fmt::format("r{}", info.param.specification);
}

INSTANTIATE_TEST_SUITE_P(Covering, AutoDistCases, testing::ValuesIn(runs(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Slow, AutoDistCases, testing::ValuesIn(runs(false)), name_of);

TEST(CoveringRuns, EveryPairOfModelStrategyAndClusterIsRun) {
  std::set<std::pair<std::size_t, std::size_t>> subject_strategy;
  std::set<std::pair<std::size_t, std::size_t>> subject_place;
  std::set<std::pair<std::size_t, std::size_t>> strategy_place;
  for (const Trial& run : runs(true)) {
    subject_strategy.emplace(run.subject, run.strategy);
    subject_place.emplace(run.subject, run.specification);
    strategy_place.emplace(run.strategy, run.specification);
  }
  EXPECT_EQ(subject_strategy.size(), autodist_cases().size() * strategies().size());
  EXPECT_EQ(subject_place.size(), autodist_cases().size() * kSpecifications);
  EXPECT_EQ(strategy_place.size(), strategies().size() * kSpecifications);
}

// --- c0, AutoDist's one numeric test
// ---------------------------------------------------------------

struct Published {
  std::uint32_t seed;
  double loss, by_w, by_b;
};

// To the digits that are published.
TEST(CaseC0, HasThePublishedSamplesLossesAndGradients) {
  EXPECT_NEAR(c0_samples(123)[0][0].item<double>(), -1.08563060330056, 1e-14);
  for (const Published& expected :
       {Published{123, 9.401788, 4.231471, -4.175035}, {456, 8.934179, 3.890763, -4.055307}}) {
    const TrainingStep step = autodist_cases()[0].make();
    torch::Tensor loss = step.loss(c0_samples(expected.seed));
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected.loss, 1e-6);
    EXPECT_NEAR(step.parameters[0].tensor.grad().item<double>(), expected.by_w, 1e-6);
    EXPECT_NEAR(step.parameters[1].tensor.grad().item<double>(), expected.by_b, 1e-6);
  }
}

// d0 replicas on the first node, d1 on the second; each reads all samples of its node, and the
// average is weighted by samples (AutoDist's parameter server averages over workers).
TEST(CaseC0, HasThePublishedResultOnEverySpecification) {
  for (std::size_t number = 0; number < kSpecifications; ++number) {
    const JobPlace place = specification(number);
    int d0 = 0;
    int d1 = 0;
    for (const cluster::Place& rank : cluster::ranks_of(place.cluster, true)) {
      ++(rank.node == 0 ? d0 : d1);
    }
    const double b = 0.01 * (4.175035 * d0 + 4.055307 * d1) / (d0 + d1);
    const double w = 5 - 0.01 * (4.231471 * d0 + 3.890763 * d1) / (d0 + d1);
    for (const char* builder :
         {"PS", "PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
      if (testing_jobs::is_left_out(builder)) continue;
      const Parameters after = train(autodist_cases()[0], builder, place, 1).parameters;
      EXPECT_NEAR(after[0].item<double>(), w, 1e-7) << builder << " on r" << number;
      EXPECT_NEAR(after[1].item<double>(), b, 1e-7) << builder << " on r" << number;
    }
  }
}

// --- resource specifications
// -----------------------------------------------------------------------

std::vector<std::string> devices_of(const JobPlace& place, bool cpu_only) {
  std::vector<std::string> devices;
  for (const cluster::Place& rank : cluster::ranks_of(place.cluster, cpu_only)) {
    devices.push_back(cluster::device_name(place.cluster, rank));
  }
  return devices;
}

TEST(ResourceSpecs, HaveAutoDistsRanksInOrder) {
  using Names = std::vector<std::string>;
  const Names devices[kSpecifications] = {
      {"localhost:GPU:0", "localhost:GPU:1"},
      {"10.20.41.57:GPU:0", "10.20.41.57:GPU:1", "10.20.41.146:GPU:0", "10.20.41.146:GPU:1"},
      {"localhost:GPU:0"},
      {"10.20.41.57:GPU:0", "10.20.41.146:GPU:0"},
      {"10.20.41.57:GPU:0", "10.20.41.57:GPU:1", "10.20.41.146:GPU:0"},
      {"localhost:CPU:0", "localhost:CPU:1"},
      {"10.20.41.57:CPU:0", "10.20.41.57:CPU:1", "10.20.41.146:CPU:0", "10.20.41.146:CPU:1"},
      {"localhost:CPU:0"},
      {"10.20.41.57:CPU:0", "10.20.41.146:CPU:0"},
      {"10.20.41.57:CPU:0", "10.20.41.57:CPU:1", "10.20.41.146:CPU:0"},
  };
  for (std::size_t number = 0; number < kSpecifications; ++number) {
    const JobPlace place = specification(number);
    EXPECT_EQ(devices_of(place, false), devices[number]) << "r" << number;
    EXPECT_EQ(devices_of(place, true).size(), devices[number].size()) << "r" << number;
    EXPECT_EQ(cluster::parse_resource_spec(cluster::to_yaml(place.cluster), "again"),
              place.cluster);
  }
}

TEST(ResourceSpecs, PutTheChiefFirstAndComputeOnCpusWhereThereIsNoGpu) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(devices_of(place_of("two_by_two.yml"), false),
            (Names{"10.0.0.2:GPU:0", "10.0.0.2:GPU:1", "10.0.0.1:GPU:0", "10.0.0.1:GPU:1"}));
  EXPECT_EQ(devices_of(place_of("two_and_one.yml"), false),
            (Names{"10.0.0.1:GPU:0", "10.0.0.1:GPU:1", "10.0.0.2:GPU:0"}));
  EXPECT_EQ(devices_of(place_of("cpu_and_gpu.yml"), false),
            (Names{"10.0.0.1:GPU:0", "10.0.0.2:CPU:0", "10.0.0.2:CPU:1"}));
}

}  // namespace
}  // namespace autodist
