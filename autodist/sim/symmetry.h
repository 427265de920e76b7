// Which ranks cannot be told apart, so that one of them stands for all.
//
// Ties in the engine are broken by (peer - self) modulo the number of ranks, never by a rank's own
// number. What a job looks like from rank r is therefore the same as from rank r + d whenever
// turning all ranks by d maps the job onto itself: the same devices and links, the same roles, and
// for each slice of an owner an equal one of the owner d further on. The simulator then needs the
// first d ranks alone; what they send to the others comes back to them from the others' images.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/sim/job_tables.h"

namespace autodist::sim {

struct Symmetry {
  // Ranks 0 to period - 1 stand for all; the number of ranks where nothing is symmetric.
  std::uint32_t period = 0;
  std::uint32_t ranks = 0;
  std::uint32_t ranks_per_node = 1;  // meaningful where period < ranks

  [[nodiscard]] bool reduces() const { return period < ranks; }
  [[nodiscard]] std::uint32_t image(std::uint32_t rank) const {
    return rank < period ? rank : rank % period;
  }
  // How far `to` is from `from`, modulo the number of ranks.
  [[nodiscard]] std::uint32_t between(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + ranks - from;
  }
  // The slice that `slice` becomes when all ranks are turned back by `shift`.
  [[nodiscard]] std::uint32_t turned(std::uint32_t slice, std::uint32_t shift) const {
    if (shift == 0) return slice;
    const Place& place = places[slice];
    return by_owner[between(shift, place.owner)][place.index];
  }

  struct Place {
    std::uint32_t owner = 0;
    std::uint32_t index = 0;  // among the owner's slices
  };
  std::vector<Place> places;  // by slice; empty where nothing is symmetric
  std::vector<std::vector<std::uint32_t>> by_owner;
};

// The smallest period. REQUIRES: the tables are of `program` and `costs`.
Symmetry find_symmetry(const program::Program& program, const CostModel& costs,
                       const JobTables& tables);

// Every rank for itself.
Symmetry no_symmetry(const program::Program& program);

}  // namespace autodist::sim
