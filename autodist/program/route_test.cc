#include "autodist/program/route.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

namespace autodist::program {
namespace {

constexpr Route kRoutes[] = {Route::kDirect, Route::kProxies, Route::kNodes, Route::kTree,
                             Route::kRing};

// `nodes[i]`: the node of rank i.
Program job(const std::vector<int>& nodes) {
  Program program;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string node = "10.0.0." + std::to_string(nodes[i]);
    program.ranks.push_back({node, node + ":CPU:" + std::to_string(i), i});
  }
  return program;
}

Slice slice_of(const Program& program, std::uint32_t owner, Route route) {
  Slice slice;
  slice.owner = Rank(owner);
  slice.exchange.payload = Dense{route};
  for (std::size_t i = 0; i < program.ranks.size(); ++i) slice.members.emplace_back(i);
  return slice;
}

// Who is in what arrives, and over which links the bytes go, when every rank does what its
// RouteStop says.
struct Journey {
  std::multiset<std::uint32_t> summed;     // at the owner
  std::map<std::uint32_t, int> installed;  // times a result came to a member
  std::map<std::uint32_t, int> sent;       // messages, by rank
  std::map<std::uint32_t, int> crossed;    // results that entered a node other than the owner's
};

Journey travel(const Program& program, const Slice& slice) {
  Journey journey;
  std::vector<RouteStop> stops;
  for (std::size_t i = 0; i < program.ranks.size(); ++i) {
    stops.push_back(stop_of(program, slice, Rank(i)));
  }
  const std::function<std::multiset<std::uint32_t>(Rank)> gathered = [&](Rank at) {
    std::multiset<std::uint32_t> all;
    for (const Rank from : stops[at.value].combines) {
      if (from == at) {
        all.insert(at.value);
        continue;
      }
      const RouteStop& stop = stops[from.value];
      const Rank next = stop.onward ? *stop.onward : stop.contributes.at(0);
      EXPECT_EQ(next, at) << "rank " << from << " sends elsewhere";
      ++journey.sent[from.value];
      const auto part = stop.onward ? gathered(from) : std::multiset<std::uint32_t>{from.value};
      all.insert(part.begin(), part.end());
    }
    return all;
  };
  journey.summed = gathered(slice.owner);
  const std::function<void(Rank)> give = [&](Rank at) {
    if (stops[at.value].installs) ++journey.installed[at.value];
    for (const Rank to : stops[at.value].returns) {
      ++journey.sent[at.value];
      const std::string& node = program.ranks[to.value].node;
      if (node != program.ranks[at.value].node) ++journey.crossed[to.value];
      give(to);
    }
  };
  give(slice.owner);
  return journey;
}

TEST(Route, BringsEveryContributionOnceAndTheResultToEveryMember) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> nodes(1 + random() % 9);
    for (int& node : nodes) node = static_cast<int>(random() % 4);
    const Program program = job(nodes);
    for (const Route route : kRoutes) {
      Slice slice = slice_of(program, random() % nodes.size(), route);
      if (nodes.size() > 2 && random() % 3 == 0) {  // the owner, or another rank, only serves
        slice.members.erase(slice.members.begin() + random() % nodes.size());
      }
      const Journey journey = travel(program, slice);
      std::multiset<std::uint32_t> members;
      for (const Rank member : slice.members) members.insert(member.value);
      EXPECT_EQ(journey.summed, members) << name_of(route);
      EXPECT_EQ(journey.installed.size(), members.size()) << name_of(route);
      int messages = 0;
      for (const auto& [rank, times] : journey.installed) EXPECT_EQ(times, 1) << name_of(route);
      for (const auto& [rank, count] : journey.sent) messages += count;
      const bool owner_is_member = members.count(slice.owner.value) != 0;
      EXPECT_EQ(messages, 2 * static_cast<int>(members.size() - (owner_is_member ? 1 : 0)))
          << name_of(route) << ": the bytes are the same on every route";
    }
  }
}

// 2M - c_a - c_b: everybody sends a slice twice, but its owner and the one behind it, once.
TEST(Route, OfARingSpreadsTheLoadOverAllLinks) {
  const Program program = job({1, 2, 3, 4, 5});
  const Journey journey = travel(program, slice_of(program, 3, Route::kRing));
  const std::map<std::uint32_t, int> expected{{0, 2}, {1, 2}, {2, 2}, {3, 1}, {4, 1}};
  EXPECT_EQ(journey.sent, expected);
  EXPECT_EQ(stop_of(program, slice_of(program, 3, Route::kRing), Rank(1)).combines,
            (std::vector<Rank>{Rank(0), Rank(1)}));
}

TEST(Route, ByNodeCrossesToEachNodeOnce) {
  const Program program = job({1, 1, 2, 2, 2, 3});
  for (const Route route : {Route::kProxies, Route::kNodes}) {
    const Journey journey = travel(program, slice_of(program, 1, route));
    EXPECT_EQ(journey.crossed.size(), 2) << name_of(route);  // nodes 2 and 3
  }
  EXPECT_EQ(travel(program, slice_of(program, 1, Route::kDirect)).crossed.size(), 4);
  const RouteStop of_owner = stop_of(program, slice_of(program, 1, Route::kNodes), Rank(1));
  EXPECT_EQ(of_owner.combines.size(), 4) << "0 and itself, and one rank of each other node";
  EXPECT_EQ(stop_of(program, slice_of(program, 1, Route::kProxies), Rank(1)).combines.size(), 6);
}

TEST(Route, SpeakersOfANodeTakeTurns) {
  const Program program = job({1, 2, 3, 3});
  const RouteStop of_first = stop_of(program, slice_of(program, 0, Route::kNodes), Rank(2));
  const RouteStop of_second = stop_of(program, slice_of(program, 1, Route::kNodes), Rank(3));
  EXPECT_EQ(of_first.onward, Rank(0));
  EXPECT_EQ(of_second.onward, Rank(1));
}

TEST(Route, IsDirectWhereNobodyCanTell) {
  const Program two = job({1, 1});
  const Program apart = job({1, 2, 3});
  const Program together = job({1, 1, 2});
  for (const Route route : kRoutes) {
    EXPECT_EQ(effective_route(two, slice_of(two, 0, route), route), Route::kDirect);
    const bool by_node = route == Route::kProxies || route == Route::kNodes;
    EXPECT_EQ(effective_route(apart, slice_of(apart, 0, route), route),
              by_node ? Route::kDirect : route);
    EXPECT_EQ(effective_route(together, slice_of(together, 0, route), route), route);
  }
}

TEST(Route, ToAllWhereEverybodyCombines) {
  const Program program = job({1, 2, 3});
  Slice slice = slice_of(program, 0, Route::kDirect);
  slice.exchange.payload = Factors{};
  const RouteStop stop = stop_of(program, slice, Rank(1));
  EXPECT_EQ(stop.contributes, (std::vector<Rank>{Rank(2), Rank(0), Rank(1)}));
  EXPECT_EQ(stop.combines, slice.members);
  EXPECT_TRUE(stop.returns.empty());
  EXPECT_FALSE(stop.onward);
}

}  // namespace
}  // namespace autodist::program
