#include "autodist/search/autosync/alike.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace autodist::search {
namespace {

constexpr double kUnresolved = 1.03;  // of the best step
constexpr std::size_t kMostAlike = 16;

}  // namespace

std::vector<std::size_t> alike(const Found& found) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < found.candidates.size(); ++i) {
    const std::optional<Judgement>& judged = found.candidates[i].judgement;
    if (!judged || judged->step > found.best().judgement->step * kUnresolved || !judged->fits()) {
      break;
    }
    if (judged->in_full) all.push_back(i);
  }
  const auto keep_if = [&](const auto& kept) {
    std::vector<std::size_t> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some),
                 [&](std::size_t i) { return kept(found.candidates[i]); });
    if (!some.empty()) all = std::move(some);
  };
  // A library's calls wait for threads of all ranks, which on cores that compute takes a time that
  // the simulator does not know; and their sums are not alike in every run.
  keep_if([](const Candidate& each) { return !each.judgement->by_library; });
  // A searched strategy is the best of thousands by the simulator, so it is likely to be one whose
  // time the simulator underestimates. A builder's was not chosen so.
  keep_if([](const Candidate& each) { return each.builder; });
  if (all.size() <= kMostAlike) return all;
  std::vector<std::size_t> some;
  for (std::size_t i = 0; i < kMostAlike; ++i) {
    some.push_back(all[i * (all.size() - 1) / (kMostAlike - 1)]);
  }
  return some;
}

}  // namespace autodist::search
