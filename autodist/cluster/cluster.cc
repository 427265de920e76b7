#include "autodist/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/cluster/resource_spec.h"

namespace autodist::cluster {

bool operator==(const DeviceFigures& a, const DeviceFigures& b) {
  return std::tie(a.kind, a.tflops, a.memory, a.memory_bandwidth_bytes_per_s, a.tf32_tflops,
                  a.half_tflops, a.pcie_bytes_per_s) ==
         std::tie(b.kind, b.tflops, b.memory, b.memory_bandwidth_bytes_per_s, b.tf32_tflops,
                  b.half_tflops, b.pcie_bytes_per_s);
}

bool operator==(const Device& a, const Device& b) {
  return std::tie(a.kind, a.index, a.figures) == std::tie(b.kind, b.index, b.figures);
}

bool operator==(const Node& a, const Node& b) {
  return std::tie(a.address, a.cpus, a.gpus, a.chief, a.ssh_config, a.role, a.slots,
                  a.bandwidth_bytes_per_s, a.latency, a.intra_node_bytes_per_s, a.price_per_hour) ==
         std::tie(b.address, b.cpus, b.gpus, b.chief, b.ssh_config, b.role, b.slots,
                  b.bandwidth_bytes_per_s, b.latency, b.intra_node_bytes_per_s, b.price_per_hour);
}

bool operator==(const SshConfig& a, const SshConfig& b) {
  return std::tie(a.username, a.port, a.key_file, a.python_venv, a.shared_envs) ==
         std::tie(b.username, b.port, b.key_file, b.python_venv, b.shared_envs);
}

bool operator==(const Switch& a, const Switch& b) {
  return std::tie(a.name, a.nodes, a.oversubscription) ==
         std::tie(b.name, b.nodes, b.oversubscription);
}

bool operator==(const Cluster& a, const Cluster& b) {
  return std::tie(a.nodes, a.spares, a.ssh, a.switches) ==
         std::tie(b.nodes, b.spares, b.ssh, b.switches);
}

std::string device_name(const Cluster& cluster, const Place& place) {
  return fmt::format("{}:{}:{}", cluster.nodes[place.node].address,
                     place.device.kind == DeviceKind::kGpu ? "GPU" : "CPU", place.device.index);
}

std::string address_of(const std::string& device) {
  return device.substr(0, device.rfind(':', device.rfind(':') - 1));
}

namespace {

// What computes on a node, ascending: its GPUs, or CPUs where it has none.
std::vector<Device> compute_devices(const Node& node, bool cpu_only) {
  std::vector<Device> devices = node.gpus.empty() ? node.cpus : node.gpus;
  if (node.slots > 0 && !node.gpus.empty()) {
    devices.resize(std::min<std::size_t>(devices.size(), node.slots));
  } else if (node.slots > 0) {
    // Ranks share the node's cores; each has a name of its own.
    const DeviceFigures figures = devices.front().figures;
    devices.clear();
    for (std::uint32_t i = 0; i < node.slots; ++i) {
      devices.push_back({DeviceKind::kCpu, i, figures});
    }
  }
  if (cpu_only) {
    for (Device& device : devices) device.kind = DeviceKind::kCpu;
  }
  std::sort(devices.begin(), devices.end(),
            [](const Device& a, const Device& b) { return a.index < b.index; });
  return devices;
}

}  // namespace

std::vector<Place> ranks_of(const Cluster& cluster, bool cpu_only) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (cluster.nodes[i].chief)
      order.insert(order.begin(), i);
    else
      order.push_back(i);
  }
  std::vector<Place> places;
  for (std::size_t index : order) {
    const Node& node = cluster.nodes[index];
    if (node.role == NodeRole::kServer) {
      places.push_back({index, Device{}, 0, true});
      continue;
    }
    std::uint32_t local_rank = 0;
    for (const Device& device : compute_devices(node, cpu_only)) {
      places.push_back({index, device, local_rank++, false});
    }
  }
  return places;
}

std::vector<Place> computing_ranks_of(const Cluster& cluster, bool cpu_only) {
  std::vector<Place> places = ranks_of(cluster, cpu_only);
  std::erase_if(places, [](const Place& place) { return place.serves_only; });
  return places;
}

std::vector<std::string> servers_of(const Cluster& cluster) {
  std::vector<std::string> servers;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const Node& node = cluster.nodes[i];
    const bool computes_on_cpus = node.gpus.empty() && node.role == NodeRole::kWorker;
    const std::vector<Device> devices =
        computes_on_cpus ? compute_devices(node, false) : std::vector<Device>{Device{}};
    for (const Device& device : devices) {
      servers.push_back(device_name(cluster, Place{i, device, 0, false}));
    }
  }
  return servers;
}

const Node& chief_of(const Cluster& cluster) {
  const auto chief = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                  [](const Node& node) { return node.chief; });
  AD_CHECK(chief != cluster.nodes.end()) << "a parsed cluster has a chief";
  return *chief;
}

SlowestLink slowest_link(const Cluster& cluster) {
  SlowestLink slowest;
  for (const Node& node : cluster.nodes) {
    const double rate = node.bandwidth_bytes_per_s;
    slowest.bytes_per_s = slowest.bytes_per_s > 0 ? std::min(slowest.bytes_per_s, rate) : rate;
    slowest.latency = std::max(slowest.latency, node.latency);
  }
  return slowest;
}

Digest shape_digest(const Cluster& cluster) {
  Cluster shape = cluster;
  shape.ssh.clear();
  shape.spares.clear();
  for (Node& node : shape.nodes) node.ssh_config.clear();
  return digest_of(to_yaml(shape));
}

}  // namespace autodist::cluster
