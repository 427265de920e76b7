// What is said where a job that was started again may come to other bits than before.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"

namespace autodist::job {

// Which ranks compute on something else than in the start before, as a line; "" where all are as
// they were, or the number of ranks is another one: then bits are others in any case. `before`,
// `now`: by rank, a GPU, or a CPU with its threads; `places` as `now`.
std::string other_computing_line(const std::vector<std::string>& before,
                                 const std::vector<std::string>& now,
                                 const std::vector<cluster::Place>& places);

// That a step which was done again has another loss, as a line; "" where its bits are the same, or
// both are no number.
std::string other_loss_line(std::int64_t step, double before, double now);

}  // namespace autodist::job
