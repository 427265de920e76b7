#include <map>
#include <set>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {

void replicate(State& state) {
  // With cpu_only a strategy still names the GPUs of the cluster file: the places are the same, one
  // for one, under two names.
  const auto listed = cluster::ranks_of(state.cluster, false);
  const auto places = cluster::ranks_of(state.cluster, state.options.cpu_only);
  AD_CHECK(listed.size() == places.size()) << places.size() << " CPU ranks for " << listed.size();

  std::set<std::string> replicas(state.strategy.replicas.begin(), state.strategy.replicas.end());
  // Of a placed graph the order of devices says which rank computes what; else that of the ranks.
  std::map<std::string, std::uint32_t> placed;
  if (state.strategy.placement) {
    for (const std::string& device : state.strategy.placement->devices) {
      placed.emplace(device, placed.size());
    }
  }
  std::map<std::string, std::int64_t> shares;
  for (std::size_t i = 0; i < state.strategy.batch_shares.size(); ++i) {
    shares.emplace(state.strategy.replicas[i], state.strategy.batch_shares[i]);
  }
  std::uint32_t replica = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string device = cluster::device_name(state.cluster, places[i]);
    const std::string name = cluster::device_name(state.cluster, listed[i]);
    program::RankInfo rank{state.cluster.nodes[places[i].node].address, device, std::nullopt};
    if (replicas.erase(name) + replicas.erase(device) > 0) {
      if (places[i].serves_only) {
        fail(ErrorCode::kInfeasible,
             "{}: the replica '{}' is on a node with role: server, which computes nothing. Take it "
             "out of graph_config.replicas, or the role out of the cluster file.",
             state.where, name);
      }
      const auto found = placed.count(name) > 0 ? placed.find(name) : placed.find(device);
      rank.replica = found == placed.end() ? replica : found->second;
      ++replica;
      if (!shares.empty()) {
        state.program.batch_shares.push_back(shares.at(shares.count(name) > 0 ? name : device));
      }
    }
    state.program.ranks.push_back(std::move(rank));
  }
  if (!replicas.empty()) {
    fail(
        ErrorCode::kInfeasible,
        "{}: no rank computes on the replica '{}': a node with GPUs, or with slots, has no others. "
        "Plan again for this cluster.",
        state.where, *replicas.begin());
  }
}

}  // namespace autodist::passes
