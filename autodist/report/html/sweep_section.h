// The page's part on `simulate --what-if` where one value varies: what a step would take with each.

#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::report {

struct SweptPrediction {
  std::string value;  // of what varies
  Seconds step;
  std::int64_t samples = 0;  // of a step, all replicas
  double samples_per_second = 0;
  double efficiency = 0;      // samples/s of a replica against the first value's
  std::optional<Bytes> peak;  // of the fullest device
  std::optional<Seconds> epoch;
  std::optional<double> cost;  // at the nodes' prices: of the epoch, else of a million samples
};

struct PageSweep {
  std::string varies;         // "nodes", "bandwidth"
  std::string job;            // "vgg16 on cluster.yml by AllReduce"; empty: not known
  std::string precision;      // "float32"; empty: not known
  std::int64_t sequence = 0;  // its length; 0: the samples are none
  std::vector<SweptPrediction> predictions;
};

// Throws Error(kUsage) for JSON that is not of `simulate --what-if … --json`.
PageSweep parse_sweep(const std::string& json, const std::string& where);

// One JSON object, units in the names.
nlohmann::ordered_json sweep_section(const PageSweep& sweep);

}  // namespace autodist::report
