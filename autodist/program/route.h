// The route of a slice's bytes: from its members, some of whom add up what others send before they
// pass it on, to the owner, and back.
//
// Every route is a tree over the members with the owner at its root: a star, a chain, a binary
// tree, or one that meets at one rank per node first. What differs is which links carry how much,
// and in which order the sum is made.

#pragma once

#include <optional>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::program {

// One rank's place on a slice's route.
struct RouteStop {
  // Whose contributions meet here, in the order in which they are added (ascending); none: nothing
  // is combined here.
  std::vector<Rank> combines;
  // Where this rank's own contribution goes, itself perhaps; none: it is no member.
  std::vector<Rank> contributes;
  // Where the mean of what meets here goes; nothing at an owner, and where nothing meets.
  std::optional<Rank> onward;
  // Who gets from this rank what the owner has made: nearest behind it first, itself never.
  std::vector<Rank> returns;
  // Whether a result is for this rank, too.
  bool installs = false;
};

// REQUIRES: rank < program.ranks.size().
RouteStop stop_of(const Program& program, const Slice& slice, Rank rank);

// By rank, in the time that one takes.
std::vector<RouteStop> stops_of(const Program& program, const Slice& slice);

// The route, or kDirect where the slice's members cannot tell the difference: two of them or fewer,
// or (for those that go by node) no two on one node.
Route effective_route(const Program& program, const Slice& slice, Route route);

// Sends every slice by way of its members' nodes, where that makes a difference. REQUIRES: all of
// them are dense, synchronous and uncompressed.
void meet_on_nodes(Program& program);

}  // namespace autodist::program
