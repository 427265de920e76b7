#include "autodist/search/autosync/alike.h"

#include <algorithm>
#include <optional>

namespace autodist::search {
namespace {

constexpr double kUnresolved = 1.03;  // of the best step
constexpr std::size_t kMostAlike = 16;

}  // namespace

std::vector<std::size_t> alike(const Found& found) {
  Seconds most = found.best().judgement->step * kUnresolved;
  if (found.best_builder) {
    most = std::min(most, found.candidates[*found.best_builder].judgement->step);
  }
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < found.candidates.size(); ++i) {
    const std::optional<Judgement>& judged = found.candidates[i].judgement;
    if (!judged || judged->step > most || !judged->fits()) break;
    if (judged->in_full) all.push_back(i);
  }
  // A library's calls wait for threads of all ranks, which on cores that compute takes a time that
  // the simulator does not know; and their sums are not alike in every run.
  const auto by_library = [&](std::size_t i) { return found.candidates[i].judgement->by_library; };
  if (!std::all_of(all.begin(), all.end(), by_library)) {
    all.erase(std::remove_if(all.begin(), all.end(), by_library), all.end());
  }
  if (all.size() <= kMostAlike) return all;
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < kMostAlike; ++i) {
    some.push_back(all[i * (all.size() - 1) / (kMostAlike - 1)]);
  }
  return some;
}

}  // namespace autodist::search
