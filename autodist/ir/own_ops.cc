#include "autodist/ir/own_ops.h"

namespace autodist::ir {

std::vector<bool> booleans_of(const Graph& graph) {
  std::vector<bool> booleans;
  for (const Op& op : graph.ops) {
    if (is_guard(op)) booleans.push_back(std::get<bool>(op.arguments.at(1)));
  }
  return booleans;
}

}  // namespace autodist::ir
