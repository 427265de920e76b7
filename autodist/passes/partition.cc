#include <algorithm>
#include <unordered_map>

#include "autodist/base/even_part.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

// Stands for one op where the strategy fixes no time: only the order matters.
constexpr Seconds kOpPosition{1e-6};

Seconds needed_of(const strategy::NodeConfig& node, const ir::Variable& variable) {
  if (node.needed) return *node.needed;
  return variable.first_use ? kOpPosition * variable.first_use->value : Seconds{};
}

void add_shards(State& state, ir::VariableId id) {
  const strategy::NodeConfig& node = *state.nodes[id.value];
  const std::string& name = state.graph().variable(id).name;
  const std::vector<std::int64_t> shape = ir::shape_of(state.graph(), id);
  const std::int64_t elements = ir::element_count(state.graph(), id);
  if (node.partitioner.empty()) {
    const std::int64_t rows = shape.empty() ? 1 : shape.front();
    state.program.shards.push_back({id, name, 0, 0, rows, elements});
    state.synchronizers.push_back(&node.synchronizer);
    return;
  }
  const strategy::Partitioning cut = strategy::parse_partitioner(node.partitioner, state.where);
  const auto axis = static_cast<std::uint32_t>(cut.axis);
  const std::int64_t rows = shape[axis];
  for (std::int64_t i = 0; i < cut.shards; ++i) {
    const auto [begin, end] = even_part(rows, i, cut.shards);
    state.program.shards.push_back({id, name + "/part_" + std::to_string(i), axis, begin, end,
                                    elements / rows * (end - begin)});
    state.synchronizers.push_back(&node.parts[static_cast<std::size_t>(i)].synchronizer);
  }
}

}  // namespace

void partition(State& state) {
  const auto& variables = state.graph().variables;
  std::unordered_map<std::string, const strategy::NodeConfig*> nodes;
  for (const strategy::NodeConfig& node : state.strategy.nodes) {
    nodes.emplace(strategy::variable_name(node.name), &node);
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    state.nodes.push_back(nodes.at(variables[i].name));
    state.needed.push_back(needed_of(*state.nodes[i], variables[i]));
    add_shards(state, ir::VariableId(i));
    if (variables[i].gradient) state.by_need.push_back(ir::VariableId(i));
  }
  std::stable_sort(state.by_need.begin(), state.by_need.end(),
                   [&](ir::VariableId a, ir::VariableId b) {
                     return state.needed[a.value] < state.needed[b.value];
                   });
}

}  // namespace autodist::passes
