#include "autodist/program/route.h"

#include <algorithm>
#include <map>
#include <string>

#include "autodist/base/check.h"
#include "autodist/program/loads.h"

namespace autodist::program {
namespace {

using Parents = std::map<Rank, Rank>;  // of every member but the owner

// The members from the one behind the owner on, so that no rank is first for every slice.
std::vector<Rank> behind(const Slice& slice, Rank rank) {
  const auto first = std::upper_bound(slice.members.begin(), slice.members.end(), rank);
  std::vector<Rank> order(first, slice.members.end());
  order.insert(order.end(), slice.members.begin(), first);
  std::erase(order, rank);
  return order;
}

Parents star(const Slice& slice) {
  Parents parents;
  for (const Rank member : slice.members) {
    if (member != slice.owner) parents[member] = slice.owner;
  }
  return parents;
}

// owner + 1 -> owner + 2 -> … -> owner
Parents chain(const Slice& slice) {
  Parents parents;
  const std::vector<Rank> order = behind(slice, slice.owner);
  for (std::size_t i = 0; i < order.size(); ++i) {
    parents[order[i]] = i + 1 < order.size() ? order[i + 1] : slice.owner;
  }
  return parents;
}

Parents binary_tree(const Slice& slice) {
  Parents parents;
  const std::vector<Rank> order = behind(slice, slice.owner);
  for (std::size_t i = 0; i < order.size(); ++i) {
    parents[order[i]] = i < 2 ? slice.owner : order[i / 2 - 1];
  }
  return parents;
}

// One rank speaks for each node: the owner for its own; else they take turns from slice to slice.
Parents by_node(const Program& program, const Slice& slice) {
  std::map<std::string, std::vector<Rank>> nodes;
  for (const Rank member : slice.members) nodes[program.ranks[member.value].node].push_back(member);
  Parents parents;
  for (const auto& [node, ranks] : nodes) {
    const bool at_home = node == program.ranks[slice.owner.value].node;
    const Rank first = at_home ? slice.owner : ranks[slice.owner.value % ranks.size()];
    for (const Rank rank : ranks) {
      if (rank != slice.owner) parents[rank] = rank == first ? slice.owner : first;
    }
  }
  return parents;
}

Parents contributions(const Program& program, const Slice& slice) {
  switch (route_of(slice.exchange)) {
    case Route::kDirect:
    case Route::kProxies:
      return star(slice);
    case Route::kNodes:
      return by_node(program, slice);
    case Route::kTree:
      return binary_tree(slice);
    case Route::kRing:
      return chain(slice);
  }
  AD_CHECK(false) << "unknown route";
  return {};
}

Parents results(const Program& program, const Slice& slice) {
  return route_of(slice.exchange) == Route::kProxies ? by_node(program, slice)
                                                     : contributions(program, slice);
}

// Everybody to everybody, and nothing comes back.
RouteStop stop_to_all(const Slice& slice, Rank member) {
  RouteStop stop;
  stop.installs = true;
  stop.combines = slice.members;
  stop.contributes = behind(slice, member);
  stop.contributes.push_back(member);
  return stop;
}

}  // namespace

RouteStop stop_of(const Program& program, const Slice& slice, Rank rank) {
  if (!goes_to_all(slice.exchange)) return std::move(stops_of(program, slice)[rank.value]);
  const bool member = std::binary_search(slice.members.begin(), slice.members.end(), rank);
  return member ? stop_to_all(slice, rank) : RouteStop{};
}

std::vector<RouteStop> stops_of(const Program& program, const Slice& slice) {
  std::vector<RouteStop> stops(program.ranks.size());
  if (goes_to_all(slice.exchange)) {
    for (const Rank member : slice.members) stops[member.value] = stop_to_all(slice, member);
    return stops;
  }
  const Parents up = contributions(program, slice);
  for (const auto& [child, parent] : up) stops[parent.value].combines.push_back(child);
  for (const Rank member : slice.members) stops[member.value].installs = true;
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const Rank rank(i);
    RouteStop& stop = stops[i];
    const bool meets = !stop.combines.empty() || rank == slice.owner;
    if (stop.installs) stop.contributes = {meets ? rank : up.at(rank)};
    if (meets && stop.installs) {
      stop.combines.insert(std::upper_bound(stop.combines.begin(), stop.combines.end(), rank),
                           rank);
    }
    if (meets && rank != slice.owner) stop.onward = up.at(rank);
  }
  for (const auto& [child, parent] : results(program, slice)) {
    stops[parent.value].returns.push_back(child);
  }
  for (std::size_t i = 0; i < stops.size(); ++i) {  // nearest behind first
    std::vector<Rank>& returns = stops[i].returns;
    std::rotate(returns.begin(), std::upper_bound(returns.begin(), returns.end(), Rank(i)),
                returns.end());
  }
  return stops;
}

Route effective_route(const Program& program, const Slice& slice, Route route) {
  const bool owner_too =
      std::binary_search(slice.members.begin(), slice.members.end(), slice.owner);
  if (slice.members.size() + (owner_too ? 0 : 1) <= 2) return Route::kDirect;
  if (route != Route::kProxies && route != Route::kNodes) return route;
  std::vector<std::string> nodes;
  for (const Rank member : slice.members) nodes.push_back(program.ranks[member.value].node);
  std::sort(nodes.begin(), nodes.end());
  const bool shared = std::adjacent_find(nodes.begin(), nodes.end()) != nodes.end();
  return shared ? route : Route::kDirect;
}

void meet_on_nodes(Program& program) {
  for (Slice& slice : program.slices) {
    std::get<Dense>(slice.exchange.payload).route = effective_route(program, slice, Route::kNodes);
  }
}

}  // namespace autodist::program
