// The page's part on `simulate --what-if` where one value varies: what a step would take with each.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace autodist::report {

struct PageSweep {
  std::string job;                 // "vgg16 on cluster.yml by AllReduce"; empty: not known
  nlohmann::ordered_json section;  // one object, units in the names
};

// Throws Error(kUsage) for JSON that is not of `simulate --what-if … --json`.
PageSweep parse_sweep(const std::string& json, const std::string& where);

}  // namespace autodist::report
