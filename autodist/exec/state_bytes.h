// How many bytes a move of state is (program/transition.h): what a rule keeps of each element, and
// in which type, is known here alone.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/base/units.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/graph.h"
#include "autodist/program/transition.h"

namespace autodist::exec {

// The arrays of a state, one value per element in each. `rules` may be null where none is a user's.
std::vector<std::string> arrays_of(program::State state, ir::VariableId variable,
                                   const ir::Graph& graph, const UserRules* rules);
// One of them in checkpoints.
inline std::string name_of_state(const ir::Variable& variable, const std::string& array) {
  return variable.name + "." + array;
}
// Of the values in them.
DType dtype_of_state(program::State state, ir::VariableId variable, const ir::Graph& graph);

Bytes bytes_of(const program::Move& move, const ir::Graph& graph, const UserRules* rules);

// All of it in one place: every element of parameters and rules once, what compression owes from
// each rank.
Bytes bytes_of_state(const program::Program& program, const UserRules* rules);

}  // namespace autodist::exec
