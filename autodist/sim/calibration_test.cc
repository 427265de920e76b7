#include "autodist/sim/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "autodist/base/error.h"
#include "tests/outcome_of.h"

namespace autodist::sim {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_calibration(text, "c.yml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Calibration, ReadsWhatItWrites) {
  Calibration calibration;
  double share = 1;
  for (const CalibrationKey& key : calibration_keys()) {
    share *= 0.9;
    const double most = std::min(key.most, 1e3);
    calibration[key.name] = key.is_whole ? 3 : key.least + share * (most - key.least);
  }
  EXPECT_EQ(parse_calibration(to_yaml(calibration), "c.yml"), calibration);
  EXPECT_EQ(parse_calibration(to_yaml({{"cores", 2}}), "c.yml"), (Calibration{{"cores", 2}}));
}

TEST(Calibration, IsStrict) {
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(refusal(text).find(part), std::string::npos) << text << ": " << refusal(text);
  };
  expect("coers: 2", "c.yml: unknown key 'coers', one of compute_scale, cores, ");
  expect("coers: 2", "expected. Nearest: 'cores'.");
  expect("cores: 0", "c.yml: cores: '0', a whole number from 1 to 65536 expected (cores per node");
  expect("cores: 0", "Correct it, or leave the key out for its default.");
  expect("cores: 2.9", "c.yml: cores: '2.9', a whole number");
  expect("goodput: .nan", "c.yml: goodput: '.nan', a number from 0.001 to 1 expected");
  expect("goodput: 1.5", "a number from 0.001 to 1 expected");
  expect("message_seconds: -1e-6", "'-1e-6', a number of at least 0 expected");
  expect("sum_gb_per_s: .inf", "'.inf', a number of at least 1e-06 expected");
  expect("cores: 2\ncores: 4", "c.yml: the key cores stands twice. Keep one.");
  expect("[1, 2]", "c.yml: no map of keys to numbers. A line per key expected, as 'cores: 4'");
  expect("", "c.yml: no map of keys to numbers");
  expect("{a: [", ": not YAML: ");
}

TEST(Calibration, SetsCostsAndSaysWhatIsMissing) {
  CostModel costs;
  costs.devices.push_back({});
  costs.devices[0].ops = {Seconds(1), Seconds(2)};
  costs.uncalibrated = {"times on A100: roofline", kEngineRates};
  apply({{"compute_scale", 2}, {"goodput_gbit_per_s", 8}, {"sum_gb_per_s", 5}}, costs);
  EXPECT_EQ(costs.devices[0].ops[1], Seconds(4));
  EXPECT_EQ(costs.engine.goodput_bytes_per_s, 1e9);
  EXPECT_EQ(costs.engine.sum_bytes_per_s, 5e9);
  ASSERT_EQ(costs.uncalibrated.size(), 2U);
  EXPECT_EQ(costs.uncalibrated[0], "times on A100: roofline");
  EXPECT_EQ(costs.uncalibrated[1].find("sum_gb_per_s"), std::string::npos);
  EXPECT_NE(costs.uncalibrated[1].find("message_seconds"), std::string::npos);
}

TEST(Calibration, OfCoresTakesTheLineThatSaysThemAway) {
  const std::string line = std::string(kCoresOfAMachine) + ": one for each of its 4 ranks";
  CostModel costs;
  costs.uncalibrated = {line, kEngineRates};
  apply({{"sum_gb_per_s", 5}}, costs);
  ASSERT_EQ(costs.uncalibrated.size(), 2U);
  EXPECT_EQ(costs.uncalibrated[0], line);
  EXPECT_EQ(costs.uncalibrated[1].find("cores"), std::string::npos) << "said once";
  apply({{"cores", 2}}, costs);
  EXPECT_EQ(std::count(costs.uncalibrated.begin(), costs.uncalibrated.end(), line), 0);
}

// As a job measures it.
TEST(Calibration, OfALibraryAloneLeavesOneLineOfTheEngine) {
  CostModel costs;
  costs.uncalibrated = {kEngineRates};
  apply({{"collective_start_seconds", 0},
         {"collective_round_seconds", 1e-3},
         {"collective_efficiency", 0.5}},
        costs);
  EXPECT_EQ(costs.collectives.round, Seconds(1e-3));
  ASSERT_EQ(costs.uncalibrated.size(), 1U);
  EXPECT_EQ(costs.uncalibrated[0], std::string(kEngineRates) + ", collective_cpu_seconds_per_gb");
}

TEST(Calibration, IsReadFromTheFileThatWasNamedElseFromBesideTheClusters) {
  const testing_jobs::Scratch scratch;
  const std::string cluster = scratch / "c.yml";
  EXPECT_EQ(read_calibration(cluster), Calibration{});
  EXPECT_EQ(calibration_file(cluster), "");
  EXPECT_EQ(calibration_file(""), "");
  EXPECT_THROW(read_calibration(cluster, scratch / "none.yml"), Error);
  std::ofstream(scratch / "c.calibration.yml") << "cores: 2";
  std::ofstream(scratch / "other.yml") << "cores: 3";
  EXPECT_EQ(read_calibration(cluster), (Calibration{{"cores", 2}}));
  EXPECT_EQ(calibration_file(cluster), scratch / "c.calibration.yml");
  EXPECT_EQ(read_calibration(cluster, scratch / "other.yml"), (Calibration{{"cores", 3}}));
}

TEST(Calibration, LiesBesideTheClusterFile) {
  EXPECT_EQ(calibration_path("a/b.yml"), "a/b.calibration.yml");
  EXPECT_EQ(calibration_path("a.b/hosts"), "a.b/hosts.calibration.yml");
  EXPECT_EQ(calibration_path("local:2"), calibration_path("local:16")) << "it is one machine";
  EXPECT_EQ(calibration_path("local:2"), "local.calibration.yml");
}

}  // namespace
}  // namespace autodist::sim
