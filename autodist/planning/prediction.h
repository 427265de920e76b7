// A prediction as people read it, and as programs do.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autodist/program/program.h"
#include "autodist/sim/cost_model.h"
#include "autodist/sim/simulator.h"

namespace autodist::planning {

// "MODEL on CLUSTER by WHAT" and an empty line; between them a line that names the calibration,
// where there is a file of one.
std::string prediction_title(const std::string& model, const std::string& cluster,
                             const std::string& by, const std::string& calibration_file);

// Of all replicas: how many samples a step has, that in words ("64 sequences of 128, float32"), and
// how many a second.
std::int64_t samples_of_step(const program::Program& program, const sim::CostModel& costs);
std::string batch_of_step(const program::Program& program, const sim::CostModel& costs);
double samples_per_second(const sim::Simulation& simulation, const program::Program& program,
                          const sim::CostModel& costs);

// Step time, bounds and how far they are, memory, links, where the time goes; `most` rows of each
// table (0: all). What does not fit in memory is said first.
std::string prediction_table(const sim::Simulation& simulation, const program::Program& program,
                             const sim::CostModel& costs, std::size_t most,
                             std::size_t columns = 0);

// Step time, bounds and memory in three lines, for `plan`.
std::string prediction_lines(const sim::Simulation& simulation, const program::Program& program,
                             const sim::CostModel& costs);

// One JSON object, units in the names.
nlohmann::ordered_json prediction_json(const sim::Simulation& simulation,
                                       const program::Program& program,
                                       const sim::CostModel& costs);

}  // namespace autodist::planning
