#include "autodist/comm/library_probe.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/statistics.h"

namespace autodist::comm {
namespace {

constexpr std::size_t kFew = 16;
constexpr std::size_t kMany = std::size_t{1} << 18;
constexpr int kCallsOfFew = 12;
constexpr int kCallsOfMany = 3;

// The median of so many calls, behind one that is not counted.
Seconds call(Collectives& collectives, const Clock& clock, std::size_t count, int calls) {
  std::vector<float> values(count);
  std::vector<Seconds> took;
  for (int i = 0; i <= calls; ++i) {
    const Seconds begun = clock.now();
    collectives.all_reduce(values.data(), count, DType::kFloat32);
    if (i > 0) took.push_back(clock.now() - begun);
  }
  return median_of(std::move(took));
}

}  // namespace

LibraryFigures probe_library(Collectives& collectives, const Clock& clock) {
  AD_CHECK(!collectives.is_on_device()) << collectives.describe();
  LibraryFigures figures;
  figures.call = call(collectives, clock, kFew, kCallsOfFew);
  const Seconds many = call(collectives, clock, kMany, kCallsOfMany);
  const double moving = std::max((many - figures.call).value, many.value / 4);
  figures.bytes_per_s = static_cast<double>(kMany * sizeof(float)) / moving;
  return figures;
}

}  // namespace autodist::comm
