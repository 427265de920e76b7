// Clusters, as they are read and as a builder sees them.

#include <pybind11/stl/filesystem.h>

#include <map>
#include <optional>

#include "autodist/app/python/bindings.h"
#include "autodist/base/digest.h"

namespace autodist::python {
namespace {

std::vector<std::string> rank_names(const SourcedCluster& cluster) {
  std::vector<std::string> names;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    names.push_back(cluster::device_name(cluster, place));
  }
  return names;
}

SourcedCluster read(const std::filesystem::path& path) {
  return {cluster::read_cluster(path), path.string()};
}

SourcedCluster parse(const std::string& text) {
  return {cluster::parse_resource_spec(text, "the text"), ""};
}

// A device under AutoDist's name for it.
struct DeviceSpec {
  std::string name;
  std::string address;
  std::string kind;
  std::uint32_t index = 0;
};
using DeviceSpecs = std::vector<std::pair<std::string, DeviceSpec>>;

// "10.0.0.1:GPU:0" of an address that may hold colons.
DeviceSpec device_spec(const std::string& name) {
  const std::size_t index = name.rfind(':');
  const std::size_t kind = name.rfind(':', index - 1);
  return {name, name.substr(0, kind), name.substr(kind + 1, index - kind - 1),
          static_cast<std::uint32_t>(std::stoul(name.substr(index + 1)))};
}

DeviceSpecs cpu_devices(const SourcedCluster& cluster) {
  DeviceSpecs devices;
  for (const std::string& name : cluster::servers_of(cluster)) {
    devices.emplace_back(name, device_spec(name));
  }
  return devices;
}

DeviceSpecs gpu_devices(const SourcedCluster& cluster) {
  DeviceSpecs devices;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    for (const cluster::Device& gpu : cluster.nodes[i].gpus) {
      const std::string name = cluster::device_name(cluster, {i, gpu});
      devices.emplace_back(name, device_spec(name));
    }
  }
  return devices;
}

std::map<std::string, double> network_bandwidth(const SourcedCluster& cluster) {
  std::map<std::string, double> gigabits;
  for (const cluster::Node& node : cluster.nodes) {
    gigabits[node.address] = node.bandwidth_bytes_per_s * 8 / 1e9;
  }
  return gigabits;
}

std::map<std::string, std::optional<cluster::SshConfig>> ssh_config_map(
    const SourcedCluster& cluster) {
  std::map<std::string, std::optional<cluster::SshConfig>> configs;
  for (const cluster::Node& node : cluster.nodes) {
    const auto found = cluster.ssh.find(node.ssh_config);
    configs[node.address] =
        found == cluster.ssh.end() ? std::nullopt : std::make_optional(found->second);
  }
  return configs;
}

void bind_specs(py::module_& module) {
  py::class_<DeviceSpec>(module, "DeviceSpec", "A device of a resource specification.")
      .def_readonly("host_address", &DeviceSpec::address)
      .def_readonly("device_type", &DeviceSpec::kind, "'CPU' or 'GPU'.")
      .def_readonly("device_index", &DeviceSpec::index)
      .def("name_string", [](const DeviceSpec& device) { return device.name; })
      .def("__repr__", [](const DeviceSpec& device) {
        return fmt::format("<autodist.DeviceSpec '{}'>", device.name);
      });
  using cluster::SshConfig;
  py::class_<SshConfig>(module, "SSHConfig", "How the machines of a group are reached.")
      .def_readonly("username", &SshConfig::username)
      .def_readonly("port", &SshConfig::port)
      .def_readonly("python_venv", &SshConfig::python_venv)
      .def_readonly("key_file", &SshConfig::key_file)
      .def_readonly("env", &SshConfig::shared_envs, "What the file calls shared_envs.")
      .def("__repr__", [](const SshConfig& config) {
        return fmt::format("<autodist.SSHConfig '{}' port {}>", config.username, config.port);
      });
}

py::object represent(const SourcedCluster& cluster) {
  return text_of(fmt::format("<autodist.Cluster '{}': {} nodes, {} ranks>", cluster.source,
                             cluster.nodes.size(), cluster::ranks_of(cluster).size()));
}

