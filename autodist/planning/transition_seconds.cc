#include "autodist/planning/transition_seconds.h"

#include <algorithm>
#include <map>
#include <string>

#include "autodist/base/check.h"

namespace autodist::planning {

Seconds transition_seconds(const program::Transition& transition, const program::Program& program,
                           const cluster::Cluster& cluster, const program::BytesOfMove& bytes_of) {
  std::map<std::string, const cluster::Node*> nodes;  // by address
  for (const cluster::Node& node : cluster.nodes) nodes[node.address] = &node;
  const auto node_of = [&](program::Rank rank) {
    const std::string& address = program.ranks[rank.value].node;
    const auto found = nodes.find(address);
    AD_CHECK(found != nodes.end()) << "rank " << rank << " is on " << address;
    return found->second;
  };
  std::map<const cluster::Node*, double> out;  // seconds
  std::map<const cluster::Node*, double> in;
  std::map<const cluster::Node*, double> within;
  double longest = 0;
  const auto add = [&](Bytes bytes, double rate, double& seconds) {
    seconds += static_cast<double>(bytes.value) / rate;
    longest = std::max(longest, seconds);
  };
  for (const auto& [ranks, bytes] : program::bytes_between(transition, bytes_of)) {
    const cluster::Node* const from = node_of(ranks.first);
    const cluster::Node* const to = node_of(ranks.second);
    if (from == to) {
      add(bytes, from->intra_node_bytes_per_s, within[from]);
    } else {
      add(bytes, from->bandwidth_bytes_per_s, out[from]);
      add(bytes, to->bandwidth_bytes_per_s, in[to]);
    }
  }
  return Seconds{longest};
}

}  // namespace autodist::planning
