#include "autodist/sim/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "autodist/base/check.h"

namespace autodist::sim {
namespace {

using Knot = FittedCollective::Knot;

double line(const Knot& a, const Knot& b, double bytes) {
  return a.seconds + (b.seconds - a.seconds) * (bytes - a.bytes) / (b.bytes - a.bytes);
}

// The largest relative error of the samples strictly between two when a line joins these.
double worst_between(const std::vector<Knot>& samples, std::size_t first, std::size_t last) {
  double worst = 0;
  for (std::size_t i = first + 1; i < last; ++i) {
    const double predicted = line(samples[first], samples[last], samples[i].bytes);
    worst = std::max(worst, std::abs(predicted / samples[i].seconds - 1));
  }
  return worst;
}

// Rounds and bytes of a ring over `n` links of one kind.
double ring(double bytes, std::uint32_t n, double bytes_per_s, double per_round) {
  const auto members = static_cast<double>(n);
  const double rounds = 2 * (members - 1);
  return rounds * (per_round + bytes / members / bytes_per_s);
}

}  // namespace

FittedCollective FittedCollective::fit(const std::vector<Knot>& samples, double tolerance) {
  AD_CHECK(!samples.empty()) << "nothing to fit";
  std::vector<Knot> knots{samples.front()};
  std::size_t at = 0;
  while (at + 1 < samples.size()) {
    std::size_t next = at + 1;
    for (std::size_t i = at + 2; i < samples.size() && i < at + 64; ++i) {
      if (worst_between(samples, at, i) <= tolerance) next = i;
    }
    knots.push_back(samples[next]);
    at = next;
  }
  return FittedCollective(std::move(knots));
}

Seconds FittedCollective::seconds(double bytes) const {
  if (knots_.size() == 1) return Seconds(knots_.front().seconds);
  auto above = std::lower_bound(knots_.begin(), knots_.end(), bytes,
                                [](const Knot& knot, double value) { return knot.bytes < value; });
  if (above == knots_.begin()) ++above;
  if (above == knots_.end()) --above;
  return Seconds(std::max(0.0, line(*(above - 1), *above, bytes)));
}

Seconds all_reduce_seconds(const CollectiveCost& cost, const CollectiveLinks& links, Bytes bytes) {
  if (links.ranks < 2) return {};
  const auto size = static_cast<double>(bytes.value);
  const bool across = links.nodes > 1;
  const double rate = across ? links.node_bytes_per_s : links.intra_bytes_per_s;
  const Seconds latency = across ? links.node_latency : links.intra_latency;
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
