#include "autodist/search/autosync/diverse.h"

#include <algorithm>

namespace autodist::search {
namespace {

constexpr double kUnlike = 0.2;

// Share of the variables that two strategies treat differently; 1 where their slices or the parts
// of a batch differ.
double distance(const strategy::Strategy& a, const strategy::Strategy& b) {
  if (a.nodes.size() != b.nodes.size() || a.slice_bytes != b.slice_bytes) return 1;
  if (a.batch_shares != b.batch_shares) return 1;
  std::size_t differ = 0;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) differ += a.nodes[i] == b.nodes[i] ? 0 : 1;
  return static_cast<double>(differ) /
         static_cast<double>(std::max<std::size_t>(1, a.nodes.size()));
}

}  // namespace

std::vector<std::size_t> diverse(const Found& found, std::size_t count) {
  std::vector<std::size_t> taken;
  const auto take = [&](std::size_t i, double least) {
    const auto& judgement = found.candidates[i].judgement;
    if (!judgement || !judgement->fits() || taken.size() == count) return;
    for (const std::size_t other : taken) {
      const double away = distance(found.candidates[i].strategy, found.candidates[other].strategy);
      if (away == 0 || away < least) return;
    }
    taken.push_back(i);
  };
  if (!found.candidates.empty()) take(0, 0);
  if (found.best_builder) take(*found.best_builder, 0);
  for (const double least : {kUnlike, 0.0}) {
    for (std::size_t i = 0; i < found.candidates.size(); ++i) take(i, least);
  }
  return taken;
}

}  // namespace autodist::search
