// One HTML file that shows a plan and a run: opens from disk, asks nothing of any network, and
// holds only what its inputs say (docs/report.md). Everything is optional; what is there makes the
// page.

#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/ir/graph.h"
#include "autodist/program/program.h"
#include "autodist/report/html/placement_section.h"
#include "autodist/report/html/plan_section.h"
#include "autodist/report/html/run_log.h"
#include "autodist/report/html/sweep_section.h"
#include "autodist/strategy/strategy.h"

namespace autodist::report {

struct PageTrace {
  std::string title;        // a file's name
  std::string chrome_json;  // as program::to_chrome_json writes it
  bool predicted = false;   // by the simulator
  // In the place of "rank 0", "rank 1", …, for what is no rank; a trace of a placement is no step
  // of a job, so nothing is said of where its time went.
  std::vector<std::string> places = {};
};

// A rank's memory in a step, as far as it is known; the parts add up to what the device holds.
struct PageMemory {
  std::string device;
  std::vector<std::pair<std::string, Bytes>> parts;  // "parameters", "gradients"
  Bytes capacity;                                    // 0: unknown
};

// What `simulate --json` says.
struct PagePrediction {
  Seconds step;
  Seconds bound;  // of the plan
  std::string bound_reason;
  std::vector<PageMemory> memory;  // by rank
};

struct PageInputs {
  std::string title;
  std::string chosen_by;  // "builder PSLoadBalancing", "plan.strategy"
  std::shared_ptr<const ir::Graph> graph;
  std::optional<strategy::Strategy> strategy;
  std::optional<program::Program> program;  // of the graph
  std::vector<Alternative> alternatives;
  NextBestByName next_best;  // by variable
  std::vector<PageTrace> traces;
  std::optional<RunLog> run;
  std::optional<PagePrediction> prediction;
  std::optional<PagePlacement> placement;
  std::optional<PageSweep> sweep;
  std::vector<std::string> remarks;  // what the page lacks, and why; one sentence each
  std::vector<std::string> sources;  // names of what the page was made from, without folders
};

// Of what planning::prediction_json() makes. Throws an exception of nlohmann::json for other JSON.
PagePrediction prediction_of(const nlohmann::ordered_json& json);

// Of a file of such JSON. Throws Error(kUsage) for what is not of `simulate --json`.
PagePrediction parse_prediction(const std::string& json, const std::string& where);

// The page. Throws Error(kUsage) for a trace that is none.
std::string to_html(const PageInputs& inputs);

// Throws as to_html and write_file_atomically do.
void write_page(const PageInputs& inputs, const std::string& path);

}  // namespace autodist::report
