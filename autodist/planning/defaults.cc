#include "autodist/planning/defaults.h"

#include <chrono>

namespace autodist::planning {

std::int64_t now_in_microseconds() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

void set_id(strategy::Strategy& strategy) {
  if (strategy.id.empty()) strategy.id = strategy::make_id(now_in_microseconds());
}

}  // namespace autodist::planning
