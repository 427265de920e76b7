#include "autodist/exec/state_bytes.h"

namespace autodist::exec {

std::vector<std::string> arrays_of(program::State state, const ir::Variable& variable,
                                   const UserRules* rules) {
  if (state != program::State::kRule) return {name_of(state)};
  return state_names(variable.update, rules);
}

DType dtype_of_state(program::State state, DType dtype) {
  return state == program::State::kRule ? state_dtype(dtype) : dtype;
}

Bytes bytes_of(const program::Move& move, const ir::Graph& graph, const UserRules* rules) {
  const ir::Variable& variable = graph.variable(move.variable);
  const DType dtype = graph.value(variable.value).type.dtype;
  const std::size_t width =
      arrays_of(move.state, variable, rules).size() * size_of(dtype_of_state(move.state, dtype));
  return Bytes(element_count(move) * static_cast<std::int64_t>(width));
}

}  // namespace autodist::exec
