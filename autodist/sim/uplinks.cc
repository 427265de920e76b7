#include "autodist/sim/uplinks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace autodist::sim {

// A switch's uplink carries 1/o of the sum of its ports, each way; the topmost one needs none.
Uplinks::Uplinks(const cluster::Cluster& cluster, const std::vector<double>& rates)
    : up_(rates.size()), down_(rates.size()) {
  if (cluster.switches.empty()) return;
  std::map<std::string, std::size_t> switch_of;  // by name of what hangs below it
  for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
    for (const std::string& name : cluster.switches[i].nodes) switch_of[name] = i;
  }
  std::vector<double> ports(cluster.switches.size());
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    auto above = switch_of.find(cluster.nodes[i].address);
    for (double rate = rates[i]; above != switch_of.end();) {
      ports[above->second] += rate;
      rate /= cluster.switches[above->second].oversubscription;
      above = switch_of.find(cluster.switches[above->second].name);
    }
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {  // up, then down
    const double rate = ports[i] / cluster.switches[i].oversubscription;
    rates_.insert(rates_.end(), 2, rate);
  }
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    auto above = switch_of.find(cluster.nodes[i].address);
    while (above != switch_of.end()) {
      up_[i].push_back(static_cast<std::uint32_t>(2 * above->second));
      down_[i].push_back(static_cast<std::uint32_t>(2 * above->second + 1));
      above = switch_of.find(cluster.switches[above->second].name);
    }
  }
}

// Up to the lowest switch that both hang below, and down again.
const std::vector<std::uint32_t>& Uplinks::path(std::uint32_t from, std::uint32_t to) const {
  static const std::vector<std::uint32_t> kDirect;
  if (rates_.empty()) return kDirect;
  if (paths_.empty()) paths_.resize(up_.size() * up_.size());
  std::vector<std::uint32_t>& path = paths_[from * up_.size() + to];
  if (!path.empty()) return path;
  std::size_t shared = 0;  // switches above both
  const auto& a = up_[from];
  const auto& b = up_[to];
  while (shared < a.size() && shared < b.size() &&
         a[a.size() - 1 - shared] == b[b.size() - 1 - shared]) {
    ++shared;
  }
  for (std::size_t i = 0; i + shared < a.size(); ++i) path.push_back(a[i]);
  for (std::size_t i = b.size() - shared; i-- > 0;) path.push_back(down_[to][i]);
  return path;
}

double Uplinks::least_of_ring(const std::vector<std::uint32_t>& ring) const {
  std::vector<double> messages(rates_.size());  // of a round, by uplink
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const std::uint32_t next = ring[(i + 1) % ring.size()];
    if (next == ring[i]) continue;
    for (std::uint32_t uplink : path(ring[i], next)) {
      ++messages[uplink];
      least = std::min(least, rates_[uplink] / messages[uplink]);
    }
  }
  return least;
}

}  // namespace autodist::sim
