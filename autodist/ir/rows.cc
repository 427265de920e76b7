#include "autodist/ir/rows.h"

#include <algorithm>

#include "autodist/ir/history.h"

namespace autodist::ir {
namespace {

// Reads its argument's shape alone.
bool reads_no_element(const Op& op) { return op.name == "aten::zeros_like"; }

}  // namespace

bool trained_by_rows(const Variable& variable) {
  if (!variable.gradient || !variable.sparse_gradient) return false;
  switch (variable.update.rule) {
    case Rule::kSgd:
    case Rule::kAdagrad:
      return true;
    case Rule::kAdam:
      return variable.update.option("amsgrad") == 0;
    default:
      return false;
  }
}

std::optional<std::vector<ValueId>> rows_read(const Graph& graph, VariableId id) {
  const ValueId table = graph.variable(id).value;
  const StorageId storage = graph.value(table).storage;
  const History history(graph);
  std::vector<ValueId> numbers;
  std::optional<OpId> first;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    bool reads = false;
    for_each_read(op, [&](ValueId value) { reads |= graph.value(value).storage == storage; });
    if (!reads || reads_no_element(op)) continue;
    if (op.name != "aten::embedding" || op.arguments[0] != Argument(table)) return std::nullopt;
    const ValueId rows = std::get<ValueId>(op.arguments[1]);
    if (!first) first = OpId(i);
    const std::optional<OpId> maker = history.maker(rows);
    if (maker && maker->value >= first->value) return std::nullopt;
    if (std::find(numbers.begin(), numbers.end(), rows) == numbers.end()) numbers.push_back(rows);
  }
  return numbers;
}

}  // namespace autodist::ir
