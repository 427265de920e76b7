#include "autodist/report/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "autodist/base/text.h"
#include "autodist/ir/optimizer.h"
#include "autodist/report/fitted_table.h"
#include "autodist/report/plan.h"

namespace autodist::report {
namespace {

struct Totals {
  std::size_t forward = 0;
  std::size_t backward = 0;
  std::int64_t elements = 0;
  std::size_t unused = 0;
  std::size_t sparse = 0;
  std::size_t mutated_buffers = 0;
  double flops = 0;
  Seconds measured;
};

Totals totals_of(const ir::Graph& graph) {
  Totals totals;
  for (const ir::Op& op : graph.ops) {
    ++(op.phase == ir::Phase::kForward ? totals.forward : totals.backward);
    totals.flops += static_cast<double>(op.flops.at(graph.example_batch));
    totals.measured += op.cost.at(graph.example_batch);
  }
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    totals.elements += ir::element_count(graph, ir::VariableId(i));
    totals.unused += graph.variables[i].gradient ? 0 : 1;
    totals.sparse += graph.variables[i].sparse_gradient ? 1 : 0;
  }
  for (const ir::Buffer& buffer : graph.buffers) totals.mutated_buffers += buffer.mutated ? 1 : 0;
  return totals;
}

std::string with_separators(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

// Inside the double quotes of DOT.
std::string in_dot(const std::string& text) {
  return escaped(text, {{'"', "\\\""}, {'\\', "\\\\"}});
}

}  // namespace

std::string summary(const ir::Graph& graph) {
  const Totals totals = totals_of(graph);
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  line("graph", graph.name);
  line("captured with", "libtorch " + graph.libtorch_version);
  line("batch",
       graph.batch_fixed_reason.empty()
           ? fmt::format("symbolic (captured with {} sample{})", graph.example_batch,
                         graph.example_batch == 1 ? "" : "s")
           : fmt::format("fixed at {}: {}", graph.example_batch, graph.batch_fixed_reason));
  line("ops", fmt::format("{} forward, {} backward", totals.forward, totals.backward));
  line("variables",
       fmt::format("{} parameters in {} tensors, {}{}{}", with_separators(totals.elements),
                   graph.variables.size(), to_string(variable_bytes(graph)),
                   totals.unused > 0 ? fmt::format(", {} unused", totals.unused) : "",
                   totals.sparse > 0 ? fmt::format(", {} sparse", totals.sparse) : ""));
  line("buffers",
       fmt::format("{}, {} of them mutated", graph.buffers.size(), totals.mutated_buffers));
  line("flops", fmt::format("{:.3g} per step", totals.flops));
  line("measured",
       totals.measured.value > 0 ? to_string(totals.measured) + " per step" : "not measured");
  line("peak memory", to_string(Bytes(graph.peak_bytes.at(graph.example_batch))));
  return text;
}

std::string summary_json(const ir::Graph& graph) {
  const Totals totals = totals_of(graph);
  return nlohmann::ordered_json{{"kind", "graph"},
                                {"name", graph.name},
                                {"libtorch_version", graph.libtorch_version},
                                {"example_batch_samples", graph.example_batch},
                                {"batch_fixed_reason", graph.batch_fixed_reason},
                                {"forward_ops", totals.forward},
                                {"backward_ops", totals.backward},
                                {"parameters", totals.elements},
                                {"variables", graph.variables.size()},
                                {"variable_bytes", variable_bytes(graph).value},
                                {"unused_variables", totals.unused},
                                {"sparse_variables", totals.sparse},
                                {"buffers", graph.buffers.size()},
                                {"mutated_buffers", totals.mutated_buffers},
                                {"flops_per_step", totals.flops},
                                {"measured_step_seconds", totals.measured.value},
                                {"peak_bytes", graph.peak_bytes.at(graph.example_batch)},
                                {"structural_digest", to_string(ir::structural_digest(graph))}}
      .dump();
}

std::string variables_table(const ir::Graph& graph) {
  std::size_t width = 8;
  for (const ir::Variable& variable : graph.variables) {
    width = std::max(width, variable.name.size());
  }
  std::string text = fmt::format("{:<{}}  {:<20} {:>5} {:>10} {:>9} {:>9}  {}\n", "variable", width,
                                 "shape", "dtype", "size", "first op", "ready op", "update");
  const auto op_text = [](const std::optional<ir::OpId>& op) {
    return op ? std::to_string(op->value) : std::string("-");
  };
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& variable = graph.variable(id);
    std::string notes = ir::name_of(variable.update.rule);
    if (!variable.gradient) notes = "unused by the step";
    if (variable.sparse_gradient) notes += ", sparse";
    if (!variable.aliases.empty())
      notes += fmt::format(", also {}", fmt::join(variable.aliases, ", "));
    text += fmt::format("{:<{}}  {:<20} {:>5} {:>10} {:>9} {:>9}  {}\n", variable.name, width,
                        fmt::format("[{}]", fmt::join(ir::shape_of(graph, id), ",")),
                        name_of(graph.value(variable.value).type.dtype),
                        to_string(ir::bytes_of(graph, id)), op_text(variable.first_use),
                        op_text(variable.gradient_complete), notes);
  }
  return text;
}

