#include "autodist/search/autosync/diverse.h"

#include <algorithm>

namespace autodist::search {
namespace {

constexpr double kUnlike = 0.2;

// Share of the variables that two strategies treat differently; 1 where their slices differ.
double distance(const strategy::Strategy& a, const strategy::Strategy& b) {
  if (a.nodes.size() != b.nodes.size() || a.slice_bytes != b.slice_bytes) return 1;
  std::size_t differ = 0;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) differ += a.nodes[i] == b.nodes[i] ? 0 : 1;
  return static_cast<double>(differ) /
         static_cast<double>(std::max<std::size_t>(1, a.nodes.size()));
}

}  // namespace

std::vector<std::size_t> diverse(const Found& found, std::size_t count) {
  std::vector<std::size_t> taken;
  const auto is_taken = [&](std::size_t i) {
    return std::find(taken.begin(), taken.end(), i) != taken.end();
  };
  const auto may_run = [&](std::size_t i) {
    const auto& judgement = found.candidates[i].judgement;
    return judgement && judgement->fits() && taken.size() < count && !is_taken(i);
  };
  if (may_run(0)) taken.push_back(0);
  if (found.best_builder && may_run(*found.best_builder)) taken.push_back(*found.best_builder);
  for (const double least : {kUnlike, 0.0}) {
    for (std::size_t i = 0; i < found.candidates.size(); ++i) {
      const bool unlike = std::all_of(taken.begin(), taken.end(), [&](std::size_t other) {
        return distance(found.candidates[i].strategy, found.candidates[other].strategy) >= least;
      });
      if (unlike && may_run(i)) taken.push_back(i);
    }
  }
  return taken;
}

}  // namespace autodist::search
