#include "tools/learned_placer/policy.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>

#include "autodist/base/error.h"

namespace autodist::learned {
namespace {

constexpr std::int64_t kWidth = 16;  // of a task's embedding
constexpr std::int64_t kHidden = 32;
constexpr int kRounds = 4;           // of messages, each way
constexpr std::int64_t kCosts = 2;   // columns of GraphTensors::costs
constexpr std::int64_t kOthers = 3;  // start time, visited, asked

using Reached = std::vector<std::vector<bool>>;

// Row t: the tasks before t (or behind it), by the neighbours on that side.
Reached reached_by(const std::vector<std::uint32_t>& order,
                   const std::vector<std::vector<std::uint32_t>>& nearer) {
  Reached reached(order.size(), std::vector<bool>(order.size()));
  for (const std::uint32_t task : order) {
    for (const std::uint32_t other : nearer[task]) {
      reached[task][other] = true;
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (reached[other][i]) reached[task][i] = true;
      }
    }
  }
  return reached;
}

torch::Tensor means_of(const Reached& reached) {
  const auto n = static_cast<std::int64_t>(reached.size());
  torch::Tensor rows = torch::zeros({n, n});
  auto values = rows.accessor<float, 2>();
  for (std::int64_t t = 0; t < n; ++t) {
    const auto& row = reached[static_cast<std::size_t>(t)];
    const auto count = std::count(row.begin(), row.end(), true);
    for (std::int64_t i = 0; i < n; ++i) {
      if (row[static_cast<std::size_t>(i)]) values[t][i] = 1.0F / static_cast<float>(count);
    }
  }
  return rows;
}

// Steps along edges, whichever way they point, from a set of tasks; and the member that is nearest.
struct Nearest {
  std::vector<std::int64_t> member;
  std::vector<float> nearness;
};
Nearest nearest_of(const std::vector<std::uint32_t>& set,
                   const search::placement::Neighbours& neighbours) {
  const std::size_t n = neighbours.parents.size();
  Nearest nearest{std::vector<std::int64_t>(n, set.front()), std::vector<float>(n, 0)};
  std::vector<bool> seen(n);
  std::queue<std::pair<std::uint32_t, int>> queue;
  for (const std::uint32_t member : set) {
    if (seen[member]) continue;
    seen[member] = true;
    nearest.member[member] = member;
    queue.emplace(member, 0);
  }
  while (!queue.empty()) {
    const auto [task, steps] = queue.front();
    queue.pop();
    nearest.nearness[task] = 1.0F / static_cast<float>(1 + steps);
    for (const auto* side : {&neighbours.parents[task], &neighbours.children[task]}) {
      for (const std::uint32_t other : *side) {
        if (seen[other]) continue;
        seen[other] = true;
        nearest.member[other] = nearest.member[task];
        queue.emplace(other, steps + 1);
      }
    }
  }
  return nearest;
}

torch::Tensor degrees(const std::vector<std::vector<std::uint32_t>>& side) {
  torch::Tensor counts = torch::ones({static_cast<std::int64_t>(side.size()), 1});
  for (std::size_t i = 0; i < side.size(); ++i) {
    counts[static_cast<std::int64_t>(i)][0] =
        static_cast<float>(std::max<std::size_t>(1, side[i].size()));
  }
  return counts;
}

torch::Tensor costs_of(const search::placement::TaskGraph& graph) {
  const auto n = static_cast<std::int64_t>(graph.tasks.size());
  torch::Tensor costs = torch::zeros({n, kCosts});
  auto values = costs.accessor<float, 2>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& task = graph.tasks[static_cast<std::size_t>(i)];
    double bytes = 0;
    for (const auto& output : task.outputs) bytes += output.bytes;
    values[i][0] = static_cast<float>(task.cost);
    values[i][1] = static_cast<float>(bytes);
  }
  return costs / costs.mean(0, /*keepdim=*/true).clamp_min(1e-6);
}

}  // namespace

Network parse_network(const std::string& name) {
  if (name == "placeto") return Network::kPlaceto;
  if (name == "sage") return Network::kSage;
  if (name == "pgnn") return Network::kPgnn;
  fail(ErrorCode::kUsage, "unknown network '{}', one of placeto, sage, pgnn expected", name);
}

