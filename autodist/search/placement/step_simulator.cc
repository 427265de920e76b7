#include "autodist/search/placement/step_simulator.h"

namespace autodist::search::placement {

std::vector<std::uint32_t> critical_path(const Timeline& timeline) {
  std::vector<std::uint32_t> path;
  for (std::uint32_t task = timeline.last_task;;) {
    path.push_back(task);
    const bool waited = timeline.start[task] > timeline.ready[task];
    const std::uint32_t before = waited ? timeline.before[task] : timeline.last_parent[task];
    if (before == task) return path;
    task = before;
  }
}

}  // namespace autodist::search::placement
