// The routes of slices that do not go straight to their owner and back (program/route.h), in the
// form that the protocol reads.
//
// Where all ranks are members, a route looks the same from every owner: one table, and by how much
// it is turned. So N owners need no N tables of N ranks.

#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::protocol {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Which table, and by how many ranks everybody on the route is further on than the table says.
struct TurnedRoute {
  std::uint32_t table = kNone;  // kNone: straight to the owner and back, or combined by all
  std::uint32_t turned = 0;

  [[nodiscard]] bool is_direct() const { return table == kNone; }
};

// One rank's place, as program::RouteStop; ranks are those of the table.
struct TableStop {
  std::uint32_t combines = 0;          // contributions that meet here
  std::uint32_t contributes = kNone;   // kNone: no member
  std::uint32_t onward = kNone;        // kNone: at the owner, and where nothing meets
  std::vector<std::uint32_t> returns;  // nearest behind it first
  bool installs = false;
};

class RouteTables {
 public:
  RouteTables() = default;
  // `ranks_per_node`: where all nodes have as many, side by side; else 0.
  RouteTables(const program::Program& program, std::uint32_t ranks_per_node)
      : program_(&program),
        ranks_(static_cast<std::uint32_t>(program.ranks.size())),
        ranks_per_node_(ranks_per_node) {}

  TurnedRoute add(const program::Slice& slice);

  [[nodiscard]] const TableStop& at(const TurnedRoute& route, std::uint32_t rank) const {
    return tables_[route.table][(rank + ranks_ - route.turned) % ranks_];
  }
  // The rank of the job that stands as `rank` in the table.
  [[nodiscard]] std::uint32_t rank_of(const TurnedRoute& route, std::uint32_t rank) const {
    return (rank + route.turned) % ranks_;
  }

 private:
  using Key = std::tuple<program::Route, std::uint32_t,
                         std::vector<program::Rank>>;  // route, owner, members

  const program::Program* program_ = nullptr;
  std::uint32_t ranks_ = 0;
  std::uint32_t ranks_per_node_ = 0;
  std::map<Key, std::uint32_t> numbers_;
  std::vector<std::vector<TableStop>> tables_;  // by table and rank
};

}  // namespace autodist::protocol
