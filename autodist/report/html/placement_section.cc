#include "autodist/report/html/placement_section.h"

#include <nlohmann/json.hpp>

namespace autodist::report {

nlohmann::ordered_json placement_section(const PagePlacement& placement) {
  using Json = nlohmann::ordered_json;
  Json devices = Json::array();
  for (const PlacedDevice& each : placement.devices) {
    devices.push_back({{"name", each.name},
                       {"tasks", each.tasks},
                       {"work_seconds", each.work.value},
                       {"transfer_seconds", each.transfers.value},
                       {"memory_bytes", each.memory.value},
                       {"capacity_bytes", each.capacity.value},
                       {"received_bytes", each.received.value},
                       {"sent_bytes", each.sent.value}});
  }
  return {{"graph", placement.graph},
          {"objective", placement.objective},
          {"value_seconds", placement.value.value},
          {"bound_seconds", placement.bound.value},
          {"found_by", placement.found_by},
          {"evaluations", placement.evaluations},
          {"about_timeline", placement.about_timeline},
          {"devices", std::move(devices)}};
}

}  // namespace autodist::report
