#include "autodist/search/placement/ideal_dp.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "autodist/base/sort_unique.h"
#include "autodist/search/placement/piece_table.h"

namespace autodist::search::placement {
namespace {

struct Precedence {
  std::vector<std::vector<std::uint32_t>> parents;
  std::vector<std::vector<std::uint32_t>> children;
  bool usable = true;
};

Precedence precedence_of(const ThroughputProblem& problem, const TaskGraph& graph) {
  Precedence order;
  order.parents.resize(problem.groups());
  order.children.resize(problem.groups());
  std::vector<bool> forward(problem.groups(), false);
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i) {
    if (graph.tasks[i].backward) continue;
    const std::uint32_t to = problem.group_of[i];
    forward[to] = true;
    for (const TaskInput& input : graph.tasks[i].inputs) {
      const std::uint32_t from = problem.group_of[input.task.value];
      if (from != to) order.parents[to].push_back(from);
    }
  }
  order.usable = std::find(forward.begin(), forward.end(), false) == forward.end();
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    std::vector<std::uint32_t>& parents = order.parents[group];
    sort_unique(parents);
    for (const std::uint32_t parent : parents) order.children[parent].push_back(group);
  }
  return order;
}

// All ideals with the ways from each to the next larger ones; [0] is the empty one.
struct Lattice {
  struct Step {
    std::uint32_t group;
    std::uint32_t to;
  };
  std::vector<std::vector<Step>> steps;
  std::uint32_t full = 0;
  bool complete = false;  // false: too many, or a circle
};

Lattice lattice_of(const Precedence& order, std::size_t most) {
  const std::size_t groups = order.parents.size();
  Lattice lattice;
  std::unordered_map<std::string, std::uint32_t> index;  // members as bytes
  std::vector<const std::string*> members;
  const auto enter = [&](std::string ideal) {
    const auto [at, fresh] =
        index.emplace(std::move(ideal), static_cast<std::uint32_t>(members.size()));
    if (fresh) {
      members.push_back(&at->first);
      lattice.steps.emplace_back();
    }
    return at->second;
  };
  enter(std::string(groups, 0));
  for (std::uint32_t at = 0; at < members.size(); ++at) {
    if (members.size() > most) return lattice;
    const std::string& ideal = *members[at];
    for (std::uint32_t group = 0; group < groups; ++group) {
      if (ideal[group] != 0) continue;
      const auto inside = [&](std::uint32_t parent) { return ideal[parent] != 0; };
      const std::vector<std::uint32_t>& parents = order.parents[group];
      if (!std::all_of(parents.begin(), parents.end(), inside)) continue;
      std::string larger = ideal;
      larger[group] = 1;
      const std::uint32_t to = enter(std::move(larger));
      lattice.steps[at].push_back({group, to});
    }
  }
  lattice.full = static_cast<std::uint32_t>(members.size() - 1);
  lattice.complete = *members.back() == std::string(groups, 1);
  return lattice;
}

class IdealDp {
 public:
  IdealDp(const ThroughputProblem& problem, const Lattice& lattice)
      : problem_(problem),
        lattice_(lattice),
        table_(problem, lattice.full),
        seen_(lattice.steps.size(), 0),
        inside_(problem.nets(), 0),
        work_(table_.kinds().size(), 0) {}

  std::optional<std::vector<DeviceIndex>> solve() {
    // Ideals were found by size, so a smaller one is final before any that holds it.
    for (std::uint32_t from = 0; from < lattice_.steps.size(); ++from) {
      if (!table_.may_lower(from)) continue;
      from_ = from;
      ++stamp_;
      walk(from);
    }
    std::vector<DeviceIndex> assignment(problem_.groups(), 0);
    const bool dealt = table_.trace([&](std::uint32_t from, std::uint32_t to, DeviceIndex device) {
      for (const std::uint32_t group : between(from, to)) assignment[group] = device;
    });
    if (!dealt) return std::nullopt;
    return assignment;
  }

