#include "autodist/sim/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "autodist/base/sort_unique.h"

namespace autodist::sim {
namespace {

// Rounds and bytes of a ring over `n` links of one kind.
double ring(double bytes, std::uint32_t n, double bytes_per_s, double per_round) {
  const auto members = static_cast<double>(n);
  const double rounds = 2 * (members - 1);
  return rounds * (per_round + bytes / members / bytes_per_s);
}

}  // namespace

CollectiveLinks links_of(const std::vector<std::uint32_t>& ring,
                         const std::vector<NodeLinks>& nodes, const Uplinks& uplinks) {
  CollectiveLinks links;
  links.ranks = static_cast<std::uint32_t>(ring.size());
  std::vector<std::uint32_t> used = ring;
  sort_unique(used);
  links.nodes = static_cast<std::uint32_t>(used.size());
  links.node_bytes_per_s = std::min(nodes[used.front()].bytes_per_s, uplinks.least_of_ring(ring));
  for (const std::uint32_t node : used) {
    links.node_bytes_per_s = std::min(links.node_bytes_per_s, nodes[node].bytes_per_s);
    links.node_latency = std::max(links.node_latency, nodes[node].latency);
    if (std::count(ring.begin(), ring.end(), node) < 2) continue;
    links.intra_bytes_per_s = std::min(links.intra_bytes_per_s, nodes[node].intra_bytes_per_s);
  }
  return links;
}

Seconds ring_latency(const CollectiveLinks& links) {
  return links.nodes < 2 ? links.intra_latency : links.node_latency;
}

double ring_bytes_per_s(const CollectiveLinks& links) {
  if (links.nodes < 2) return links.intra_bytes_per_s;
  return std::min(links.node_bytes_per_s, links.intra_bytes_per_s);
}

Seconds all_reduce_seconds(const CollectiveCost& cost, const CollectiveLinks& links, Bytes bytes) {
  if (links.ranks < 2) return {};
  const auto size = static_cast<double>(bytes.value);
  const double rate = ring_bytes_per_s(links);
  const Seconds latency = ring_latency(links);
  switch (cost.kind) {
    case CollectiveKind::kRing:
      return cost.start + Seconds(ring(size, links.ranks, rate * cost.efficiency,
                                       cost.round.value + latency.value));
    case CollectiveKind::kStoreAndForward: {
      StoreAndForward exact;
      exact.gb_per_s = rate / (1 << 30);
      exact.latency_ns = std::llround(latency.value * 1e9);
      return Seconds(static_cast<double>(store_and_forward_ns(exact, bytes.value, links.ranks)) *
                     1e-9);
    }
  }
  return {};
}

std::int64_t store_and_forward_ns(const StoreAndForward& ring, std::int64_t bytes,
                                  std::int64_t ranks) {
  if (ranks < 2) return 0;
  const double message = static_cast<double>(bytes) / static_cast<double>(ring.splits * ranks);
  const double bytes_per_ns = ring.gb_per_s * static_cast<double>(1 << 30) / 1e9;
  const auto wire = static_cast<std::int64_t>(message / bytes_per_ns +
                                              static_cast<double>(ring.hops * ring.latency_ns));
  const auto local = static_cast<std::int64_t>(message / ring.local_bytes_per_ns);
  return ring.splits * (2 * (ranks - 1) * (wire + ring.endpoint_delay_ns) +
                        3 * (ranks - 1) * local + ring.endpoint_delay_ns);
}

}  // namespace autodist::sim
