// Variables -> shards. A variable that the strategy leaves whole is one shard.

#include <map>

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

void add_shard(State& state, ir::Shard shard, const strategy::Synchronizer& synchronizer) {
  state.shard_plans.push_back({ir::ShardId(state.program.shards.size()), synchronizer});
  state.program.shards.push_back(std::move(shard));
}

void add_whole(State& state, ir::VariableId id, const strategy::NodeConfig& node) {
  const std::vector<std::int64_t> shape = ir::shape_of(state.graph, id);
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  add_shard(state,
            {id, state.graph.variable(id).name, 0, 0, rows, ir::element_count(state.graph, id)},
            node.synchronizer);
}

void add_parts(State& state, ir::VariableId id, const strategy::NodeConfig& node) {
  const std::vector<std::int64_t> shape = ir::shape_of(state.graph, id);
  const std::vector<std::int64_t> shards =
      strategy::parse_partitioner(node.partitioner, state.where);
  std::uint32_t axis = 0;
  while (shards[axis] == 1) ++axis;
  const std::int64_t row_elements = ir::element_count(state.graph, id) / shape[axis];
  for (std::size_t i = 0; i < node.parts.size(); ++i) {
    const auto [begin, end] =
        strategy::shard_rows(shape[axis], shards[axis], static_cast<std::int64_t>(i));
    add_shard(state,
              {id, state.graph.variable(id).name + "/part_" + std::to_string(i), axis, begin, end,
               (end - begin) * row_elements},
              node.parts[i].synchronizer);
  }
}

// Passes read no measured time: without one in the strategy, what is used earlier is needed
// earlier.
Seconds structural_need(const ir::Variable& variable) {
  constexpr double kNominalOpSeconds = 1e-6;
  return Seconds(variable.first_use ? kNominalOpSeconds * variable.first_use->value : 0);
}

}  // namespace

void partition(State& state) {
  std::map<std::string, const strategy::NodeConfig*> nodes;
  for (const strategy::NodeConfig& node : state.strategy.nodes) {
    nodes[strategy::variable_name(node.name)] = &node;
  }
  for (std::size_t i = 0; i < state.graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& variable = state.graph.variable(id);
    const strategy::NodeConfig& node = *nodes.at(variable.name);
    state.needed.push_back(node.needed.value_or(structural_need(variable)));
    if (node.parts.empty()) {
      add_whole(state, id, node);
    } else {
      add_parts(state, id, node);
    }
  }
}

}  // namespace autodist::passes
