#include "autodist/cluster/members.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"

namespace autodist::cluster {
namespace {

std::vector<Node>::iterator at_address(std::vector<Node>& nodes, const std::string& address) {
  return std::find_if(nodes.begin(), nodes.end(),
                      [&](const Node& node) { return node.address == address; });
}

void remove_from_switches(std::vector<Switch>& switches, const std::string& address) {
  for (Switch& each : switches) std::erase(each.nodes, address);
}

void rename_in_switches(std::vector<Switch>& switches, const std::string& from,
                        const std::string& to) {
  for (Switch& each : switches) std::replace(each.nodes.begin(), each.nodes.end(), from, to);
}

}  // namespace

Members without(const Cluster& cluster, const std::vector<std::string>& lost) {
  Members members{cluster, {}};
  std::vector<Node>& nodes = members.cluster.nodes;
  std::vector<Node>& spares = members.cluster.spares;
  for (const std::string& address : lost) {
    const auto place = at_address(nodes, address);
    if (place == nodes.end()) {
      const auto unused = at_address(spares, address);
      if (unused != spares.end()) spares.erase(unused);
      continue;
    }
    if (place->chief) {
      fail(ErrorCode::kUsage,
           "{}: the chief is lost; a job is where its chief is. Start it again on another machine.",
           address);
    }
    if (spares.empty()) {
      remove_from_switches(members.cluster.switches, address);
      nodes.erase(place);
      continue;
    }
    Node spare = std::move(spares.front());
    spares.erase(spares.begin());
    spare.role = place->role;
    rename_in_switches(members.cluster.switches, address, spare.address);
    for (auto& [from, to] : members.stand_ins) {
      if (to == address) to = spare.address;
    }
    members.stand_ins[address] = spare.address;
    *place = std::move(spare);
  }
  return members;
}

}  // namespace autodist::cluster
