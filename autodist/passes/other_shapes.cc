// The same job for batches of other shapes: another graph over the same variables.

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/ir/history.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

void check_same_model(const ir::Graph& first, const ir::Graph& other) {
  const auto differ = [&](const std::string& what) {
    fail(ErrorCode::kUsage,
         "step '{}': for a batch of other shapes the model has {}. Its parameters must not depend "
         "on the batch.",
         first.name, what);
  };
  if (first.variables.size() != other.variables.size()) {
    differ(fmt::format("{} trained parameters instead of {}", other.variables.size(),
                       first.variables.size()));
  }
  for (std::size_t i = 0; i < first.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& before = first.variable(id);
    const ir::Variable& now = other.variable(id);
    if (before.name != now.name || shape_of(first, id) != shape_of(other, id)) {
      differ(fmt::format("'{}' where it had '{}', or another shape of it", now.name, before.name));
    }
    if (now.gradient && !before.gradient) {
      fail(ErrorCode::kUsage,
           "step '{}': a batch of other shapes, or one from which other numbers follow, trains "
           "'{}', which the example batch leaves alone and the plan does not know. Pass an example "
           "that uses every parameter; where tasks take turns, make each a step "
           "(distribute_steps).",
           first.name, now.name);
    }
  }
}

// A variable that this graph does not use contributes zeros: the other ranks may have used it.
void add_zero_gradient(ir::Graph& graph, ir::VariableId id) {
  const ir::TensorType type = graph.value(graph.variable(id).value).type;
  const ir::ValueId gradient(graph.values.size());
  const ir::Affine bytes{0, bytes_of(graph, id).value};
  graph.values.push_back(
      {ir::StorageId(graph.storages.size()), 0, ir::SlotId(graph.slot_count++), type});
  graph.storages.push_back({ir::StorageKind::kIntermediate, bytes});
  ir::Op zeros;
  zeros.name = "aten::zeros_like";
  zeros.arguments = {
      graph.variable(id).value, ir::None{}, ir::None{}, ir::None{}, ir::None{}, ir::None{}};
  zeros.results = {gradient};
  zeros.phase = ir::Phase::kBackward;
  zeros.bytes_moved = bytes;
  graph.ops.push_back(std::move(zeros));
  graph.variables[id.value].gradient = gradient;
}

}  // namespace

program::Program for_other_shapes(const program::Program& program, ir::Graph graph) {
  const ir::Graph& first = *program.graph;
  if (program.is_placed()) {
    fail(ErrorCode::kInfeasible,
         "step '{}': a batch of other shapes than the example's, and its ops are placed for those "
         "alone. Pad the batch.",
         first.name);
  }
  check_same_model(first, graph);
  std::vector<ir::VariableId> trained;
  for (std::size_t i = 0; i < first.variables.size(); ++i) {
    const ir::VariableId id(i);
    if (!first.variable(id).gradient) continue;
    if (!graph.variable(id).gradient) add_zero_gradient(graph, id);
    trained.push_back(id);
  }
  graph.clips = first.clips;
  graph.schedule = first.schedule;
  for (ir::VariableId id : trained) graph.variables[id.value].update = first.variable(id).update;
  ir::analyse(graph);

  program::Program other = program;
  other.graph = std::make_shared<const ir::Graph>(std::move(graph));
  const auto first_use = [&](ir::VariableId id) {
    const auto& op = other.graph->variable(id).first_use;
    return op ? op->value : other.graph->ops.size();
  };
  std::stable_sort(trained.begin(), trained.end(),
                   [&](ir::VariableId a, ir::VariableId b) { return first_use(a) < first_use(b); });
  const std::optional<ir::LossScaling> scaling = program::loss_scaling_of(program);
  for (program::Role& role : other.roles) {
    for (program::Stream& stream : role.streams) {
      if (stream.kind == program::StreamKind::kCompute)
        stream = compute_stream(other, trained, scaling);
    }
  }
  program::verify(other);
  return other;
}

}  // namespace autodist::passes
