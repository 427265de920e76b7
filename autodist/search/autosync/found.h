// What a search looked at, best first.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/search/autosync/judge.h"
#include "autodist/search/autosync/space.h"

namespace autodist::search {

struct Candidate {
  std::string name;  // of the builder, or "found 3"
  bool builder = false;
  strategy::Strategy strategy;
  std::optional<Point> point;
  Seconds scored;                      // by arithmetic
  std::optional<Judgement> judgement;  // by the simulator
  std::string refused;                 // why it cannot be carried out
};

struct Found {
  // Throws as search() does where none of them was judged, or none that was fits in memory.
  explicit Found(std::vector<Candidate> all);
  Found() = default;  // of no search

  // The answer; the others that were judged, best first; then by score.
  std::vector<Candidate> candidates;
  // Among those judged; the answer where that is a builder's.
  std::optional<std::size_t> best_builder;
  std::uint64_t builders = 0;  // known; not all need have been judged
  std::uint64_t builders_judged = 0;
  std::uint64_t simulations = 0;
  std::uint64_t scores = 0;
  double log10_points = 0;  // of the space
  // Every point of the options was scored: none scores better than the best that was.
  bool exhausted = false;
  bool finished = false;  // before the budget was
  Seconds elapsed;

  [[nodiscard]] const Candidate& best() const { return candidates.front(); }
  // Makes a candidate the answer.
  void answer_with(std::size_t index);
  // Step of the best builder judged over the answer's; 1 where the answer is a builder's.
  [[nodiscard]] double speedup() const;
};

}  // namespace autodist::search
