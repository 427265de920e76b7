#include "autodist/search/placement/orders.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr std::array<const char*, 8> kNames{"alpha",       "topo",         "reversed_topo",
                                            "lexico_topo", "dfs_preorder", "dfs_postorder",
                                            "bfs",         "random"};

std::vector<std::uint32_t> sorted_by_name(const TaskGraph& graph) {
  std::vector<std::uint32_t> order(graph.tasks.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return graph.tasks[a].name < graph.tasks[b].name;
  });
  return order;
}

std::vector<std::uint32_t> kahn_with_stack(const Neighbours& neighbours) {
  std::vector<std::size_t> waits;
  std::vector<std::uint32_t> stack;
  for (std::uint32_t i = 0; i < neighbours.parents.size(); ++i) {
    waits.push_back(neighbours.parents[i].size());
    if (waits.back() == 0) stack.push_back(i);
  }
  std::vector<std::uint32_t> order;
  while (!stack.empty()) {
    const std::uint32_t task = stack.back();
    stack.pop_back();
    order.push_back(task);
    for (const std::uint32_t child : neighbours.children[task]) {
      if (--waits[child] == 0) stack.push_back(child);
    }
  }
  return order;
}

// With an explicit stack: a chain may be longer than the program's.
std::vector<std::uint32_t> depth_first(const Neighbours& neighbours, bool postorder) {
  std::vector<bool> seen(neighbours.children.size(), false);
  std::vector<std::uint32_t> order;
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;  // task, next child
  const auto enter = [&](std::uint32_t task) {
    seen[task] = true;
    if (!postorder) order.push_back(task);
    stack.emplace_back(task, 0);
  };
  for (std::uint32_t root = 0; root < seen.size(); ++root) {
    if (!seen[root]) enter(root);
    while (!stack.empty()) {
      const std::uint32_t task = stack.back().first;
      const std::vector<std::uint32_t>& children = neighbours.children[task];
      if (stack.back().second < children.size()) {
        const std::uint32_t child = children[stack.back().second++];
        if (!seen[child]) enter(child);
        continue;
      }
      stack.pop_back();
      if (postorder) order.push_back(task);
    }
  }
  return order;
}

std::vector<std::uint32_t> breadth_first(const TaskGraph& graph, const Neighbours& neighbours) {
  std::vector<bool> placed(graph.tasks.size(), false);
  std::vector<std::uint32_t> order;
  for (const std::uint32_t source : sorted_by_name(graph)) {
    if (!neighbours.parents[source].empty()) continue;
    // Each source's walk is its own: what an earlier one has visited is walked through again.
    std::vector<bool> seen(graph.tasks.size(), false);
    std::vector<std::uint32_t> walk{source};
    seen[source] = true;
    for (std::size_t at = 0; at < walk.size(); ++at) {
      for (const std::uint32_t child : neighbours.children[walk[at]]) {
        if (!seen[child]) walk.push_back(child);
        seen[child] = true;
      }
    }
    for (const std::uint32_t task : walk) {
      if (!placed[task]) order.push_back(task);
      placed[task] = true;
    }
  }
  return order;
}

}  // namespace

std::vector<std::uint32_t> ranks_by_name(const TaskGraph& graph) {
  const std::vector<std::uint32_t> sorted = sorted_by_name(graph);
  std::vector<std::uint32_t> rank(sorted.size());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) rank[sorted[i]] = i;
  return rank;
}

std::string to_string(Order order) { return kNames[static_cast<std::size_t>(order)]; }

Order parse_order(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    const std::vector<std::string> known(kNames.begin(), kNames.end());
    fail(ErrorCode::kUsage, "unknown order '{}', one of {} expected{}", name,
         fmt::join(known, ", "), nearest_hint(name, known));
  }
  return static_cast<Order>(found - kNames.begin());
}

std::vector<std::uint32_t> traversal(const TaskGraph& graph, Order order, std::mt19937_64& random) {
  const Neighbours neighbours = neighbours_of(graph);
  std::vector<std::uint32_t> tasks;
  switch (order) {
    case Order::kAlpha:
      tasks = sorted_by_name(graph);
      break;
    case Order::kTopo:
      tasks = kahn_with_stack(neighbours);
      break;
    case Order::kReversedTopo:
      tasks = kahn_with_stack(neighbours);
      std::reverse(tasks.begin(), tasks.end());
      break;
    case Order::kLexicoTopo:
      tasks = topological_order(neighbours, ranks_by_name(graph));
      break;
    case Order::kDfsPreorder:
      tasks = depth_first(neighbours, false);
      break;
    case Order::kDfsPostorder:
      tasks = depth_first(neighbours, true);
      break;
    case Order::kBfs:
      tasks = breadth_first(graph, neighbours);
      break;
    case Order::kRandom:
      tasks = sorted_by_name(graph);
      shuffle(tasks, random);
      break;
  }
  AD_CHECK(tasks.size() == graph.tasks.size()) << "a traversal misses tasks: " << to_string(order);
  return tasks;
}

}  // namespace autodist::search::placement
