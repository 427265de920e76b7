// Walking through the space under any judge that gives a number: coordinate-wise improvement, class
// by class and variable by variable, then simulated annealing; and trying every point of a small
// one.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>

#include "autodist/search/autosync/moves.h"

namespace autodist::search {

// The lower the better; nothing: cannot be carried out. Deterministic.
using Cost = std::function<std::optional<double>(const Point&)>;
// True: stop where you are.
using Stop = std::function<bool()>;

// What a climb goes by.
struct Guide {
  Cost cost;
  // Weighs the variables at a point, the most exposed first; empty: evenly.
  std::function<std::vector<double>(const Point&)> exposed = {};
  Stop stop = {};
};

struct Walk {
  std::uint32_t rounds = 3;      // over all classes, at most
  std::uint32_t variables = 16;  // tried one by one, the most exposed first
  std::uint32_t moves = 2000;    // of annealing
  double temperature = 0.03;     // at its start, as a share of the cost
};

struct ClimbResult {
  Point point;
  double cost = 0;
};

// The best point that is met from `start`, whose cost must exist. Deterministic, unless the guide's
// `stop` ends it.
ClimbResult climb(const Space& space, const Neighbourhood& neighbourhood, const Guide& guide,
                  const Point& start, const Walk& walk, std::mt19937_64& random);

// How many points the options of all variables and the slice sizes make; nothing above `most`.
std::optional<std::uint64_t> count_points(const Space& space, const Neighbourhood& neighbourhood,
                                          std::uint64_t most);

// The best of all of them: what no search over the same options can beat, so its gap is 0.
// Nothing where none can be carried out, or `stop` came first.
std::optional<ClimbResult> exhaust(const Space& space, const Neighbourhood& neighbourhood,
                                   const Cost& cost, const Stop& stop = {});

}  // namespace autodist::search
