#include "autodist/search/placement/linear_dp.h"

#include <algorithm>

#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

// Devices with the same figures: pieces are dealt to kinds, in any order.
struct Kind {
  ThroughputDevice figures;
  std::vector<DeviceIndex> devices;
};

std::vector<Kind> kinds_of(const ThroughputProblem& problem) {
  std::vector<Kind> kinds;
  for (DeviceIndex device = 0; device < problem.devices.size(); ++device) {
    const ThroughputDevice& figures = problem.devices[device];
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const Kind& kind) { return kind.figures == figures; });
    if (same == kinds.end()) {
      kinds.push_back({figures, {device}});
    } else {
      same->devices.push_back(device);
    }
  }
  return kinds;
}

// Loads of all pieces that begin at one place of the order, by their end.
class Pieces {
 public:
  Pieces(const ThroughputProblem& problem, const std::vector<std::uint32_t>& order)
      : problem_(problem), order_(order), inside_(problem.nets(), 0) {}

  // Calls visit(end, work per kind, crossing, memory) for end = begin + 1 … order.size().
  template <typename Visit>
  void from(std::size_t begin, const std::vector<Kind>& kinds, Visit visit) {
    std::vector<double> work(kinds.size(), 0);
    double crossing = 0;
    double memory = 0;
    std::size_t end = begin;
    bool goes_on = true;
    for (; end < order_.size() && goes_on; ++end) {
      const std::uint32_t group = order_[end];
      for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        work[kind] += problem_.cost_on(group, kinds[kind].devices.front());
      }
      memory += problem_.memory[group];
      for (std::uint32_t i = problem_.net_begin[group]; i < problem_.net_begin[group + 1]; ++i) {
        const std::uint32_t net = problem_.nets_of[i];
        const std::uint32_t pins = problem_.pin_begin[net + 1] - problem_.pin_begin[net];
        if (inside_[net] == 0) crossing += problem_.net_cost[net];
        if (++inside_[net] == pins) crossing -= problem_.net_cost[net];
      }
      goes_on = visit(end + 1, work, crossing, memory);
    }
    for (std::size_t at = begin; at < end; ++at) {
      const std::uint32_t group = order_[at];
      for (std::uint32_t i = problem_.net_begin[group]; i < problem_.net_begin[group + 1]; ++i) {
        inside_[problem_.nets_of[i]] = 0;
      }
    }
  }

 private:
  const ThroughputProblem& problem_;
  const std::vector<std::uint32_t>& order_;
  std::vector<std::uint32_t> inside_;
};

// best[place][used]: least largest load of order[0 … place) with used devices of every kind, `used`
// in mixed radix.
class Table {
 public:
  Table(const ThroughputProblem& problem, const std::vector<std::uint32_t>& order)
      : problem_(problem), order_(order), kinds_(kinds_of(problem)) {
    for (const Kind& kind : kinds_) {
      step_.push_back(states_);
      states_ *= kind.devices.size() + 1;
    }
    best_.assign((order.size() + 1) * states_, {kNever, 0, 0});
    best_[0].load = 0;
  }

  std::optional<std::vector<DeviceIndex>> solve() {
    Pieces pieces(problem_, order_);
    for (std::size_t begin = 0; begin < order_.size(); ++begin) {
      pieces.from(begin, kinds_,
                  [&](std::size_t end, const std::vector<double>& work, double crossing,
                      double memory) { return extend(begin, end, work, crossing, memory); });
    }
    return trace();
  }

 private:
  struct Cell {
    double load;
    std::uint32_t begin;  // of the last piece
    std::uint32_t kind;
  };

  // False when no kind can take this piece, nor a longer one.
  bool extend(std::size_t begin, std::size_t end, const std::vector<double>& work, double crossing,
              double memory) {
    const double least = end_load();
    bool some = false;
    for (std::uint32_t kind = 0; kind < kinds_.size(); ++kind) {
      if (memory > kinds_[kind].figures.memory || work[kind] == kNever || work[kind] > least) {
        continue;
      }
      some = true;
      const double load = work[kind] + crossing * kinds_[kind].figures.transfer;
      for (std::size_t state = 0; state < states_; ++state) {
        const Cell& before = best_[begin * states_ + state];
        const std::size_t used = state / step_[kind] % (kinds_[kind].devices.size() + 1);
        if (before.load == kNever || used == kinds_[kind].devices.size()) continue;
        Cell& after = best_[end * states_ + state + step_[kind]];
        const double largest = std::max(before.load, load);
        if (largest < after.load) {
          after = {largest, static_cast<std::uint32_t>(begin), kind};
        }
      }
    }
    return some;
  }

  [[nodiscard]] double end_load() const {
    double least = kNever;
    for (std::size_t state = 0; state < states_; ++state) {
      least = std::min(least, best_[order_.size() * states_ + state].load);
    }
    return least;
  }

  [[nodiscard]] std::optional<std::vector<DeviceIndex>> trace() const {
    std::size_t state = 0;
    const Cell* const row = &best_[order_.size() * states_];
    for (std::size_t s = 1; s < states_; ++s) {
      if (row[s].load < row[state].load) state = s;
    }
    if (row[state].load == kNever) return std::nullopt;
    std::vector<std::size_t> used(kinds_.size(), 0);
    std::vector<DeviceIndex> assignment(problem_.groups(), first_cpu());
    for (std::size_t end = order_.size(); end > 0;) {
      const Cell& cell = best_[end * states_ + state];
      const DeviceIndex device = kinds_[cell.kind].devices[used[cell.kind]++];
      for (std::size_t at = cell.begin; at < end; ++at) assignment[order_[at]] = device;
      end = cell.begin;
      state -= step_[cell.kind];
    }
    return assignment;
  }

  [[nodiscard]] DeviceIndex first_cpu() const {
    for (DeviceIndex device = 0; device < problem_.devices.size(); ++device) {
      if (problem_.devices[device].cpu) return device;
    }
    return 0;
  }

  const ThroughputProblem& problem_;
  const std::vector<std::uint32_t>& order_;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> step_;
  std::size_t states_ = 1;
  std::vector<Cell> best_;
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
  std::vector<std::uint32_t> stack;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    waits.push_back(neighbours.parents[i].size());
    if (waits.back() == 0) stack.push_back(i);
  }
  shuffle(stack, random);
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> ready;
  // Sources are taken when the first task that wants them is: parameters stand beside their use.
  std::vector<bool> taken(graph.tasks.size(), false);
  const auto is_source = [&](std::uint32_t task) { return neighbours.parents[task].empty(); };
  const auto take = [&](std::uint32_t task) {
    for (const std::uint32_t parent : neighbours.parents[task]) {
      if (is_source(parent) && !taken[parent]) order.push_back(parent);
      taken[parent] = true;
    }
    if (!taken[task]) order.push_back(task);
    taken[task] = true;
  };
  std::vector<std::uint32_t> sources = stack;
  stack.clear();
  for (const std::uint32_t source : sources) {
    ready.clear();
    for (const std::uint32_t child : neighbours.children[source]) {
      if (--waits[child] == 0) ready.push_back(child);
    }
    shuffle(ready, random);
    stack.insert(stack.end(), ready.begin(), ready.end());
  }
  while (!stack.empty()) {
    const std::uint32_t task = stack.back();
    stack.pop_back();
    take(task);
    ready.clear();
    for (const std::uint32_t child : neighbours.children[task]) {
      if (--waits[child] == 0) ready.push_back(child);
    }
    shuffle(ready, random);
    stack.insert(stack.end(), ready.begin(), ready.end());
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
  return Table(problem, movable).solve();
}

}  // namespace autodist::search::placement
