#include "autodist/ir/factors.h"

#include "autodist/ir/graph_builder.h"
#include "autodist/ir/history.h"

namespace autodist::ir {

std::optional<Factors> factors_of(const Graph& graph, VariableId id) {
  const std::optional<ValueId> gradient = graph.variable(id).gradient;
  if (!gradient) return std::nullopt;
  const std::optional<OpId> maker = History(graph).maker(*gradient);
  if (!maker || graph.op(*maker).name != "aten::mm") return std::nullopt;
  const Op& op = graph.op(*maker);
  const auto* left = std::get_if<ValueId>(&op.arguments[0]);
  const auto* right = std::get_if<ValueId>(&op.arguments[1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  return Factors{*maker, *left, *right, graph.value(*left).type.sizes.at(1)};
}

std::int64_t element_count(const Graph& graph, const Factors& factors, std::int64_t batch) {
  return element_count(graph.value(factors.left).type).at(batch) +
         element_count(graph.value(factors.right).type).at(batch);
}

}  // namespace autodist::ir
