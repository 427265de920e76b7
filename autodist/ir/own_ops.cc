#include "autodist/ir/own_ops.h"

#include <algorithm>

namespace autodist::ir {
namespace {

template <typename Values>
bool begins(const Values& values, const Values& first) {
  return values.size() >= first.size() && std::equal(first.begin(), first.end(), values.begin());
}

}  // namespace

Way way_of(const Graph& graph, std::int64_t batch, std::size_t guards) {
  Way way;
  for (const Op& op : graph.ops) {
    if (!is_guard(op)) continue;
    if (guards-- == 0) break;
    if (is_number_guard(op)) {
      way.numbers.push_back(std::get<Affine>(op.arguments.at(1)).at(batch));
    } else {
      way.booleans.push_back(std::get<bool>(op.arguments.at(1)));
    }
  }
  return way;
}

std::vector<bool> booleans_of(const Graph& graph) { return way_of(graph, 0).booleans; }

bool begins_with(const Way& way, const Way& first) {
  return begins(way.booleans, first.booleans) && begins(way.numbers, first.numbers);
}

bool has_number_guards(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), is_number_guard);
}

}  // namespace autodist::ir
