// Strategies: read, written, and changed node by node.

#include <pybind11/stl/filesystem.h>
#include <pybind11/stl_bind.h>

#include <optional>

#include "autodist/app/python/bindings.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/ir/graph.h"

namespace autodist::python {
namespace {

using strategy::AllReduceSynchronizer;
using strategy::NodeConfig;
using strategy::PsSynchronizer;
using strategy::Strategy;
using Nodes = std::vector<NodeConfig>;

// What a codec would leave without effect.
void expect_codec(bool is_given, const char* argument, const std::string& codec,
                  const std::string& wanted) {
  if (!is_given) return;
  fail(ErrorCode::kUsage, "{} is of {}, and codec='{}' has none. Name that codec, or leave it out.",
       argument, wanted, codec);
}

program::Compression compression(const std::string& codec, bool error_feedback, double density,
                                 std::int32_t rank = 0) {
  std::vector<std::string> names;
  for (const program::CodecTraits& known : program::kCodecs) {
    if (codec == known.name) {
      expect_codec(density != 0 && codec != "topk", "density", codec, "codec='topk'");
      expect_codec(rank != 0 && codec != "powersgd", "rank", codec, "codec='powersgd'");
      expect_codec(error_feedback && codec.empty(), "error_feedback", codec, "a codec");
      return {known.codec, error_feedback, density, rank};
    }
    if (*known.name != 0) names.push_back(fmt::format("'{}'", known.name));
  }
  fail(ErrorCode::kUsage, "codec '{}', one of {}, or '' for no codec, expected", codec,
       fmt::join(names, ", "));
}

strategy::AllReduceAlgorithm algorithm_named(const std::string& name) {
  std::vector<std::string> names;
  for (const strategy::AllReduceAlgorithm algorithm : strategy::kAllReduceAlgorithms) {
    names.push_back(name_of(algorithm));
    if (name == names.back()) return algorithm;
  }
  fail(ErrorCode::kUsage, "algorithm '{}', one of {} expected{}", name, fmt::join(names, ", "),
       nearest_hint(name, names));
}

std::string compression_text(const strategy::Synchronizer& synchronizer) {
  return program::to_string(strategy::compression_of(synchronizer));
}

NodeConfig& node_named(Strategy& strategy, const std::string& name) {
  std::vector<std::string> names;
  for (NodeConfig& node : strategy.nodes) {
    const std::string variable = strategy::variable_name(node.name);
    if (node.name == name || variable == name) return node;
    names.push_back(variable);
  }
  fail(ErrorCode::kUsage, "the strategy has no node '{}'.{}", name, did_you_mean(name, names));
}

Strategy of_bytes(const py::bytes& bytes) { return strategy::deserialize(bytes, "the bytes"); }
Strategy of_file(const std::filesystem::path& path) { return strategy::read_strategy(path); }

py::bytes strategy_bytes(const Strategy& strategy,
                         const std::optional<std::filesystem::path>& path) {
  const std::string bytes = strategy::serialize(strategy);
  if (path) write_file_atomically(*path, bytes);
  return py::bytes(bytes);
}

void bind_synchronizers(py::module_& module) {
  py::class_<PsSynchronizer>(module, "PSSynchronizer", R"(A variable on a parameter server.

Parameters
----------
reduction_destination : str
    Device that owns it, one of ``Cluster.servers``.
local_replication : bool
    Kept for AutoDist's files; workers always have a copy.
sync : bool
    False: contributions are applied as they come.
staleness : int
    Steps by which a worker may run ahead.
codec : str
    '' (none), 'fp16', 'bf16' or 'topk': how gradients travel.
error_feedback : bool
    Add what the codec loses to the next gradient.
density : float
    Of 'topk': share of the elements that leave.
)")
      .def(py::init([](std::string destination, bool replication, bool sync, std::int32_t staleness,
                       const std::string& codec, bool feedback, double density) {
             return PsSynchronizer{std::move(destination), replication, sync, staleness,
                                   compression(codec, feedback, density)};
           }),
           py::arg("reduction_destination"), py::kw_only(), py::arg("local_replication") = false,
           py::arg("sync") = true, py::arg("staleness") = 0, py::arg("codec") = "",
           py::arg("error_feedback") = false, py::arg("density") = 0.0)
      .def_readonly("reduction_destination", &PsSynchronizer::reduction_destination)
      .def_readonly("local_replication", &PsSynchronizer::local_replication)
      .def_readonly("sync", &PsSynchronizer::sync)
      .def_readonly("staleness", &PsSynchronizer::staleness)
      .def_property_readonly("compression",
                             [](const PsSynchronizer& ps) { return compression_text(ps); })
      .def("__eq__", [](const PsSynchronizer& a, const PsSynchronizer& b) { return a == b; })
      .def("__repr__", [](const PsSynchronizer& ps) {
        return fmt::format("PSSynchronizer('{}', sync={}, staleness={})", ps.reduction_destination,
                           ps.sync ? "True" : "False", ps.staleness);
      });
  py::class_<AllReduceSynchronizer>(module, "AllReduceSynchronizer",
                                    R"(A variable that is all-reduced.

Parameters
----------
group : int
    Variables of one group travel together.
codec, error_feedback, density
    As those of PSSynchronizer; and 'powersgd', whose ``rank`` is the columns of a factor.
algorithm : str
    'by_spec', 'direct', 'library', 'ring', 'tree', 'hierarchical' or 'sufficient_factors'.
)")
      .def(py::init([](std::int32_t group, const std::string& codec, bool feedback, double density,
                       std::int32_t rank, const std::string& algorithm) {
             AllReduceSynchronizer all_reduce;
             all_reduce.group = group;
             all_reduce.compression = compression(codec, feedback, density, rank);
             all_reduce.algorithm = algorithm_named(algorithm);
             return all_reduce;
           }),
           py::kw_only(), py::arg("group") = 0, py::arg("codec") = "",
           py::arg("error_feedback") = false, py::arg("density") = 0.0, py::arg("rank") = 0,
           py::arg("algorithm") = "by_spec")
      .def_readonly("group", &AllReduceSynchronizer::group)
      .def_property_readonly(
          "algorithm",
          [](const AllReduceSynchronizer& all_reduce) { return name_of(all_reduce.algorithm); })
      .def_property_readonly(
          "compression",
          [](const AllReduceSynchronizer& all_reduce) { return compression_text(all_reduce); })
      .def("__eq__",
           [](const AllReduceSynchronizer& a, const AllReduceSynchronizer& b) { return a == b; })
      .def("__repr__", [](const AllReduceSynchronizer& all_reduce) {
        return fmt::format("AllReduceSynchronizer(group={})", all_reduce.group);
      });
}

void bind_nodes(py::module_& module) {
  py::class_<NodeConfig>(module, "StrategyNode",
                         "How one variable, or one shard of it, is synchronised.")
      .def(py::init(
               [](std::string name, strategy::Synchronizer synchronizer, std::string partitioner) {
                 NodeConfig node;
                 node.name = std::move(name);
                 node.synchronizer = std::move(synchronizer);
                 node.partitioner = std::move(partitioner);
                 return node;
               }),
           py::arg("name"), py::arg("synchronizer") = py::none(), py::arg("partitioner") = "")
      .def_readwrite("name", &NodeConfig::name, "'fc1.weight:0'; of a shard 'fc1.weight/part_0:0'.")
      .def_readwrite(
          "synchronizer", &NodeConfig::synchronizer,
          "A PSSynchronizer or AllReduceSynchronizer; None where the shards have theirs. "
          "Assign another one to change it.")
      .def_readwrite("partitioner", &NodeConfig::partitioner,
                     "Shards per axis, '2,1'; '' for one piece.")
      .def_readwrite("parts", &NodeConfig::parts, "The shards.")
      .def_property_readonly(
          "variable", [](const NodeConfig& node) { return strategy::variable_name(node.name); },
          "Its name in the model.")
      .def("__eq__", [](const NodeConfig& a, const NodeConfig& b) { return a == b; })
      .def("__repr__", [](const NodeConfig& node) {
        return fmt::format("<autodist.StrategyNode '{}'>", node.name);
      });
  py::bind_vector<Nodes>(module, "StrategyNodes", "A list of nodes, changed in place.");
  py::implicitly_convertible<py::list, Nodes>();
}

}  // namespace

void bind_strategy(py::module_& module) {
  bind_synchronizers(module);
  bind_nodes(module);
  py::class_<Strategy>(module, "Strategy",
                       "How every variable of a model is synchronised on a cluster.\n\n"
                       "Files are AutoDist's own: a protobuf, or its text form.")
      .def(py::init<>())
      .def_readwrite("id", &Strategy::id, "Of the time when it was made; set by the job if ''.")
      .def_readwrite("nodes", &Strategy::nodes, "One per variable.")
      .def_readwrite("replicas", &Strategy::replicas, "Devices that compute.")
      .def_readwrite("batch_shares", &Strategy::batch_shares,
                     "What part of a batch each of them computes, in relation to the others; "
                     "empty: parts are equal.")
      .def("node", &node_named, py::arg("name"), py::return_value_policy::reference_internal,
           "The node of that variable, to be read or changed.")
      .def("serialize", &strategy_bytes, py::arg("path") = py::none(),
           "The protobuf's bytes; written to `path`, too, where it is given.")
      .def_static("deserialize", &of_bytes, py::arg("source"), "From the protobuf's bytes.")
      .def_static("deserialize", &of_file, py::arg("source"), "From a file in either form.")
      .def_static("deserialize", &of_file, py::arg("path"), "As AutoDist has it.")
      .def(
          "to_text", [](const Strategy& strategy) { return strategy::to_text(strategy); },
          "Protobuf's text form.")
      .def_static(
          "from_text",
          [](const std::string& text) { return strategy::from_text(text, "the text"); },
          py::arg("text"), "From protobuf's text form.")
      .def(
          "check",
          [](const Strategy& strategy, const ir::Graph& graph, const SourcedCluster& cluster) {
            strategy::check(strategy, graph, cluster, "the strategy");
          },
          py::arg("graph"), py::arg("cluster"),
          "Raises for the first thing that does not fit the graph and the cluster.")
      .def("copy", [](const Strategy& strategy) { return Strategy(strategy); })
      .def("__eq__", [](const Strategy& a, const Strategy& b) { return a == b; })
      .def("__repr__", [](const Strategy& strategy) {
        return fmt::format("<autodist.Strategy '{}': {} nodes, {} replicas>", strategy.id,
                           strategy.nodes.size(), strategy.replicas.size());
      });
}

}  // namespace autodist::python
