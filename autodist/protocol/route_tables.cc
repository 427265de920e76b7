#include "autodist/protocol/route_tables.h"

#include "autodist/program/route.h"

namespace autodist::protocol {
namespace {

TableStop flat(const program::RouteStop& stop) {
  TableStop flat;
  flat.combines = static_cast<std::uint32_t>(stop.combines.size());
  if (!stop.contributes.empty()) flat.contributes = stop.contributes.front().value;
  if (stop.onward) flat.onward = stop.onward->value;
  for (const program::Rank to : stop.returns) flat.returns.push_back(to.value);
  flat.installs = stop.installs;
  return flat;
}

bool goes_by_node(program::Route route) {
  return route == program::Route::kProxies || route == program::Route::kNodes;
}

}  // namespace

TurnedRoute RouteTables::add(const program::Slice& slice) {
  const auto* dense = std::get_if<program::Dense>(&slice.exchange.payload);
  if (dense == nullptr || dense->route == program::Route::kDirect) return {};
  // Chains and trees know members alone; by node whole nodes may be turned.
  TurnedRoute added;
  const bool all = slice.members.size() == ranks_;
  if (all && !goes_by_node(dense->route)) {
    added.turned = slice.owner.value;
  } else if (all && ranks_per_node_ != 0) {
    added.turned = slice.owner.value - slice.owner.value % ranks_per_node_;
  }
  program::Slice in_table = slice;
  in_table.owner = program::Rank(slice.owner.value - added.turned);
  const Key key{dense->route, in_table.owner.value,
                all ? std::vector<program::Rank>{} : slice.members};
  const auto [number, is_new] = numbers_.emplace(key, static_cast<std::uint32_t>(tables_.size()));
  if (is_new) {
    tables_.emplace_back();
    for (const program::RouteStop& stop : program::stops_of(*program_, in_table)) {
      tables_.back().push_back(flat(stop));
    }
  }
  added.table = number->second;
  return added;
}

}  // namespace autodist::protocol