void bind_node(py::module_& module) {
  using cluster::Node;
  py::class_<Node>(module, "ClusterNode", "One machine of a cluster.")
      .def_readonly("address", &Node::address, "Where it is reached: an IP address or a name.")
      .def_readonly("chief", &Node::chief, "Whether the job is started here.")
      .def_property_readonly(
          "cpus", [](const Node& node) { return node.cpus.size(); }, "Number of listed CPUs.")
      .def_property_readonly(
          "gpus", [](const Node& node) { return node.gpus.size(); }, "Number of listed GPUs.")
      .def_property_readonly(
          "serves_only", [](const Node& node) { return node.role == cluster::NodeRole::kServer; },
          "Whether it owns variables and computes nothing.")
      .def_readonly("bandwidth_bytes_per_s", &Node::bandwidth_bytes_per_s,
                    "Of its network interface.")
      .def_property_readonly(
          "latency_seconds", [](const Node& node) { return node.latency.value; },
          "Of its network interface.")
      .def_readonly("price_per_hour", &Node::price_per_hour, "0: not known.")
      .def("__repr__", [](const Node& node) {
        return fmt::format("<autodist.ClusterNode '{}'>", node.address);
      });
}

}  // namespace

void bind_cluster(py::module_& module) {
  bind_node(module);
  bind_specs(module);
  py::class_<SourcedCluster>(module, "Cluster", R"(The machines of a job.

Parameters
----------
specification : str or path
    ``local:N`` (N ranks on this machine), or the path of an AutoDist resource specification
    (YAML), of an MPI or Horovod host file, or of a JSON list of hosts.

Raises
------
UsageError
    Naming the key, what was found and what was expected.
)")
      .def(py::init(&read), py::arg("specification"))
      .def(py::init(&read), py::arg("resource_file"))
      .def_static("from_yaml", &parse, py::arg("text"), "The cluster that the YAML text describes.")
      .def_property_readonly(
          "source",
          [](const SourcedCluster& cluster) {
            return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefaultAndSize(
                cluster.source.data(), static_cast<Py_ssize_t>(cluster.source.size())));
          },
          "What it was read from; '' for a text.")
      .def_property_readonly(
          "nodes", [](const SourcedCluster& cluster) { return cluster.nodes; },
          "The machines, as in the file.")
      .def_property_readonly("ranks", &rank_names,
                             "Device of every rank, 'ADDRESS:GPU:0', in the order of ranks.")
      .def_property_readonly(
          "servers", [](const SourcedCluster& cluster) { return cluster::servers_of(cluster); },
          "Devices that may own variables: destinations of parameter servers.")
      .def_property_readonly(
          "chief", [](const SourcedCluster& cluster) { return cluster::chief_of(cluster).address; },
          "Address of the machine that the job is started on.")
      .def_property_readonly(
          "size", [](const SourcedCluster& cluster) { return cluster::ranks_of(cluster).size(); },
          "Number of ranks.")
      .def_property_readonly("cpu_devices", &cpu_devices,
                             "AutoDist's: name and DeviceSpec of what may own variables.")
      .def_property_readonly("gpu_devices", &gpu_devices,
                             "AutoDist's: name and DeviceSpec of every listed GPU.")
      .def_property_readonly(
          "num_cpus", [](const SourcedCluster& cluster) { return cpu_devices(cluster).size(); },
          "AutoDist's: how many cpu_devices there are.")
      .def_property_readonly(
          "num_gpus", [](const SourcedCluster& cluster) { return gpu_devices(cluster).size(); },
          "AutoDist's: how many gpu_devices there are.")
      .def_property_readonly("network_bandwidth", &network_bandwidth,
                             "AutoDist's: by address, in Gbit/s.")
      .def_property_readonly("ssh_config_map", &ssh_config_map,
                             "AutoDist's: by address an SSHConfig; None where the node has none.")
      .def(
          "to_yaml", [](const SourcedCluster& cluster) { return cluster::to_yaml(cluster); },
          "A resource specification that reads back to the same cluster.")
      .def_property_readonly(
          "digest",
          [](const SourcedCluster& cluster) { return to_string(cluster::shape_digest(cluster)); },
          "Of what shapes a plan: addresses, devices, links.")
      .def("__eq__",
           [](const SourcedCluster& a, const SourcedCluster& b) {
             return static_cast<const cluster::Cluster&>(a) ==
                    static_cast<const cluster::Cluster&>(b);
           })
      .def("__repr__", &represent);
}

}  // namespace autodist::python
