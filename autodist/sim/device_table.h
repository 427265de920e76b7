// Published figures of devices that are not here.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"

namespace autodist::sim {

struct DeviceRow {
  std::string kind;
  cluster::DeviceKind computes_on = cluster::DeviceKind::kGpu;
  double tflops = 0;      // float32, outside of tensor cores, at the boost clock (CPUs: base clock)
  double memory_gib = 0;  // 0: the machine's
  double memory_gb_per_s = 0;
  std::string source;
};

const std::vector<DeviceRow>& device_table();

// Case and spaces do not matter: "titan x". Throws Error(kUsage) with the nearest known kind.
const DeviceRow& find_device(const std::string& kind, const std::string& where);

}  // namespace autodist::sim
