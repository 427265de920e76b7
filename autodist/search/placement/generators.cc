#include "autodist/search/placement/generators.h"

#include <cmath>
#include <random>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr double kBackwardShare = 2;  // a backward task's cost over its forward task's

class Forward {
 public:
  explicit Forward(std::uint64_t seed) : random_(seed) {}

  // A task of about `cost` µs with one output of about `bytes`, both within a fifth.
  std::uint32_t add(const std::string& name, double cost, double bytes,
                    const std::vector<std::uint32_t>& inputs) {
    Task task;
    task.name = fmt::format("{:03}_{}", graph_.tasks.size(), name);
    task.cost = std::floor(cost * varied());
    task.outputs = {{std::floor(bytes * varied()), std::nullopt}};
    for (const std::uint32_t input : inputs) task.inputs.push_back({TaskId(input), 0});
    graph_.tasks.push_back(std::move(task));
    return static_cast<std::uint32_t>(graph_.tasks.size() - 1);
  }
  std::uint32_t below(std::uint32_t bound) { return placement::below(bound, random_); }

  // With a backward task for every forward one.
  TaskGraph trained() {
    std::vector<double> costs;
    for (const Task& task : graph_.tasks) costs.push_back(kBackwardShare * task.cost);
    add_backward_tasks(graph_, costs);
    return std::move(graph_);
  }

 private:
  double varied() { return 0.8 + 0.4 * fraction(random_); }

  std::mt19937_64 random_;
  TaskGraph graph_;
};

TaskGraph cells(std::uint64_t seed) {
  Forward graph(seed);
  const std::uint32_t count = 18 + graph.below(5);
  double bytes = 4e6;
  std::uint32_t before = graph.add("stem", 800, bytes, {});
  std::uint32_t last = graph.add("stem", 800, bytes, {before});
  for (std::uint32_t cell = 0; cell < count; ++cell) {
    std::vector<std::uint32_t> nodes{before, last};
    std::vector<bool> read(7, false);
    for (int node = 0; node < 5; ++node) {
      const auto known = static_cast<std::uint32_t>(nodes.size());
      const std::uint32_t one = graph.below(known);
      const std::uint32_t other = graph.below(known);
      read[one] = read[other] = true;
      nodes.push_back(
          graph.add("node", 200 + 200 * graph.below(4), bytes / 2, {nodes[one], nodes[other]}));
    }
    std::vector<std::uint32_t> loose;
    for (std::size_t node = 2; node < nodes.size(); ++node) {
      if (!read[node]) loose.push_back(nodes[node]);
    }
    before = last;
    last = graph.add("concat", 60, bytes, loose);
    if (cell % (count / 3) == count / 3 - 1) bytes /= 2;  // reduction
  }
  graph.add("loss", 100, 4, {last});
  return graph.trained();
}

// The output of attention of `queries` over `memory`.
std::uint32_t attention(Forward& graph, std::uint32_t queries, std::uint32_t memory, double bytes) {
  const std::uint32_t q = graph.add("query", 250, bytes, {queries});
  const std::uint32_t k = graph.add("key", 250, bytes, {memory});
  const std::uint32_t v = graph.add("value", 250, bytes, {memory});
  const std::uint32_t scores = graph.add("scores", 180, 2 * bytes, {q, k});
  const std::uint32_t context = graph.add("context", 180, bytes, {scores, v});
  return graph.add("project", 250, bytes, {context, queries});
}

TaskGraph attention_network(std::uint64_t seed) {
  Forward graph(seed);
  const std::uint32_t layers = 5 + graph.below(3);
  const double bytes = 1e6 * (1 + graph.below(4));
  const auto feed_forward = [&](std::uint32_t input) {
    const std::uint32_t wide = graph.add("expand", 600, 4 * bytes, {input});
    return graph.add("contract", 600, bytes, {wide, input});
  };
  std::uint32_t encoded = graph.add("embed", 100, bytes, {});
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    encoded = feed_forward(attention(graph, encoded, encoded, bytes));
  }
  std::uint32_t decoded = graph.add("embed", 100, bytes, {});
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    decoded = attention(graph, decoded, decoded, bytes);
    decoded = feed_forward(attention(graph, decoded, encoded, bytes));
  }
  graph.add("loss", 1500, 4, {decoded});
  return graph.trained();
}

TaskGraph recurrent_network(std::uint64_t seed) {
  Forward graph(seed);
  const std::uint32_t layers = 2 + graph.below(3);
  const std::uint32_t steps = 40 / layers + graph.below(6);
  const double bytes = 2e5 * (1 + graph.below(5));
  std::vector<std::uint32_t> state;
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::uint32_t below = graph.add("embed", 50, bytes, {});
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      std::vector<std::uint32_t> inputs{below};
      if (step > 0) inputs.push_back(state[layer]);
      const std::uint32_t gates = graph.add("gates", 500, 4 * bytes, inputs);
      below = graph.add("cell", 80, bytes, {gates});
      if (step == 0) state.push_back(below);
      state[layer] = below;
    }
    graph.add("softmax", 700, 4, {below});
  }
  return graph.trained();
}

}  // namespace

std::vector<std::string> families() { return {"cells", "attention", "recurrent"}; }

TaskGraph generate(const std::string& family, std::uint64_t seed) {
  TaskGraph graph;
  if (family == "cells") {
    graph = cells(seed);
  } else if (family == "attention") {
    graph = attention_network(seed);
  } else if (family == "recurrent") {
    graph = recurrent_network(seed);
  } else {
    fail(ErrorCode::kUsage, "unknown family '{}', one of {} expected{}", family,
         fmt::join(families(), ", "), nearest_hint(family, families()));
  }
  graph.name = fmt::format("{}-{}", family, seed);
  verify(graph, graph.name);
  return graph;
}

}  // namespace autodist::search::placement
