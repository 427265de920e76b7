#include "autodist/program/relays.h"

#include <algorithm>
#include <optional>

#include "autodist/program/route.h"

namespace autodist::program {
namespace {

// Where a member's contribution goes first, or what meets there; nothing at the owner.
std::optional<Rank> next_of(const RouteStop& stop, Rank rank) {
  if (stop.onward) return stop.onward;
  if (stop.contributes.front() != rank) return stop.contributes.front();
  return {};
}

Relay relay_of(const Program& program, Route route, const std::vector<std::uint32_t>& members,
               const std::vector<std::uint32_t>& node_of_rank, std::size_t nodes) {
  const std::size_t n = members.size();
  Slice slice;
  slice.exchange.payload = Dense{route};
  slice.owner = Rank(members.front());
  for (const std::uint32_t member : members) slice.members.emplace_back(member);
  const std::vector<RouteStop> stops = stops_of(program, slice);

  // Of the first member's slices; every other member's are these, turned.
  std::vector<std::optional<std::size_t>> next(n);
  double summed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const RouteStop& stop = stops[members[i]];
    summed += static_cast<double>(stop.combines.size());
    if (const auto to = next_of(stop, Rank(members[i]))) {
      const auto found = std::lower_bound(members.begin(), members.end(), to->value);
      next[i] = static_cast<std::size_t>(found - members.begin());
    }
  }
  Relay relay;
  relay.nodes.resize(nodes);
  relay.summed = summed / static_cast<double>(n);
  const double share = 1 / static_cast<double>(n);
  std::vector<double> across(n);  // by member
  std::vector<double> inside(n);
  for (std::size_t i = 0; i < n; ++i) {
    double hops = 0;
    for (std::size_t at = i; next[at]; at = *next[at]) hops += 1;
    relay.hops = std::max(relay.hops, hops);
    for (std::size_t turn = 0; next[i] && turn < n; ++turn) {
      const std::size_t sender = (i + turn) % n;
      const std::size_t receiver = (*next[i] + turn) % n;
      const std::uint32_t from = node_of_rank[members[sender]];
      const std::uint32_t to = node_of_rank[members[receiver]];
      std::vector<double>& of_ranks = from == to ? inside : across;
      of_ranks[sender] += share;
      of_ranks[receiver] += share;
      if (from == to) {
        relay.nodes[from].inside += share;
      } else {
        relay.nodes[from].sent += share;
        relay.nodes[to].received += share;
      }
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    Relay::Node& node = relay.nodes[node_of_rank[members[i]]];
    node.busiest_across = std::max(node.busiest_across, across[i]);
    node.busiest_inside = std::max(node.busiest_inside, inside[i]);
  }
  return relay;
}

}  // namespace

std::map<Route, Relay> relays_of(const Program& program, const std::vector<std::uint32_t>& members,
                                 const std::vector<std::uint32_t>& node_of_rank,
                                 std::size_t nodes) {
  std::map<Route, Relay> relays;
  if (members.size() < 3) return relays;
  for (const Route route : {Route::kRing, Route::kTree}) {
    relays.emplace(route, relay_of(program, route, members, node_of_rank, nodes));
  }
  return relays;
}

}  // namespace autodist::program
