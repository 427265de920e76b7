#include "autodist/planning/gpu_kinds.h"

#include "autodist/sim/device_table.h"

namespace autodist::planning {

void name_gpus(cluster::Node& node, const std::string& model) {
  const sim::DeviceRow* known = sim::known_device(model);
  if (known == nullptr) return;
  for (cluster::Device& gpu : node.gpus) {
    if (sim::is_assumed(gpu)) gpu.figures.kind = known->kind;
  }
}

}  // namespace autodist::planning
