#include "autodist/ir/graph_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autodist/ir/text.h"

namespace autodist::ir {
namespace {

class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph) : graph_(graph), names_(graph) {}

  std::string print() {
    header();
    section("inputs", graph_.inputs, [&](const Input& input) {
      return Row{names_.of(input.value), type(input.value), input.batched ? "batched" : "whole"};
    });
    section("variables", graph_.variables, [&](const Variable& each) { return row(each); });
    section("buffers", graph_.buffers, [&](const Buffer& buffer) {
      return Row{buffer.name, type(buffer.value), buffer.mutated ? "mutated" : "read"};
    });
    section("constants", graph_.constants, [&](const Constant& constant) {
      return Row{names_.of(constant.value), type(constant.value),
                 "digest=" + to_string(constant.digest)};
    });
    clips();
    ops();
    outputs();
    return text_;
  }

 private:
  using Row = std::vector<std::string>;

  std::string type(ValueId value) const { return to_string(graph_.value(value).type); }

  void header() {
    text_ +=
        fmt::format("graph \"{}\" libtorch={} example_batch={} batch={} reduction={}\n",
                    graph_.name, graph_.libtorch_version.empty() ? "none" : graph_.libtorch_version,
                    graph_.example_batch, graph_.batch_fixed_reason.empty() ? "symbolic" : "fixed",
                    graph_.reduction == Reduction::kMean ? "mean" : "sum");
    if (!graph_.batch_fixed_reason.empty()) {
      text_ += fmt::format("batch_fixed_reason \"{}\"\n", graph_.batch_fixed_reason);
    }
    text_ += fmt::format("peak_bytes {}\n", to_string(graph_.peak_bytes));
    text_ += schedule();
  }

  std::string schedule() const {
    const Schedule& schedule = graph_.schedule;
    if (schedule == Schedule{}) return "";
    return fmt::format("schedule {} warmup={} period={} factor={}\n", name_of(schedule.kind),
                       schedule.warmup_steps, schedule.period_steps, schedule.factor);
  }

  template <typename Items, typename MakeRow>
  void section(const char* title, const Items& items, MakeRow make_row) {
    if (items.empty()) return;
    std::vector<Row> rows;
    for (const auto& item : items) rows.push_back(make_row(item));
    text_ += fmt::format("\n{}:\n", title) + align(rows, "  ");
  }

  static std::string number(const std::optional<OpId>& op) {
    return op ? std::to_string(op->value) : "none";
  }

  Row row(const Variable& variable) const {
    std::string rest = variable.first_use ? fmt::format("ops {}..{}", number(variable.first_use),
                                                        number(variable.last_read))
                                          : "unread";
    if (variable.gradient) {
      rest += fmt::format(" gradient={}{} complete={}", names_.of(*variable.gradient),
                          variable.sparse_gradient ? " (sparse)" : "",
                          number(variable.gradient_complete));
    } else {
      rest += " no gradient";
    }
    for (const std::string& alias : variable.aliases) rest += " tied=" + alias;
    return {variable.name, type(variable.value), rest, to_string(variable.update)};
  }

  void clips() {
    for (const Clip& clip : graph_.clips) {
      std::vector<std::string> names;
      for (const auto& id : clip.variables) names.push_back(graph_.variable(id).name);
      text_ += fmt::format("\nclip max_norm={} {{{}}}\n", clip.max_norm, fmt::join(names, ", "));
    }
  }

  std::string remark(OpId id) const {
    const Op& op = graph_.op(id);
    std::string text = fmt::format("# {}", id);
    const std::string& scope = graph_.scopes[op.scope.value];
    if (!scope.empty()) text += " " + scope;
    text += " " + name_of(op.phase);
    if (op.random) text += " random";
    const Seconds time = op.cost.at(graph_.example_batch);
    if (time > Seconds{0}) text += " " + to_string(time);
    const std::int64_t flops = op.flops.at(graph_.example_batch);
    if (flops != 0) text += " " + flops_text(flops);
    return text;
  }

  void ops() {
    text_ += fmt::format("\nops:  # number, module, phase, time and work at batch {}\n",
                         graph_.example_batch);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      text_ += fmt::format("  {}  {}\n", to_string(names_, graph_.ops[i], ShowTypes::kYes),
                           remark(OpId(i)));
    }
  }

  void outputs() {
    std::vector<std::string> outputs;
    for (ValueId output : graph_.outputs) outputs.push_back(names_.of(output));
    text_ += fmt::format("\noutputs: {}\n", fmt::join(outputs, ", "));
  }

  const Graph& graph_;
  const Names names_;
  std::string text_;
};

}  // namespace

std::string to_text(const Graph& graph) { return GraphPrinter(graph).print(); }

}  // namespace autodist::ir
