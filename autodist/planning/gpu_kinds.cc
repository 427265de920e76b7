#include "autodist/planning/gpu_kinds.h"

#include "autodist/base/error.h"
#include "autodist/sim/device_table.h"

namespace autodist::planning {
namespace {

// As the table calls it; "" where it does not.
std::string kind_of(const std::string& model) {
  if (model.empty()) return "";
  try {
    return sim::find_device(model, "the driver").kind;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

void name_gpus(cluster::Node& node, const std::string& model) {
  const std::string kind = kind_of(model);
  for (cluster::Device& gpu : node.gpus) {
    if (sim::is_assumed(gpu)) gpu.figures.kind = kind;
  }
}

}  // namespace autodist::planning
