// The page's part on a placement: what every device does, holds and carries. Its timeline is a
// trace with places (page.h).

#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::report {

struct PlacedDevice {
  std::string name;
  std::size_t tasks = 0;
  Seconds work;       // of a step
  Seconds transfers;  // of a step: while its links are busy
  Bytes memory;
  Bytes capacity;  // 0: unknown
  Bytes received;  // per step
  Bytes sent;
};

struct PagePlacement {
  std::string graph;
  std::string objective;  // "makespan", "throughput"
  Seconds value;          // what was found
  Seconds bound;          // no placement is below
  std::string found_by;
  std::uint64_t evaluations = 0;
  std::vector<PlacedDevice> devices;
  std::string about_timeline;  // how its rows came about, one sentence
};

// One JSON object, units in the names.
nlohmann::ordered_json placement_section(const PagePlacement& placement);

}  // namespace autodist::report
