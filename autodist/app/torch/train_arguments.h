// What `autodist train` is told.

#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "autodist/app/cli/plan.h"
#include "autodist/app/cli/supervise.h"
#include "autodist/app/torch/model_source.h"
#include "autodist/app/torch/training.h"

namespace autodist::app {

struct TrainArguments {
  ModelRequest model;
  std::string data = "";
  PlanArguments plan;       // but for its graph, and what `plan` alone shows
  bool plan_alone = false;  // the plan is what was asked for, and is shown
  std::string optimizer = "adam:lr=1e-3";
  std::string resume;
  std::string trace;
  JobOptions job;                    // but for what `plan` and `model` say
  Supervised supervised{kRestarts};  // checked here; the process above has read it
  TrainingOptions training;
  bool batch_is_given = false;  // by --batch
};

// Its options, which fill what is returned.
std::shared_ptr<TrainArguments> declare_train_arguments(CLI::App& verb);

// Throws Error(kUsage) for what would be left without effect.
void check_train_arguments(const CLI::App& verb, const TrainArguments& arguments);

}  // namespace autodist::app
