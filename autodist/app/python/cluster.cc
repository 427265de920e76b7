// Clusters, as they are read and as a builder sees them.

#include <pybind11/stl/filesystem.h>

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
  SourcedCluster cluster;
  static_cast<cluster::Cluster&>(cluster) = cluster::read_cluster(path);
  cluster.source = path;
  return cluster;
}

SourcedCluster parse(const std::string& text) {
  SourcedCluster cluster;
  static_cast<cluster::Cluster&>(cluster) = cluster::parse_resource_spec(text, "the text");
  return cluster;
}

std::string represent(const SourcedCluster& cluster) {
  return fmt::format("<autodist.Cluster '{}': {} nodes, {} ranks>", cluster.source,
                     cluster.nodes.size(), cluster::ranks_of(cluster).size());
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
      .def("__repr__", [](const Node& node) {
        return fmt::format("<autodist.ClusterNode '{}'>", node.address);
      });
}

}  // namespace

void bind_cluster(py::module_& module) {
  bind_node(module);
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
      .def_static("from_yaml", &parse, py::arg("text"), "The cluster that the YAML text describes.")
      .def_readonly("source", &SourcedCluster::source, "What it was read from; '' for a text.")
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
