#include "autodist/search/placement/linear_dp.h"

#include "autodist/search/placement/piece_table.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

// The best way to cut an order in pieces.
class LinearDp {
 public:
  LinearDp(const ThroughputProblem& problem, const std::vector<std::uint32_t>& order)
      : problem_(problem),
        order_(order),
        table_(problem, order.size()),
        inside_(problem.nets(), 0) {}

  std::optional<std::vector<DeviceIndex>> solve() {
    for (std::size_t begin = 0; begin < order_.size(); ++begin) deal_from(begin);
    std::vector<DeviceIndex> assignment(problem_.groups(), first_cpu());
    const bool dealt = table_.trace([&](std::size_t begin, std::size_t end, DeviceIndex device) {
      for (std::size_t at = begin; at < end; ++at) assignment[order_[at]] = device;
    });
    if (!dealt) return std::nullopt;
    return assignment;
  }

 private:
  // All pieces that begin there and that some kind can take.
  void deal_from(std::size_t begin) {
    std::vector<double> work(table_.kinds().size(), 0);
    double crossing = 0;
    double memory = 0;
    std::size_t end = begin;
    for (bool goes_on = true; goes_on && end < order_.size();) {
      const std::uint32_t group = order_[end++];
      for (std::size_t kind = 0; kind < work.size(); ++kind) {
        work[kind] += problem_.cost_on(group, table_.kinds()[kind].devices.front());
      }
      memory += problem_.memory[group];
      for (const std::uint32_t net : problem_.nets_of[group]) {
        if (inside_[net] == 0) crossing += problem_.net_cost[net];
        if (++inside_[net] == problem_.pins[net].size()) crossing -= problem_.net_cost[net];
      }
      goes_on = deal(begin, end, work, crossing, memory);
    }
    for (std::size_t at = begin; at < end; ++at) {
      for (const std::uint32_t net : problem_.nets_of[order_[at]]) inside_[net] = 0;
    }
  }

  // False when no kind can take this piece, nor a longer one.
  bool deal(std::size_t begin, std::size_t end, const std::vector<double>& work, double crossing,
            double memory) {
    const double least = table_.least();
    bool some = false;
    for (std::uint32_t kind = 0; kind < work.size(); ++kind) {
      const ThroughputDevice& figures = table_.kinds()[kind].figures;
      if (memory > figures.memory || work[kind] == kNever || work[kind] > least) continue;
      some = true;
      table_.deal(begin, end, kind, work[kind] + crossing * figures.transfer);
    }
    return some;
  }

  [[nodiscard]] DeviceIndex first_cpu() const {
    for (DeviceIndex device = 0; device < problem_.devices.size(); ++device) {
      if (problem_.devices[device].cpu) return device;
    }
    return 0;
  }

  const ThroughputProblem& problem_;
  const std::vector<std::uint32_t>& order_;
  PieceTable table_;
  std::vector<std::uint32_t> inside_;  // by net: its pins in the piece
};

bool runs_on_accelerators(const ThroughputProblem& problem, std::uint32_t group) {
  for (std::size_t device = 0; device < problem.devices.size(); ++device) {
    if (!problem.devices[device].cpu && problem.cost_on(group, device) != kNever) return true;
  }
  return false;
}

}  // namespace

std::vector<std::uint32_t> group_order(const ThroughputProblem& problem, const TaskGraph& graph,
                                       const std::vector<std::uint32_t>& tasks) {
  std::vector<bool> seen(problem.groups(), false);
  std::vector<std::uint32_t> order;
  for (const bool backward : {false, true}) {  // groups of backward tasks alone come last
    for (const std::uint32_t task : tasks) {
      const std::uint32_t group = problem.group_of[task];
      if (graph.tasks[task].backward != backward || seen[group]) continue;
      seen[group] = true;
      order.push_back(group);
    }
  }
  return order;
}

std::vector<std::uint32_t> unrolled(const TaskGraph& graph, std::mt19937_64& random) {
  const Neighbours neighbours = neighbours_of(graph);
  std::vector<std::size_t> waits;
  std::vector<std::uint32_t> sources;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    waits.push_back(neighbours.parents[i].size());
    if (waits.back() == 0) sources.push_back(i);
  }
  shuffle(sources, random);
  std::vector<std::uint32_t> stack;
  const auto release_children = [&](std::uint32_t task) {
    std::vector<std::uint32_t> ready;
    for (const std::uint32_t child : neighbours.children[task]) {
      if (--waits[child] == 0) ready.push_back(child);
    }
    shuffle(ready, random);
    stack.insert(stack.end(), ready.begin(), ready.end());
  };
  for (const std::uint32_t source : sources) release_children(source);
  std::vector<std::uint32_t> order;
  // Sources are taken when the first task that wants them is: parameters stand beside their use.
  std::vector<bool> taken(graph.tasks.size(), false);
  while (!stack.empty()) {
    const std::uint32_t task = stack.back();
    stack.pop_back();
    for (const std::uint32_t parent : neighbours.parents[task]) {
      if (neighbours.parents[parent].empty() && !taken[parent]) order.push_back(parent);
      taken[parent] = true;
    }
    if (!taken[task]) order.push_back(task);
    taken[task] = true;
    release_children(task);
  }
  for (const std::uint32_t source : sources) {
    if (!taken[source]) order.push_back(source);  // nobody reads it
  }
  return order;
}

std::optional<std::vector<DeviceIndex>> cut_linearly(const ThroughputProblem& problem,
                                                     const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> movable;
  for (const std::uint32_t group : order) {
    if (runs_on_accelerators(problem, group)) movable.push_back(group);
  }
  return LinearDp(problem, movable).solve();
}

}  // namespace autodist::search::placement
