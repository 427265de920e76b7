#include "autodist/planning/defaults.h"

#include <chrono>

namespace autodist::planning {

void set_id(strategy::Strategy& strategy) {
  if (!strategy.id.empty()) return;
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  strategy.id =
      strategy::make_id(std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count());
}

}  // namespace autodist::planning
