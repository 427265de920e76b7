#include "autodist/search/placement/multilevel.h"

#include <algorithm>
#include <numeric>

#include "autodist/search/placement/annealing.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

constexpr std::size_t kCoarsestPerDevice = 6;
constexpr std::uint64_t kMovesPerGroup = 2000;
constexpr double kLargestShare = 0.5;  // of a device's even share, for a cluster

// Pairs every group with the unpaired neighbour that it shares most tensor time with. A cluster may
// not outgrow half of what a device should carry.
std::vector<std::uint32_t> matched(const ThroughputProblem& problem, std::mt19937_64& random) {
  const auto groups = static_cast<std::uint32_t>(problem.groups());
  double total = 0;
  for (std::uint32_t group = 0; group < groups; ++group) {
    const double cost = problem.cost_on(group, 0);
    total += cost == kNotSupported ? 0 : cost;
  }
  const double most = kLargestShare * total / static_cast<double>(problem.devices.size());
  std::vector<std::uint32_t> visit(groups);
  std::iota(visit.begin(), visit.end(), 0u);
  shuffle(visit, random);
  std::vector<std::uint32_t> cluster(groups, kNoColour);
  std::vector<double> shared(groups, 0);
  std::uint32_t next = 0;
  for (const std::uint32_t group : visit) {
    if (cluster[group] != kNoColour) continue;
    std::vector<std::uint32_t> near;
    for (const std::uint32_t net : problem.nets_of[group]) {
      const PackedLists::List pins = problem.pins[net];
      for (const std::uint32_t pin : pins) {
        if (shared[pin] == 0) near.push_back(pin);
        shared[pin] += problem.net_cost[net] / (pins.size() - 1);
      }
    }
    std::uint32_t partner = group;
    double strongest = 0;
    for (const std::uint32_t other : near) {
      const double cost = problem.cost_on(group, 0) + problem.cost_on(other, 0);
      if (other != group && cluster[other] == kNoColour && shared[other] > strongest &&
          (cost <= most || problem.cost_on(other, 0) == 0 || problem.cost_on(group, 0) == 0)) {
        strongest = shared[other];
        partner = other;
      }
      shared[other] = 0;
    }
    cluster[group] = cluster[partner] = next++;
  }
  return cluster;
}

std::vector<DeviceIndex> annealed(const ThroughputProblem& problem,
                                  const std::vector<DeviceIndex>& start, double hot,
                                  std::mt19937_64& random) {
  AnnealingOptions options;
  options.moves = kMovesPerGroup * problem.groups();
  options.hot = hot;
  const Annealed found = anneal(problem, start, {}, options, random);
  return found.largest_load == kNotSupported ? start : found.assignment;
}

// The problem whose groups are the clusters of `problem`'s. `cluster_of` numbers them from 0
// without gaps.
ThroughputProblem contracted(const ThroughputProblem& problem,
                             const std::vector<std::uint32_t>& cluster_of) {
  ThroughputProblem coarse = problem;
  const std::size_t clusters = *std::max_element(cluster_of.begin(), cluster_of.end()) + 1;
  const std::size_t width = problem.devices.size();
  coarse.members.assign(clusters, {});
  coarse.cost.assign(clusters * width, 0);
  coarse.memory.assign(clusters, 0);
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    const std::uint32_t cluster = cluster_of[group];
    std::vector<std::uint32_t>& members = coarse.members[cluster];
    members.insert(members.end(), problem.members[group].begin(), problem.members[group].end());
    coarse.memory[cluster] += problem.memory[group];
    for (std::size_t device = 0; device < width; ++device) {
      coarse.cost[cluster * width + device] += problem.cost_on(group, device);
    }
  }
  for (std::uint32_t cluster = 0; cluster < clusters; ++cluster) {
    for (const std::uint32_t task : coarse.members[cluster]) coarse.group_of[task] = cluster;
  }
  coarse.net_cost.clear();
  coarse.pins = {};
  for (std::uint32_t net = 0; net < problem.nets(); ++net) {
    std::vector<std::uint32_t> pins;
    for (const std::uint32_t pin : problem.pins[net]) pins.push_back(cluster_of[pin]);
    coarse.add_net(std::move(pins), problem.net_cost[net]);
  }
  coarse.index_nets();
  return coarse;
}

}  // namespace

std::vector<DeviceIndex> place_multilevel(const ThroughputProblem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ThroughputProblem> levels{problem};
  std::vector<std::vector<std::uint32_t>> clusters;
  while (levels.back().groups() > kCoarsestPerDevice * problem.devices.size()) {
    std::vector<std::uint32_t> cluster_of = matched(levels.back(), random);
    ThroughputProblem coarse = contracted(levels.back(), cluster_of);
    if (coarse.groups() * 20 > levels.back().groups() * 19) break;  // nothing left to merge
    levels.push_back(std::move(coarse));
    clusters.push_back(std::move(cluster_of));
  }
  const ThroughputProblem& coarsest = levels.back();
  std::vector<DeviceIndex> assignment;
  for (std::uint32_t group = 0; group < coarsest.groups(); ++group) {
    DeviceIndex best = 0;
    for (DeviceIndex device = 1; device < problem.devices.size(); ++device) {
      if (coarsest.cost_on(group, device) < coarsest.cost_on(group, best)) best = device;
    }
    assignment.push_back(best);
  }
  assignment = annealed(coarsest, assignment, 3, random);
  for (std::size_t level = clusters.size(); level-- > 0;) {
    std::vector<DeviceIndex> finer;
    for (const std::uint32_t cluster : clusters[level]) finer.push_back(assignment[cluster]);
    assignment = annealed(levels[level], finer, 0.1, random);
  }
  return assignment;
}

}  // namespace autodist::search::placement
