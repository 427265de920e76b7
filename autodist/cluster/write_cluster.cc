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
  const auto indices = [&](const std::vector<Device>& devices) {
    out << YAML::Flow << YAML::BeginSeq;
    for (const Device& device : devices) out << device.index;
    out << YAML::EndSeq;
  };
  const auto node_map = [&](const Node& node, bool spare) {
    out << YAML::BeginMap << YAML::Key << "address" << YAML::Value << node.address;
    out << YAML::Key << "cpus" << YAML::Value;
    indices(node.cpus);
    if (!node.gpus.empty()) {
      out << YAML::Key << "gpus" << YAML::Value;
      indices(node.gpus);
    }
    if (node.chief) out << YAML::Key << "chief" << YAML::Value << true;
    if (!node.ssh_config.empty()) {
      out << YAML::Key << "ssh_config" << YAML::Value << node.ssh_config;
    }
    out << YAML::Key << "network_bandwidth" << YAML::Value
        << digits_of(node.bandwidth_bytes_per_s / kBytesPerGigabit);
    out << YAML::Key << "latency" << YAML::Value << digits_of(node.latency.value);
    out << YAML::Key << "intra_node" << YAML::Value
        << digits_of(node.intra_node_bytes_per_s / kBytesPerGigabit);
    if (node.slots > 0) out << YAML::Key << "slots" << YAML::Value << node.slots;
    if (node.price_per_hour > 0) {
      out << YAML::Key << "price" << YAML::Value << digits_of(node.price_per_hour);
    }
    if (node.role == NodeRole::kServer) out << YAML::Key << "role" << YAML::Value << "server";
    const DeviceFigures& figures = (node.gpus.empty() ? node.cpus : node.gpus).front().figures;
    if (!(figures == DeviceFigures{})) {
      out << YAML::Key << "devices" << YAML::Value << YAML::BeginMap;
      if (!figures.kind.empty()) out << YAML::Key << "kind" << YAML::Value << figures.kind;
      if (figures.tflops > 0)
        out << YAML::Key << "tflops" << YAML::Value << digits_of(figures.tflops);
      if (figures.memory.value > 0) {
        out << YAML::Key << "memory_gib" << YAML::Value
            << digits_of(static_cast<double>(figures.memory.value) / 1024 / 1024 / 1024);
      }
      if (figures.memory_bandwidth_bytes_per_s > 0) {
        out << YAML::Key << "memory_bandwidth_gb_per_s" << YAML::Value
            << digits_of(figures.memory_bandwidth_bytes_per_s / 1e9);
      }
      out << YAML::EndMap;
    }
    if (spare) out << YAML::Key << "spare" << YAML::Value << true;
    out << YAML::EndMap;
  };
  out << YAML::BeginMap << YAML::Key << "nodes" << YAML::Value << YAML::BeginSeq;
  for (const Node& node : cluster.nodes) node_map(node, false);
  for (const Node& node : cluster.spares) node_map(node, true);
  out << YAML::EndSeq;
  if (!cluster.ssh.empty()) {
    out << YAML::Key << "ssh" << YAML::Value << YAML::BeginMap;
    for (const auto& [name, config] : cluster.ssh) {
      out << YAML::Key << name << YAML::Value << YAML::BeginMap;
      out << YAML::Key << "username" << YAML::Value << config.username;
      out << YAML::Key << "port" << YAML::Value << config.port;
      out << YAML::Key << "key_file" << YAML::Value << config.key_file;
      out << YAML::Key << "python_venv" << YAML::Value << config.python_venv;
      out << YAML::Key << "shared_envs" << YAML::Value << config.shared_envs << YAML::EndMap;
    }
    out << YAML::EndMap;
  }
  if (!cluster.switches.empty()) {
    out << YAML::Key << "topology" << YAML::Value << YAML::BeginSeq;
    for (const Switch& each : cluster.switches) {
      out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << each.name;
      out << YAML::Key << "nodes" << YAML::Value << YAML::Flow << each.nodes;
      out << YAML::Key << "oversubscription" << YAML::Value << digits_of(each.oversubscription)
          << YAML::EndMap;
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace autodist::cluster
