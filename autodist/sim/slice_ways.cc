#include "autodist/sim/slice_ways.h"

#include "autodist/ir/route.h"

namespace autodist::sim {
namespace {

WayStop stop_of(const ir::Way& way) {
  WayStop stop;
  stop.combines = static_cast<std::uint32_t>(way.combines.size());
  if (!way.contributes.empty()) stop.contributes = way.contributes.front().value;
  if (way.onward) stop.onward = way.onward->value;
  for (const ir::Rank to : way.returns) stop.returns.push_back(to.value);
  stop.installs = way.installs;
  return stop;
}

bool goes_by_node(ir::Route route) {
  return route == ir::Route::kProxies || route == ir::Route::kNodes;
}

}  // namespace

TurnedWay SliceWays::add(const ir::Slice& slice) {
  if (slice.route == ir::Route::kDirect || combined_by_all(slice)) return {};
  // Chains and trees know members alone; by node whole nodes may be turned.
  TurnedWay added;
  const bool all = slice.members.size() == ranks_;
  if (all && !goes_by_node(slice.route)) {
    added.turned = slice.owner.value;
  } else if (all && ranks_per_node_ != 0) {
    added.turned = slice.owner.value - slice.owner.value % ranks_per_node_;
  }
  ir::Slice in_table = slice;
  in_table.owner = ir::Rank(slice.owner.value - added.turned);
  const Key key{slice.route, in_table.owner.value, all ? std::vector<ir::Rank>{} : slice.members};
  const auto [number, is_new] = numbers_.emplace(key, static_cast<std::uint32_t>(ways_.size()));
  if (is_new) {
    ways_.emplace_back();
    for (const ir::Way& way : ir::ways_of(*program_, in_table)) {
      ways_.back().push_back(stop_of(way));
    }
  }
  added.way = number->second;
  return added;
}

}  // namespace autodist::sim
