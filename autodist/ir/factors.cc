#include "autodist/ir/factors.h"

namespace autodist::ir {

bool operator==(const Factors&, const Factors&) = default;

std::optional<Factors> factors_of(const Graph& graph, VariableId id) {
  const std::optional<OpId> maker = graph.variable(id).gradient_complete;
  if (!maker || graph.op(*maker).name != "aten::mm") return std::nullopt;
  const Op& op = graph.op(*maker);
  const auto* left = std::get_if<ValueId>(&op.arguments[0]);
  const auto* right = std::get_if<ValueId>(&op.arguments[1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  return Factors{*maker, *left, *right, graph.value(*left).type.sizes.at(1)};
}

std::int64_t element_count(const Graph& graph, const Factors& factors, std::int64_t batch) {
  return element_count(graph.value(factors.left).type, batch) +
         element_count(graph.value(factors.right).type, batch);
}

Bytes bytes_of(const Graph& graph, const Factors& factors, std::int64_t batch) {
  const auto each = static_cast<std::int64_t>(size_of(graph.value(factors.left).type.dtype));
  return Bytes(element_count(graph, factors, batch) * each);
}

bool factors_pay(const Graph& graph, VariableId variable, std::int64_t members,
                 std::int64_t batch) {
  const std::optional<Factors> factors = factors_of(graph, variable);
  return factors &&
         element_count(graph, *factors, batch) * members < 2 * element_count(graph, variable);
}

}  // namespace autodist::ir