 private:
  struct Frame {
    std::uint32_t ideal;
    std::size_t next;     // step
    std::uint32_t added;  // group that led here
  };

  // Depth first over the ideals that hold from_, with the piece between kept up to date.
  void walk(std::uint32_t from) {
    std::vector<Frame> stack{{from, 0, kNoColour}};
    seen_[from] = stamp_;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next == lattice_.steps[top.ideal].size()) {
        if (top.added != kNoColour) add(top.added, -1);
        stack.pop_back();
        continue;
      }
      const Lattice::Step& step = lattice_.steps[top.ideal][top.next++];
      if (seen_[step.to] == stamp_) continue;
      seen_[step.to] = stamp_;
      add(step.group, 1);
      if (extend(step.to)) {
        stack.push_back({step.to, 0, step.group});
      } else {
        add(step.group, -1);
      }
    }
  }

  void add(std::uint32_t group, int sign) {
    for (std::size_t kind = 0; kind < work_.size(); ++kind) {
      const double cost = problem_.cost_on(group, table_.kinds()[kind].devices.front());
      // Infinite costs are counted apart: they could not be taken back.
      work_[kind] += cost == kNever ? sign * kForbidden : sign * cost;
    }
    memory_ += sign * problem_.memory[group];
    for (const std::uint32_t net : problem_.nets_of[group]) {
      const std::uint32_t pins = problem_.pins[net].size();
      const auto cuts = [&] { return inside_[net] > 0 && inside_[net] < pins; };
      const bool before = cuts();
      inside_[net] += static_cast<std::uint32_t>(sign);
      crossing_ += problem_.net_cost[net] * (static_cast<int>(cuts()) - static_cast<int>(before));
    }
  }

  // False when no kind can take the piece up to `ideal`, nor a larger one.
  bool extend(std::uint32_t ideal) {
    const double least = table_.least();
    bool some = false;
    for (std::uint32_t kind = 0; kind < work_.size(); ++kind) {
      const ThroughputDevice& figures = table_.kinds()[kind].figures;
      if (work_[kind] >= std::min(least, kForbidden) || memory_ > figures.memory) continue;
      some = true;
      table_.deal(from_, ideal, kind, work_[kind] + crossing_ * figures.transfer);
    }
    return some;
  }

  // The groups of `to` that `from` lacks, along any way between them.
  [[nodiscard]] std::vector<std::uint32_t> between(std::uint32_t from, std::uint32_t to) const {
    std::vector<bool> seen(lattice_.steps.size(), false);
    std::vector<Frame> stack{{from, 0, kNoColour}};
    seen[from] = true;
    while (stack.back().ideal != to) {
      Frame& top = stack.back();
      if (top.next == lattice_.steps[top.ideal].size()) {
        stack.pop_back();
        continue;
      }
      const Lattice::Step& step = lattice_.steps[top.ideal][top.next++];
      // Ideals are numbered by size, so the way never passes `to`'s number.
      if (seen[step.to] || step.to > to) continue;
      seen[step.to] = true;
      stack.push_back({step.to, 0, step.group});
    }
    std::vector<std::uint32_t> groups;
    for (std::size_t i = 1; i < stack.size(); ++i) groups.push_back(stack[i].added);
    return groups;
  }

  static constexpr double kForbidden = 1e30;

  const ThroughputProblem& problem_;
  const Lattice& lattice_;
  PieceTable table_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::uint32_t from_ = 0;
  std::vector<std::uint32_t> inside_;
  std::vector<double> work_;
  double crossing_ = 0;
  double memory_ = 0;
};

}  // namespace

std::optional<std::vector<DeviceIndex>> cut_by_ideals(const ThroughputProblem& problem,
                                                      const TaskGraph& graph,
                                                      std::size_t most_ideals) {
  const Precedence order = precedence_of(problem, graph);
  if (!order.usable) return std::nullopt;
  const Lattice lattice = lattice_of(order, most_ideals);
  if (!lattice.complete) return std::nullopt;
  return IdealDp(problem, lattice).solve();
}

}  // namespace autodist::search::placement
