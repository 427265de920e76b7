// AutoDist's own captured graphs, to be looked at and planned for.

#include "autodist/ir/graph_item.h"

#include <pybind11/stl/filesystem.h>

#include <filesystem>
#include <optional>

#include "autodist/app/python/bindings.h"
#include "autodist/base/file.h"

namespace autodist::python {
namespace {

constexpr std::size_t kMostKinds = 10;

std::optional<std::string> dtype_of(const ir::ItemVariable& variable) {
  if (!variable.dtype) return std::nullopt;
  return std::string(name_of(*variable.dtype));
}

py::bytes item_bytes(const ir::GraphItem& item, const std::optional<std::filesystem::path>& path) {
  const std::string bytes = ir::serialize(item);
  if (path) write_file_atomically(*path, bytes);
  return py::bytes(bytes);
}

std::map<std::string, std::vector<std::string>> gradients_of(const ir::GraphItem& item) {
  std::map<std::string, std::vector<std::string>> gradients;
  for (const auto& [variable, gradient] : ir::gradients_by_variable(item)) {
    gradients.emplace(variable, gradient->tensors);
  }
  return gradients;
}

}  // namespace

void bind_graph_item(py::module_& module) {
  py::class_<ir::ItemVariable>(module, "ItemVariable", "A variable of a :class:`GraphItem`.")
      .def_readonly("name", &ir::ItemVariable::name, "Without the ':0' of the file.")
      .def_property_readonly("dtype", &dtype_of, "None where no op says it.")
      .def_readonly("shape", &ir::ItemVariable::shape, "None where no op says it.")
      .def_readonly("trainable", &ir::ItemVariable::trainable)
      .def("__repr__", [](const ir::ItemVariable& variable) {
        return fmt::format("<autodist.ItemVariable '{}'>", variable.name);
      });
  py::class_<ir::GraphItem>(
      module, "GraphItem",
      "A `graph_item` of AutoDist's: a TensorFlow graph, its variables and their gradients.")
      .def_static(
          "deserialize",
          [](const py::bytes& bytes) { return ir::deserialize_graph_item(bytes, "the bytes"); },
          py::arg("source"), "From the protobuf's bytes.")
      .def_static(
          "deserialize",
          [](const std::filesystem::path& path) { return ir::read_graph_item(path); },
          py::arg("source"), "From a file.")
      .def("serialize", &item_bytes, py::arg("path") = py::none(),
           "The protobuf's bytes, enough for planners; written to `path`, too, where it is given.")
      .def_readonly("variables", &ir::GraphItem::variables, "In the order of the file.")
      .def_property_readonly(
          "gradients", &gradients_of,
          "By variable: one tensor, or a sparse one's indices, values and shape.")
      .def_property_readonly(
          "ops",
          [](const ir::GraphItem& item) {
            std::vector<std::pair<std::string, std::string>> ops;
            for (const ir::ItemNode& node : item.nodes) ops.emplace_back(node.name, node.op);
            return ops;
          },
          "(name, kind) of every op.")
      .def(
          "graph",
          [](const ir::GraphItem& item) {
            return std::make_shared<ir::Graph>(ir::variables_of(item, "the graph_item"));
          },
          "A graph that stands for it where a plan is made; it cannot be trained.")
      .def(
          "to_text", [](const ir::GraphItem& item) { return ir::to_text(item, kMostKinds); },
          "For people.")
      .def("__repr__", [](const ir::GraphItem& item) {
        return fmt::format("<autodist.GraphItem: {} ops, {} variables>", item.nodes.size(),
                           item.variables.size());
      });
}

}  // namespace autodist::python
