#include "autodist/protocol/ways.h"

#include "autodist/program/route.h"

namespace autodist::protocol {
namespace {

WayStop stop_of(const program::Way& way) {
  WayStop stop;
  stop.combines = static_cast<std::uint32_t>(way.combines.size());
  if (!way.contributes.empty()) stop.contributes = way.contributes.front().value;
  if (way.onward) stop.onward = way.onward->value;
  for (const program::Rank to : way.returns) stop.returns.push_back(to.value);
  stop.installs = way.installs;
  return stop;
}

bool goes_by_node(program::Route route) {
  return route == program::Route::kProxies || route == program::Route::kNodes;
}

}  // namespace

TurnedWay SliceWays::add(const program::Slice& slice) {
  const auto* dense = std::get_if<program::Dense>(&slice.exchange.payload);
  if (dense == nullptr || dense->route == program::Route::kDirect) return {};
  // Chains and trees know members alone; by node whole nodes may be turned.
  TurnedWay added;
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
  const auto [number, is_new] = numbers_.emplace(key, static_cast<std::uint32_t>(ways_.size()));
  if (is_new) {
    ways_.emplace_back();
    for (const program::Way& way : program::ways_of(*program_, in_table)) {
      ways_.back().push_back(stop_of(way));
    }
  }
  added.way = number->second;
  return added;
}

}  // namespace autodist::protocol
