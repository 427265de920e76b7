// Builders: ours by name, a user's as Python functions.

#include "autodist/app/python/bindings.h"
#include "autodist/ir/graph.h"

namespace autodist::python {
namespace {

strategy::Strategy call(const Kept& function, const ir::Graph& graph,
                        const cluster::Cluster& cluster, const search::BuilderOptions& options) {
  const py::gil_scoped_acquire lock;
  const SourcedCluster sourced{cluster, ""};
  // Copies: a function may keep what it is given.
  const py::object result = (*function)(std::make_shared<ir::Graph>(graph), sourced, options);
  return result.cast<strategy::Strategy>();
}

strategy::Strategy build(const std::string& builder, const ir::Graph& graph,
                         const SourcedCluster& cluster, const py::list& own) {
  std::vector<search::Builder> builders;
  for (const py::handle each : own) builders.push_back(builder_of(each));
  const py::gil_scoped_release unlocked;
  return search::build_strategy(builder, graph, cluster, builders);
}

}  // namespace

search::Builder builder_of(const py::handle& tuple) {
  const auto [name, description, defaults, function] = tuple.cast<
      std::tuple<std::string, std::string, std::map<std::string, std::string>, py::function>>();
  search::Builder builder;
  builder.name = name;
  builder.description = description;
  builder.options.assign(defaults.begin(), defaults.end());
  const Kept kept = keep(function);
  builder.build = [kept](const ir::Graph& graph, const cluster::Cluster& cluster,
                         const search::BuilderOptions& options) {
    return call(kept, graph, cluster, options);
  };
  return builder;
}

void bind_builders(py::module_& module) {
  module.def("build_strategy", &build, py::arg("builder"), py::arg("graph"), py::arg("cluster"),
             py::arg("own"));
  module.def("builders", [] {
    std::vector<std::tuple<std::string, std::string, std::map<std::string, std::string>>> all;
    for (const search::Builder& each : search::builders()) {
      all.emplace_back(
          each.name, each.description,
          std::map<std::string, std::string>(each.options.begin(), each.options.end()));
    }
    return all;
  });
}

}  // namespace autodist::python
