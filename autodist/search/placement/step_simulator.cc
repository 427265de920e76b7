#include "autodist/search/placement/step_simulator.h"

#include <algorithm>
#include <tuple>

namespace autodist::search::placement {

double most_held(double held, std::vector<HeldChange> changes) {
  std::sort(changes.begin(), changes.end(), [](const HeldChange& a, const HeldChange& b) {
    return std::tie(a.time, a.frees) < std::tie(b.time, b.frees);
  });
  double most = held;
  for (const HeldChange& change : changes) {
    held += change.frees ? -change.bytes : change.bytes;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace autodist::search::placement
