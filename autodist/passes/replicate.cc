// Devices -> ranks: the chief's first, then the other nodes' in file order. A rank whose device is
// a replica of the strategy takes a part of every batch; the others serve.

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {

void replicate(State& state) {
  const std::vector<cluster::Place> places =
      cluster::ranks_of(state.cluster, state.options.cpu_only);
  // With cpu_only a CPU stands for each listed GPU, under whose name the strategy knows it.
  const std::vector<cluster::Place> listed = cluster::ranks_of(state.cluster, false);
  const std::vector<std::string>& wanted = state.strategy.replicas;
  std::uint32_t replica = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    ir::RankInfo info;
    info.node = state.cluster.nodes[places[i].node].address;
    info.device = cluster::device_name(state.cluster, places[i]);
    const std::string known_as = cluster::device_name(state.cluster, listed[i]);
    const bool computes = std::find(wanted.begin(), wanted.end(), info.device) != wanted.end() ||
                          std::find(wanted.begin(), wanted.end(), known_as) != wanted.end();
    if (computes && !places[i].serves_only) {
      info.replica = replica++;
      state.replicas.push_back(ir::Rank(i));
    }
    state.program.ranks.push_back(std::move(info));
  }
  if (state.replicas.size() != wanted.size()) {
    fail(ErrorCode::kInfeasible,
         "{}: {} replicas, but {} of them are ranks of this cluster. Was it planned for another?",
         state.where, wanted.size(), state.replicas.size());
  }
}

ir::Rank rank_on(const State& state, const std::string& device) {
  const auto& ranks = state.program.ranks;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].device == device) return ir::Rank(i);
  }
  // "ADDR:CPU:0": the node's lowest rank stands for its host memory.
  const std::string node = device.substr(0, device.rfind(':', device.rfind(':') - 1));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].node == node) return ir::Rank(i);
  }
  fail(ErrorCode::kInfeasible, "{}: no rank on '{}'", state.where, device);
}

}  // namespace autodist::passes
