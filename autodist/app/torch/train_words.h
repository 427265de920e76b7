// What `autodist train` says of a training, at the chief.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "autodist/app/cli/program.h"
#include "autodist/app/torch/session.h"
#include "autodist/app/torch/train_arguments.h"

namespace autodist::app {

void print_start(Console& console, const TrainArguments& arguments, const Session& session,
                 const ModelSource& source, const std::string& launcher);

// One line, rewritten on a terminal; else one of every tenth step.
void show_progress(Console& console, const Progress& progress, std::int64_t steps);

// The object of --json.
nlohmann::ordered_json result_json(const TrainArguments& arguments, const Session& session,
                                   const ModelSource& source, const TrainingResult& result);

void print_end(Console& console, const TrainArguments& arguments, const Session& session,
               const ModelSource& source, const TrainingResult& result);

}  // namespace autodist::app
