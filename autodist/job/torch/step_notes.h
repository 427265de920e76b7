// What every rank tells the others of a step, and what all of them make of it.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/ir/graph.h"
#include "autodist/job/torch/session.h"

namespace autodist::job {

// One rank's part of a step, and what it asks for, as bytes for Runner::tell().
std::string note_of(const StepReport& report, ir::Reduction reduction, bool stop, bool save);

// The summary of `step` from the notes of all ranks; the same at every rank.
StepSummary summary_of(std::int64_t step, const std::vector<std::string>& notes,
                       ir::Reduction reduction);

}  // namespace autodist::job
