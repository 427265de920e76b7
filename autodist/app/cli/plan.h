// What `autodist plan` is asked for; `autodist train` asks for a plan in the same words.

#pragma once

#include <functional>
#include <string>

#include "autodist/app/cli/program.h"
#include "autodist/app/cli/workload.h"
#include "autodist/planning/defaults.h"
#include "autodist/planning/encryption.h"
#include "autodist/planning/search_settings.h"

namespace autodist::app {

struct PlanArguments {
  std::string graph;
  std::string cluster = "local:2";
  std::string builder = planning::kSearch;
  SearchSettings search;
  bool no_history = false;
  bool from_history = false;
  bool placed = false;
  std::string output;
  bool as_text = false;
  std::string dump_after;
  std::string report;
  bool all = false;
  bool cpu_only = false;
  Workload workload;
  Encryption encryption = Encryption::kAuto;
};

// Where PlanArguments::output says.
void write_strategy(const PlanArguments& arguments, const strategy::Strategy& strategy);

// `trials` does what --trials asks for, which needs libtorch.
using PlanByTrials = std::function<int(const PlanArguments&, Console&)>;
Action declare_plan_with(CLI::App& verb, PlanByTrials trials);

// --encrypt auto|on|off.
void declare_encryption(CLI::App& verb, Encryption& encryption, const std::string& help);

}  // namespace autodist::app
