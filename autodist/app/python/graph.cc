// Captured graphs: what a builder and a curious user read of them.

#include <pybind11/stl/filesystem.h>

#include <algorithm>

#include "autodist/app/python/bindings.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/graph_text.h"
#include "autodist/ir/text.h"
#include "autodist/report/inspect.h"

namespace autodist::python {
namespace {

using GraphPointer = std::shared_ptr<ir::Graph>;

// A variable with what the tables of its graph say of it.
struct Variable {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<std::int64_t> shape;
  std::string dtype;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  bool sparse = false;
  bool used = false;
  std::string update;
};

Variable variable_at(const ir::Graph& graph, std::size_t index) {
  const ir::VariableId id(static_cast<std::uint32_t>(index));
  const ir::Variable& from = graph.variable(id);
  Variable variable;
  variable.name = from.name;
  variable.aliases = from.aliases;
  variable.shape = ir::shape_of(graph, id);
  variable.dtype = name_of(graph.value(from.value).type.dtype);
  variable.elements = ir::element_count(graph, id);
  variable.bytes = ir::bytes_of(graph, id).value;
  variable.sparse = from.sparse_gradient;
  variable.used = from.gradient.has_value();
  variable.update = ir::to_string(from.update);
  return variable;
}

std::vector<Variable> variables_of(const ir::Graph& graph) {
  std::vector<Variable> all;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) all.push_back(variable_at(graph, i));
  return all;
}

Variable variable_named(const ir::Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& each = graph.variables[i];
    const bool alias = std::count(each.aliases.begin(), each.aliases.end(), name) != 0;
    if (each.name == name || alias) return variable_at(graph, i);
    names.push_back(each.name);
  }
  fail(ErrorCode::kUsage, "graph '{}' has no variable '{}' among its {}.{}", graph.name, name,
       names.size(), did_you_mean(name, names));
}

std::vector<std::string> op_names(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::Op& op : graph.ops) names.push_back(op.name);
  return names;
}

void bind_variable(py::module_& module) {
  py::class_<Variable>(module, "Variable", "A trained parameter of a captured step.")
      .def_readonly("name", &Variable::name, "The first of its names in the model.")
      .def_readonly("aliases", &Variable::aliases, "Further names of a tied parameter.")
      .def_readonly("shape", &Variable::shape)
      .def_readonly("dtype", &Variable::dtype, "'f32', 'f64', …")
      .def_readonly("elements", &Variable::elements)
      .def_readonly("bytes", &Variable::bytes)
      .def_readonly("sparse", &Variable::sparse, "Whether its gradient is.")
      .def_readonly("used", &Variable::used, "Whether the step gives it a gradient.")
      .def_readonly("update", &Variable::update, "Its update rule, once a job has declared it.")
      .def("__repr__", [](const Variable& variable) {
        return fmt::format("<autodist.Variable '{}' {}[{}]>", variable.name, variable.dtype,
                           fmt::join(variable.shape, ", "));
      });
}

}  // namespace

void bind_graph(py::module_& module) {
  bind_variable(module);
  py::class_<ir::Graph, GraphPointer>(
      module, "Graph",
      "One training step: its ops, forward and backward, and the variables that it trains.\n\n"
      "Made by :func:`capture` or read from a file; knows no cluster and no strategy.")
      .def_readonly("name", &ir::Graph::name)
      .def_readonly("libtorch_version", &ir::Graph::libtorch_version, "That captured it.")
      .def_readonly("example_batch", &ir::Graph::example_batch, "Samples at capture.")
      .def_readonly("batch_fixed_reason", &ir::Graph::batch_fixed_reason,
                    "Why it serves that batch alone; '': it serves any.")
      .def_property_readonly("variables", &variables_of, "In the model's order.")
      .def("variable", &variable_named, py::arg("name"), "The variable of that name or alias.")
      .def_property_readonly("ops", &op_names, "Names of the ops, in order.")
      .def_property_readonly(
          "inputs",
          [](const ir::Graph& graph) {
            std::vector<std::pair<std::string, bool>> inputs;
            for (const ir::Input& each : graph.inputs) inputs.emplace_back(each.name, each.batched);
            return inputs;
          },
          "(name, whether it is split over replicas) of every tensor of a batch.")
      .def_property_readonly(
          "digest", [](const ir::Graph& graph) { return to_string(ir::structural_digest(graph)); },
          "Of the structure, without measured times: 32 hexadecimal digits.")
      .def(
          "summary", [](const ir::Graph& graph) { return report::summary(graph); },
          "What it is, what it trains, what it costs: a few lines.")
      .def(
          "to_text", [](const ir::Graph& graph) { return ir::to_text(graph); },
          "All of it for people: one line per op.")
      .def(
          "save",
          [](const ir::Graph& graph, const std::filesystem::path& path) {
            ir::write_graph(path, graph);
          },
          py::arg("path"), "Writes a graph file, for `autodist plan` and :meth:`load`.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            return std::make_shared<ir::Graph>(ir::read_graph(path));
          },
          py::arg("path"), "Reads and checks a graph file.")
      .def("__repr__", [](const ir::Graph& graph) {
        return fmt::format("<autodist.Graph '{}': {} ops, {} variables>", graph.name,
                           graph.ops.size(), graph.variables.size());
      });
}

}  // namespace autodist::python