GraphTensors::GraphTensors(const search::placement::TaskGraph& graph, std::uint64_t seed)
    : tasks(static_cast<std::int64_t>(graph.tasks.size())), costs(costs_of(graph)) {
  const search::placement::Neighbours neighbours = search::placement::neighbours_of(graph);
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
  for (std::size_t task = 0; task < neighbours.children.size(); ++task) {
    for (const std::uint32_t child : neighbours.children[task]) {
      from.push_back(static_cast<std::int64_t>(task));
      to.push_back(child);
    }
  }
  parents = torch::tensor(from, torch::kInt64);
  children = torch::tensor(to, torch::kInt64);
  parents_of = degrees(neighbours.parents);
  children_of = degrees(neighbours.children);
  std::vector<std::uint32_t> order = search::placement::topological_order(neighbours);
  ancestors = means_of(reached_by(order, neighbours.parents));
  std::reverse(order.begin(), order.end());
  descendants = means_of(reached_by(order, neighbours.children));
  // P-GNN: sets of 1, 2, 4, … tasks, as many of a size as there are sizes.
  std::mt19937_64 random(seed);
  const int sizes = std::max(1, static_cast<int>(std::log2(static_cast<double>(tasks))));
  std::vector<torch::Tensor> members;
  std::vector<torch::Tensor> near;
  for (int size = 0; size < sizes; ++size) {
    std::vector<std::uint32_t> set;
    for (int i = 0; i < (1 << size); ++i) {
      set.push_back(static_cast<std::uint32_t>(random() % static_cast<std::uint64_t>(tasks)));
    }
    const Nearest nearest = nearest_of(set, neighbours);
    members.push_back(torch::tensor(nearest.member, torch::kInt64));
    near.push_back(torch::tensor(nearest.nearness).unsqueeze(1));
  }
  anchors = torch::stack(members);
  nearness = torch::stack(near);
}

std::int64_t features(std::int64_t devices) { return kCosts + kOthers + devices; }

PolicyImpl::PolicyImpl(Network network, std::int64_t devices) : network_(network) {
  enter_ = register_module("enter", torch::nn::Linear(features(devices), kWidth));
  // Placeto's aggregate a message of one end; the others' see both.
  const std::int64_t heard = network == Network::kPlaceto ? kWidth : 2 * kWidth;
  up_message_ = register_module("up_message", torch::nn::Linear(heard, kWidth));
  up_update_ = register_module("up_update", torch::nn::Linear(kWidth, kWidth));
  down_message_ = register_module("down_message", torch::nn::Linear(heard, kWidth));
  down_update_ = register_module("down_update", torch::nn::Linear(kWidth, kWidth));
  const std::int64_t told = network == Network::kPlaceto ? 2 * kWidth : kWidth;
  hidden_ = register_module("hidden", torch::nn::Linear(4 * told, kHidden));
  logits_ = register_module("logits", torch::nn::Linear(kHidden, devices));
}

// Messages along edges, several times: h = start + update(mean of message(h) over neighbours).
torch::Tensor PolicyImpl::sweep(const torch::Tensor& start, const torch::Tensor& from,
                                const torch::Tensor& to, const torch::Tensor& degree,
                                torch::nn::Linear& message, torch::nn::Linear& update) {
  torch::Tensor h = start;
  for (int round = 0; round < kRounds; ++round) {
    const torch::Tensor sent = torch::relu(message(h)).index_select(1, from);
    const torch::Tensor heard = torch::zeros_like(start).index_add(1, to, sent) / degree;
    h = start + torch::relu(update(heard));
  }
  return h;
}

torch::Tensor PolicyImpl::embed(const GraphTensors& graph, const torch::Tensor& states) {
  const torch::Tensor start = torch::relu(enter_(states));
  switch (network_) {
    case Network::kPlaceto:
      return torch::cat(
          {sweep(start, graph.parents, graph.children, graph.parents_of, up_message_, up_update_),
           sweep(start, graph.children, graph.parents, graph.children_of, down_message_,
                 down_update_)},
          2);
    case Network::kSage: {
      torch::Tensor h = start;
      for (auto* layer : {&up_message_, &down_message_}) {
        torch::Tensor sum = torch::zeros_like(h);
        sum = sum.index_add(1, graph.children, h.index_select(1, graph.parents));
        sum = sum.index_add(1, graph.parents, h.index_select(1, graph.children));
        const torch::Tensor mean = sum / (graph.parents_of + graph.children_of);
        h = torch::relu((*layer)(torch::cat({h, mean}, 2)));
      }
      return h;
    }
    case Network::kPgnn: {
      torch::Tensor h = start;
      for (auto* layer : {&up_message_, &down_message_}) {
        torch::Tensor sum = torch::zeros_like(h);
        for (std::int64_t k = 0; k < graph.anchors.size(0); ++k) {
          const torch::Tensor near = h.index_select(1, graph.anchors[k]);
          sum = sum + (*layer)(torch::cat({h, near}, 2)) * graph.nearness[k];
        }
        h = torch::relu(sum / static_cast<double>(graph.anchors.size(0)));
      }
      return h;
    }
  }
  return start;
}

torch::Tensor PolicyImpl::forward(const GraphTensors& graph, const torch::Tensor& states,
                                  const torch::Tensor& asked) {
  const torch::Tensor h = embed(graph, states);  // [S, N, told]
  const auto of_rows = [&](const torch::Tensor& means) {
    return torch::bmm(means.index_select(0, asked).unsqueeze(1), h).squeeze(1);
  };
  const torch::Tensor own =
      h.gather(1, asked.view({-1, 1, 1}).expand({-1, 1, h.size(2)})).squeeze(1);
  const torch::Tensor seen =
      torch::cat({own, of_rows(graph.ancestors), of_rows(graph.descendants), h.mean(1)}, 1);
  return logits_(torch::relu(hidden_(seen)));
}

}  // namespace autodist::learned
