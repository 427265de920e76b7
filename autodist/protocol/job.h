// What every rank of a job knows of its slices, flat: the Program's table in the form that the
// protocol reads at every event.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "autodist/program/program.h"
#include "autodist/protocol/events.h"
#include "autodist/protocol/route_tables.h"

namespace autodist::protocol {

// Which sums need parts of several ranks, and how many. Clips come first, by their ids, then LAMB's
// variables, then the flags of loss scaling.
struct JobNorms {
  std::vector<std::uint32_t> parts;  // by norm
  std::uint32_t clips = 0;           // the first norms
  std::optional<NormId> flags;       // a part per computing rank
};

class Job {
 public:
  // `program` outlives it.
  explicit Job(const program::Program& program);

  struct Slice {
    Rank owner;
    std::uint32_t ring = 1;   // steps that may be open at once: staleness + 1
    bool synchronous = true;  // else each contribution is applied as it comes
    bool at_owner = true;     // who updates
    bool by_all = false;      // every member makes the result for itself
    bool relays = false;      // contributions meet on the route, too
    bool asked_for = false;   // members ask the owner for what a step reads: the newest version
    TurnedRoute route;
    std::uint32_t member_count = 0;
    const std::vector<Rank>* members = nullptr;
    std::vector<std::uint32_t> variables;  // without duplicates
    // Of the gradient, before the update: the clips' norms, one entry per part. And LAMB's.
    std::vector<NormId> clip_norms;
    std::vector<NormId> lamb_norms;
  };
  struct Variable {
    std::vector<SliceId> slices;
    std::optional<program::ClipId> clip;
    std::uint32_t staleness = 0;
    bool trained = false;
    bool updates_here = false;  // every rank, as it installs
    bool whole_norm = false;    // no slice carries it, and it has a part of its clip's norm
  };

  std::vector<Slice> slices;
  std::vector<Variable> variables;
  JobNorms norms;
  RouteTables routes;
  std::uint32_t ranks = 0;
  // The computing rank that tells servers the norms of what no slice carries.
  Rank first_computing;

  [[nodiscard]] const Slice& slice(SliceId id) const { return slices[id.value]; }
  [[nodiscard]] const Variable& variable(VariableId id) const { return variables[id.value]; }

  // Whether the merge of a slice at its owner goes on to the update without waiting for others.
  [[nodiscard]] bool updates_at_once(const Slice& slice) const {
    return slice.at_owner && slice.clip_norms.empty() && slice.lamb_norms.empty() && !norms.flags;
  }
  // The stop of a slice that does not go straight to its owner.
  [[nodiscard]] const TableStop& stop(const Slice& slice, Rank rank) const {
    return routes.at(slice.route, rank.value);
  }
  [[nodiscard]] bool is_member(const Slice& slice, Rank rank) const;
  // Whether the rank has a copy of the variable.
  [[nodiscard]] bool holds(const Variable& variable, Rank rank) const;
  // Contributions that meet at the rank: 0 where it combines nothing.
  [[nodiscard]] std::uint32_t awaited(const Slice& slice, Rank rank) const;
  // Whether the rank's own contribution is one of those that it combines itself.
  [[nodiscard]] bool keeps_own(const Slice& slice, Rank rank) const;

  // Calls visit(rank) for each other rank that gets the contribution of `self`; and for each that
  // gets results from it. Nearest behind it first, so that no rank is first for all.
  template <typename Visit>
  void for_each_contributed_to(const Slice& slice, Rank self, Visit visit) const {
    if (slice.by_all) return for_each_other_member(slice, self, visit);
    const Rank to = slice.route.is_direct()
                        ? slice.owner
                        : Rank(routes.rank_of(slice.route, stop(slice, self).contributes));
    if (to != self) visit(to);
  }
  template <typename Visit>
  void for_each_returned_to(const Slice& slice, Rank self, Visit visit) const {
    if (slice.route.is_direct()) return for_each_other_member(slice, self, visit);
    for (const std::uint32_t to : stop(slice, self).returns) {
      visit(Rank(routes.rank_of(slice.route, to)));
    }
  }
  [[nodiscard]] Rank onward(const Slice& slice, Rank self) const {
    return Rank(routes.rank_of(slice.route, stop(slice, self).onward));
  }

 private:
  template <typename Visit>
  static void for_each_other_member(const Slice& slice, Rank self, Visit visit) {
    const std::vector<Rank>& members = *slice.members;
    const auto behind = std::upper_bound(members.begin(), members.end(), self);
    for (auto member = behind; member != members.end(); ++member) visit(*member);
    for (auto member = members.begin(); member != behind; ++member) {
      if (*member != self) visit(*member);
    }
  }
  void add_norms(const program::Program& program);

  bool placed_ = false;
};

// Where all nodes have as many ranks, side by side: how many; else 0.
std::uint32_t ranks_per_node(const program::Program& program);

}  // namespace autodist::protocol
