#include "autodist/sim/factored.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace autodist::sim {

std::vector<Factored> factored_gradients(const program::Program& program, const CostModel& costs) {
  const ir::Graph& graph = *program.graph;
  std::vector<Factored> all(graph.variables.size());
  if (costs.micro_batches > 1) return all;  // sums of products
  const std::uint32_t members = program.batch_parts();
  const std::vector<program::Rank> computing = program.computing_ranks();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ir::VariableId id(i);
    if (!ir::factors_pay(graph, id, members, costs.batch)) continue;
    const ir::Factors factors = *ir::factors_of(graph, id);
    const auto factor_bytes = static_cast<double>(bytes_of(graph, factors, costs.batch).value);
    const double remain = factor_bytes * members / 2;
    all[i].saved = static_cast<double>(bytes_of(graph, id).value) - remain;
    std::optional<Seconds> fastest;  // the simulator has one time for all members, whosever
    for (const program::Rank rank : computing) {
      const Seconds one = multiply_seconds(costs, graph, factors, rank);
      fastest = std::min(fastest.value_or(one), one);
    }
    all[i].multiply_one = fastest.value_or(Seconds{}).value;
    all[i].multiply_all = all[i].multiply_one * members;
  }
  return all;
}

double least_with_factors(const std::vector<Factored>& gradients, double bytes, double per_byte,
                          double low, double high) {
  std::vector<Factored> open;
  std::copy_if(gradients.begin(), gradients.end(), std::back_inserter(open),
               [](const Factored& each) { return each.saved > 0; });
  std::sort(open.begin(), open.end(), [](const Factored& a, const Factored& b) {
    return a.saved * b.multiply_all > b.saved * a.multiply_all;
  });
  const auto suffices = [&](double seconds) {
    double idle = seconds;
    double sent = bytes;
    for (const Factored& each : open) {
      const double part = each.multiply_all > idle ? idle / each.multiply_all : 1;
      sent -= part * each.saved;
      idle -= part * each.multiply_all;
    }
    return sent * per_byte <= seconds;
  };
  if (open.empty() || low >= high) return high;
  if (suffices(low)) return low;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace autodist::sim