std::string costs_table(const ir::Graph& graph, std::size_t most, std::size_t columns) {
  struct Row {
    std::string op;
    std::string scope;
    Seconds time;
    double flops = 0;
    std::size_t count = 0;
  };
  std::map<std::pair<std::string, std::string>, Row> by_place;
  Seconds total;
  for (const ir::Op& op : graph.ops) {
    Row& row = by_place[{op.name, graph.scopes[op.scope.value]}];
    row.op = op.name;
    row.scope = graph.scopes[op.scope.value];
    row.time += op.cost.at(graph.example_batch);
    row.flops += static_cast<double>(op.flops.at(graph.example_batch));
    ++row.count;
    total += op.cost.at(graph.example_batch);
  }
  std::vector<Row> rows;
  for (auto& [place, row] : by_place) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.time != b.time ? a.time > b.time : a.flops > b.flops;
  });
  if (most > 0) rows.resize(std::min(rows.size(), most));
  std::vector<std::vector<std::string>> cells{{"op", "time", "share", "flops", "calls", "scope"}};
  for (const Row& row : rows) {
    const double share = total.value > 0 ? 100 * (row.time / total) : 0.0;
    cells.push_back({row.op, to_string(row.time), fmt::format("{:.1f}%", share),
                     fmt::format("{:.3g}", row.flops), std::to_string(row.count), row.scope});
  }
  return fitted_table(std::move(cells), {1, 2, 3, 4}, columns);
}

std::string to_dot(const ir::Graph& graph) {
  std::string text = "digraph step {\n  rankdir=LR;\n  node [fontsize=10];\n";
  std::map<ir::ValueId, std::string> made_by;
  const auto source = [&](ir::ValueId value, const std::string& name, const char* shape) {
    text += fmt::format("  \"{0}\" [shape={1}];\n", in_dot(name), shape);
    made_by[value] = in_dot(name);
  };
  for (const ir::Input& input : graph.inputs) source(input.value, input.name, "ellipse");
  for (const ir::Variable& variable : graph.variables) source(variable.value, variable.name, "box");
  for (const ir::Buffer& buffer : graph.buffers) source(buffer.value, buffer.name, "box");
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    text += fmt::format("  op{} [label=\"{}\\n{}\" style=filled fillcolor=\"{}\"];\n", i,
                        in_dot(op.name), in_dot(graph.scopes[op.scope.value]),
                        op.phase == ir::Phase::kForward ? "lightblue" : "lightsalmon");
    ir::for_each_read(op, [&](ir::ValueId value) {
      const auto maker = made_by.find(value);
      if (maker != made_by.end()) text += fmt::format("  \"{}\" -> op{};\n", maker->second, i);
    });
    ir::for_each_result(op, [&](ir::ValueId value) { made_by[value] = fmt::format("op{}", i); });
  }
  return text + "}\n";
}

}  // namespace autodist::report
