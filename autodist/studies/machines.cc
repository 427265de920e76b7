#include "autodist/studies/machines.h"

#include <fmt/format.h>

namespace autodist::studies {

cluster::Cluster machines(std::uint32_t count, double bytes_per_s, Seconds latency) {
  cluster::Cluster cluster;
  for (std::uint32_t i = 0; i < count; ++i) {
    cluster::Node node;
    node.address = fmt::format("10.{}.{}.{}", i / 40'000, i / 200 % 200, i % 200 + 1);
    node.cpus = {cluster::Device{}};
    node.chief = i == 0;
    node.bandwidth_bytes_per_s = bytes_per_s;
    node.bandwidth_is_stated = true;
    node.latency = latency;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

void add_gpus(cluster::Node& node, int count, const std::string& kind) {
  for (int i = 0; i < count; ++i) {
    cluster::Device gpu;
    gpu.kind = cluster::DeviceKind::kGpu;
    gpu.index = static_cast<std::uint32_t>(i);
    gpu.figures.kind = kind;
    node.gpus.push_back(gpu);
  }
}

}  // namespace autodist::studies
