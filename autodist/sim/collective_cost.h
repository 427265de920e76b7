// What an all-reduce of a library costs when nothing else uses the links.

#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/sim/uplinks.h"

namespace autodist::sim {

// What lies between the members of a collective.
struct CollectiveLinks {
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;
  // The slowest node's NIC, payload; or what a switch's uplink leaves to a message of its ring.
  double node_bytes_per_s = 0;
  Seconds node_latency;
  // The slowest link between ranks of one node; infinite where no node has two of them.
  double intra_bytes_per_s = std::numeric_limits<double>::infinity();
  Seconds intra_latency{1e-6};
};

// Of one node.
struct NodeLinks {
  double bytes_per_s = 0;  // payload that its NIC carries, each way
  Seconds latency;
  double intra_bytes_per_s = 0;  // between its ranks
};
// `ring`: the nodes of the members, in the order of the ranks; numbers in `nodes`, not empty.
CollectiveLinks links_of(const std::vector<std::uint32_t>& ring,
                         const std::vector<NodeLinks>& nodes, const Uplinks& uplinks);

enum class CollectiveKind : std::uint8_t {
  kRing,             // alpha-beta: 2 (n-1) rounds of bytes / n
  kStoreAndForward,  // ASTRA-sim's analytical ring, to the nanosecond
};

struct CollectiveCost {
  CollectiveKind kind = CollectiveKind::kRing;
  Seconds start{20e-6};           // per call: launch and agreement
  Seconds round{5e-6};            // per round, besides the link's latency
  double efficiency = 0.9;        // of the link's payload rate
  double cpu_s_per_byte = 6e-10;  // of the host's cores, for bytes sent and received; 0 on devices
};

// Bytes of one of the `count` parts that a ring cuts `bytes` into, as even as they can be.
constexpr std::int64_t ring_part(std::int64_t bytes, std::int64_t index, std::int64_t count) {
  return bytes * (index + 1) / count - bytes * index / count;
}

// Bytes per second of a ring over all members, of the narrowest link that it passes; and what
// passing a part on takes besides.
double ring_bytes_per_s(const CollectiveLinks& links);
Seconds ring_latency(const CollectiveLinks& links);

// An all-reduce of `bytes` over all members. 0 for a single rank.
Seconds all_reduce_seconds(const CollectiveCost& cost, const CollectiveLinks& links, Bytes bytes);

// ASTRA-sim's analytical backend (Won et al., "ASTRA-sim2.0", ISPASS 2023), a ring all-reduce in
// `splits` chunks one after another, each message stored and forwarded. In whole nanoseconds.
struct StoreAndForward {
  std::int64_t splits = 4;
  double gb_per_s = 50;           // as written there: GB/s * 2^30 / 10^9 bytes per ns
  std::int64_t latency_ns = 500;  // per hop
  std::int64_t hops = 1;          // 1 on a ring, 2 through a switch
  std::int64_t endpoint_delay_ns = 10;
  double local_bytes_per_ns = 1600;  // local memory
};
std::int64_t store_and_forward_ns(const StoreAndForward& ring, std::int64_t bytes,
                                  std::int64_t ranks);

}  // namespace autodist::sim
