#include "autodist/planning/link_tuning.h"

#include <algorithm>
#include <cmath>

#include "autodist/sim/collective_cost.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/uplinks.h"

namespace autodist::planning {
namespace {

constexpr double kCostOfWire = 0.03;
constexpr Bytes kSmallestSlice{64 << 10};
constexpr Bytes kSmallestOfFew{16 << 10};  // where little is exchanged
constexpr Bytes kLargestSlice{1 << 20};
constexpr Bytes kLargestWindow{16 << 20};
// Until a thread that has something to receive gets a core on which another one computes, and the
// same again for the answer. That one offers its core once a millisecond, between two ops
// (docs/decisions/179); ops of models that exchange much take longer than that.
constexpr Seconds kTurnAround{0.006};
constexpr Seconds kTurnAroundOfFew{0.003};  // where little is exchanged
constexpr Seconds kMessageCost{70e-6};      // at both ends, where nobody has measured it

constexpr double kShortestRound = 1e-6;  // seconds
constexpr double kLeastEfficiency = 0.01;

Bytes power_of_two(double at_least, Bytes smallest, Bytes largest) {
  Bytes size = smallest;
  while (size < largest && static_cast<double>(size.value) < at_least) size += size;
  return size;
}

// As if all of every variable were: of sparse ones slices are cut by their rows.
Bytes exchanged_bytes(const ir::Graph& graph) {
  Bytes bytes;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    if (graph.variables[i].gradient) bytes += ir::bytes_of(graph, ir::VariableId(i));
  }
  return bytes;
}

// Of a ring over all ranks.
sim::CollectiveLinks links_of(const cluster::Cluster& cluster) {
  std::vector<sim::NodeLinks> nodes;
  std::vector<double> cards;
  for (const cluster::Node& node : cluster.nodes) {
    const double payload = node.bandwidth_bytes_per_s * sim::EngineCost{}.goodput;
    nodes.push_back({payload, node.latency, node.intra_node_bytes_per_s});
    cards.push_back(payload);
  }
  std::vector<std::uint32_t> ring;
  for (const cluster::Place& place : cluster::computing_ranks_of(cluster)) {
    ring.push_back(static_cast<std::uint32_t>(place.node));
  }
  return sim::links_of(ring, nodes, sim::Uplinks(cluster, cards));
}

}  // namespace

LinkTuning tune(const comm::LinkFigures& figures, Bytes exchanged) {
  const double rate = figures.bandwidth_bytes_per_s;
  const double free = rate * figures.message_cost.value;  // bytes that pass while a message costs
  LinkTuning tuning;
  // In slices of s bytes B bytes take B / rate, what their messages cost, B / s * cost, and, as a
  // slice goes back only when it is whole, the last one's way once more, s / rate: the least at
  // s = sqrt(B * cost * rate). The nearest power of two is the next one from s / sqrt(2) on.
  tuning.slice = std::min(power_of_two(free / kCostOfWire, kSmallestSlice, kLargestSlice),
                          power_of_two(std::sqrt(static_cast<double>(exchanged.value) * free / 2),
                                       kSmallestOfFew, kLargestSlice));
  const Seconds turn_around = tuning.slice < kSmallestSlice ? kTurnAroundOfFew : kTurnAround;
  tuning.window = power_of_two(rate * (figures.round_trip + turn_around).value,
                               tuning.slice + tuning.slice, kLargestWindow);
  return tuning;
}

std::optional<comm::LinkFigures> declared_links(const cluster::Cluster& cluster) {
  if (cluster.nodes.size() < 2) return {};
  comm::LinkFigures figures;
  figures.message_cost = kMessageCost;
  const cluster::SlowestLink link = cluster::slowest_link(cluster);
  figures.bandwidth_bytes_per_s = link.bytes_per_s * sim::EngineCost{}.goodput;
  figures.round_trip = link.latency + link.latency + figures.message_cost;
  return figures;
}

void tune_to(const std::optional<comm::LinkFigures>& figures, const ir::Graph& graph,
             passes::Options& options) {
  if (!figures) return;
  const LinkTuning tuning = tune(*figures, exchanged_bytes(graph));
  options.slice_bytes = tuning.slice;
  options.window = tuning.window;
}

passes::Options declared_options(const cluster::Cluster& cluster, const ir::Graph& graph,
                                 bool cpu_only) {
  passes::Options options;
  options.cpu_only = cpu_only;
  tune_to(declared_links(cluster), graph, options);
  return options;
}

void put_tuning(const comm::LinkFigures& figures, const ir::Graph& graph,
                strategy::Strategy& strategy) {
  const LinkTuning tuning = tune(figures, exchanged_bytes(graph));
  if (strategy.slice_bytes == Bytes{0}) strategy.slice_bytes = tuning.slice;
  if (strategy.window_bytes == Bytes{0}) {
    strategy.window_bytes = std::max(tuning.window, strategy.slice_bytes + strategy.slice_bytes);
  }
}

sim::Calibration library_costs(const comm::LibraryFigures& figures, std::size_t ranks,
                               const cluster::Cluster& cluster) {
  const sim::CollectiveLinks links = links_of(cluster);
  const double rate = sim::ring_bytes_per_s(links);
  const Seconds latency = sim::ring_latency(links);
  const auto members = static_cast<double>(ranks);
  const double rounds = 2 * (members - 1);
  const double round = std::max(figures.call.value / rounds - latency.value, kShortestRound);
  const double moved = rounds / members;  // times the buffer, each way at every rank
  const auto rounded = [](double value) { return std::exp2(std::round(2 * std::log2(value)) / 2); };
  return {{"collective_start_seconds", 0},
          {"collective_round_seconds", rounded(round)},
          {"collective_efficiency",
           std::clamp(rounded(moved * figures.bytes_per_s / rate), kLeastEfficiency, 1.0)}};
}

void add_library(const std::optional<comm::LibraryFigures>& figures, std::size_t ranks,
                 const cluster::Cluster& cluster, sim::Calibration& calibration) {
  if (figures) calibration.merge(library_costs(*figures, ranks, cluster));
}

void add_cores(std::optional<std::uint32_t> cores, sim::Calibration& calibration) {
  if (cores) calibration.emplace("cores", *cores);
}

}  // namespace autodist::planning
