// The uplinks of a cluster's switches: what they carry, and which of them lie between two nodes.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/cluster/cluster.h"

namespace autodist::sim {

class Uplinks {
 public:
  Uplinks() = default;
  // `rates`: payload bytes per second of each node's port, in the cluster's order.
  Uplinks(const cluster::Cluster& cluster, const std::vector<double>& rates);

  // Bytes per second, each way by itself; empty where the cluster has no switches.
  [[nodiscard]] const std::vector<double>& rates() const { return rates_; }

  // The uplinks that a message from one node to another passes, in order.
  [[nodiscard]] const std::vector<std::uint32_t>& path(std::uint32_t from, std::uint32_t to) const;

  // What an uplink leaves to each of the messages of a ring's round where that is least. `ring`:
  // the nodes of its members, in its order. Infinite where no message passes an uplink.
  [[nodiscard]] double least_of_ring(const std::vector<std::uint32_t>& ring) const;

 private:
  std::vector<double> rates_;
  // Per node the uplinks towards the top, and downlinks back, outermost last.
  std::vector<std::vector<std::uint32_t>> up_;
  std::vector<std::vector<std::uint32_t>> down_;
  mutable std::vector<std::vector<std::uint32_t>> paths_;  // by from * nodes + to, once asked for
};

}  // namespace autodist::sim
