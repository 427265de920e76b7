// A cluster as the YAML of a resource specification.

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "autodist/cluster/resource_spec.h"

namespace autodist::cluster {
namespace {

// The fewest digits that are read back as the same number, which yaml-cpp does not look for.
std::string digits_of(double value) { return fmt::format("{}", value); }

}  // namespace

std::string to_yaml(const Cluster& cluster) {
  YAML::Emitter out;
  const auto put = [&](const std::string& key, const auto& value) {
    out << YAML::Key << key << YAML::Value << value;
  };
  const auto indices = [&](const char* key, const std::vector<Device>& devices) {
    out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
    for (const Device& device : devices) out << device.index;
    out << YAML::EndSeq;
  };
  const auto node_map = [&](const Node& node, bool spare) {
    out << YAML::BeginMap;
    put("address", node.address);
    indices("cpus", node.cpus);
    if (!node.gpus.empty()) indices("gpus", node.gpus);
    if (node.chief) put("chief", true);
    if (!node.ssh_config.empty()) put("ssh_config", node.ssh_config);
    put("network_bandwidth", digits_of(node.bandwidth_bytes_per_s / kBytesPerGigabit));
    put("latency", digits_of(node.latency.value));
    put("intra_node", digits_of(node.intra_node_bytes_per_s / kBytesPerGigabit));
    if (node.slots > 0) put("slots", node.slots);
    if (node.price_per_hour > 0) put("price", digits_of(node.price_per_hour));
    if (node.role == NodeRole::kServer) put("role", "server");
    const DeviceFigures& figures = (node.gpus.empty() ? node.cpus : node.gpus).front().figures;
    if (!(figures == DeviceFigures{})) {
      put("devices", YAML::BeginMap);
      if (!figures.kind.empty()) put("kind", figures.kind);
      if (figures.tflops > 0) put("tflops", digits_of(figures.tflops));
      if (figures.memory.value > 0) {
        const double bytes = static_cast<double>(figures.memory.value);
        put("memory_gib", digits_of(bytes / 1024 / 1024 / 1024));
      }
      if (figures.memory_bandwidth_bytes_per_s > 0) {
        put("memory_bandwidth_gb_per_s", digits_of(figures.memory_bandwidth_bytes_per_s / 1e9));
      }
      if (figures.tf32_tflops > 0) put("tf32_tflops", digits_of(figures.tf32_tflops));
      if (figures.half_tflops > 0) put("half_tflops", digits_of(figures.half_tflops));
      if (figures.pcie_bytes_per_s > 0) {
        put("pcie_gb_per_s", digits_of(figures.pcie_bytes_per_s / 1e9));
      }
      out << YAML::EndMap;
    }
    if (spare) put("spare", true);
    out << YAML::EndMap;
  };
  out << YAML::BeginMap;
  put("nodes", YAML::BeginSeq);
  for (const Node& node : cluster.nodes) node_map(node, false);
  for (const Node& node : cluster.spares) node_map(node, true);
  out << YAML::EndSeq;
  if (!cluster.ssh.empty()) {
    put("ssh", YAML::BeginMap);
    for (const auto& [name, config] : cluster.ssh) {
      put(name, YAML::BeginMap);
      put("username", config.username);
      put("port", config.port);
      put("key_file", config.key_file);
      put("python_venv", config.python_venv);
      put("shared_envs", config.shared_envs);
      out << YAML::EndMap;
    }
    out << YAML::EndMap;
  }
  if (!cluster.switches.empty()) {
    put("topology", YAML::BeginSeq);
    for (const Switch& each : cluster.switches) {
      out << YAML::BeginMap;
      put("name", each.name);
      out << YAML::Key << "nodes" << YAML::Value << YAML::Flow << each.nodes;
      put("oversubscription", digits_of(each.oversubscription));
      out << YAML::EndMap;
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace autodist::cluster
