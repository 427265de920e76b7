#include "autodist/exec/state_bytes.h"

namespace autodist::exec {

std::vector<std::string> arrays_of(program::State state, ir::VariableId variable,
                                   const ir::Graph& graph, const UserRules* rules) {
  if (state != program::State::kRule) return {name_of(state)};
  return state_names(graph.variable(variable).update, rules);
}

DType dtype_of_state(program::State state, ir::VariableId variable, const ir::Graph& graph) {
  const DType dtype = graph.value(graph.variable(variable).value).type.dtype;
  return state == program::State::kRule ? state_dtype(dtype) : dtype;
}

namespace {

std::int64_t bytes_of_element(program::State state, ir::VariableId variable, const ir::Graph& graph,
                              const UserRules* rules) {
  return static_cast<std::int64_t>(arrays_of(state, variable, graph, rules).size() *
                                   size_of(dtype_of_state(state, variable, graph)));
}

}  // namespace

Bytes bytes_of(const program::Move& move, const ir::Graph& graph, const UserRules* rules) {
  return Bytes(element_count(move) * bytes_of_element(move.state, move.variable, graph, rules));
}

Bytes bytes_of_state(const program::Program& program, const UserRules* rules) {
  Bytes bytes;
  for (const program::State state : program::kStates) {
    const bool of_each_rank =
        state == program::State::kOwed || state == program::State::kOwedAverage;
    for (const program::Holding& held : program::held_in(program, state)) {
      std::int64_t elements = 0;
      for (const program::Stretch& each : held.stretches) elements += each.end - each.begin;
      if (of_each_rank) elements *= static_cast<std::int64_t>(held.ranks.size());
      bytes += Bytes(elements * bytes_of_element(state, held.variable, *program.graph, rules));
    }
  }
  return bytes;
}

}  // namespace autodist::exec
