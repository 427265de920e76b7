#include "autodist/search/autosync/found.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"

namespace autodist::search {
namespace {

bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.judgement.has_value() != b.judgement.has_value()) return a.judgement.has_value();
  if (a.judgement) return *a.judgement < *b.judgement;
  if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
  return a.scored < b.scored;
}

}  // namespace

Found::Found(std::vector<Candidate> all) : candidates(std::move(all)) {
  std::stable_sort(candidates.begin(), candidates.end(), comes_before);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].builder) continue;
    ++builders;
    if (!candidates[i].judgement) continue;
    ++builders_judged;
    if (!best_builder) best_builder = i;
  }
  if (candidates.empty() || !best().judgement) {
    std::string reason;
    for (const Candidate& candidate : candidates) reason = std::max(reason, candidate.refused);
    fail(ErrorCode::kInfeasible, "search: no strategy can be carried out: {}", reason);
  }
  if (!best().judgement->fits()) {
    // Of what does not fit the fastest is first.
    const auto lacks_less = [](const Candidate& a, const Candidate& b) {
      if (!a.judgement || !b.judgement) return a.judgement.has_value() && !b.judgement;
      return a.judgement->missing < b.judgement->missing;
    };
    const Candidate& closest = *std::min_element(candidates.begin(), candidates.end(), lacks_less);
    fail(ErrorCode::kInfeasible,
         "search: no strategy fits in memory; '{}' lacks least: {} on a device. Use a smaller "
         "batch, or devices with more.",
         closest.name, to_string(closest.judgement->missing));
  }
}

void Found::answer_with(std::size_t index) {
  const auto first = candidates.begin();
  std::rotate(first, first + static_cast<std::ptrdiff_t>(index),
              first + static_cast<std::ptrdiff_t>(index) + 1);
  if (best().builder) {
    best_builder = 0;
  } else if (best_builder && *best_builder < index) {
    ++*best_builder;
  }
}

double Found::speedup() const {
  if (!best_builder) return 1;
  return candidates[*best_builder].judgement->step / best().judgement->step;
}

}  // namespace autodist::search
