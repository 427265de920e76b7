// One HTML file that shows a plan and a run: opens from disk, asks nothing of any network, and
// holds only what its inputs say (docs/report.md). Everything is optional; what is there makes the
// page.

#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "autodist/ir/graph.h"
#include "autodist/program/program.h"
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

struct PlacedDevice {
  std::string name;
  std::size_t tasks = 0;
  Seconds work;       // of a step
  Seconds transfers;  // of a step: while its links are busy
  Bytes memory;
  Bytes capacity;  // 0: unknown
  Bytes received;  // per step
  Bytes sent;
};

// What every device of a placement does, holds and carries. Its timeline is a trace with places.
struct PagePlacement {
  std::string graph;
  std::string objective;  // "makespan", "throughput"
  Seconds value;          // what was found
  Seconds bound;          // no placement is below
  std::string found_by;
  std::uint64_t evaluations = 0;
  std::vector<PlacedDevice> devices;
  std::string about_timeline;  // how its rows came about, one sentence
};

struct PageInputs {
  std::string title;
  std::string chosen_by;  // "builder PSLoadBalancing", "plan.strategy"
  std::shared_ptr<const ir::Graph> graph;
  std::optional<strategy::Strategy> strategy;
  std::optional<program::Program> program;  // of the graph
  std::int64_t batch = 0;  // samples per replica in a step of the plan; 0: the graph's example
  std::vector<Alternative> alternatives;
  NextBestByName next_best;  // by variable
  std::vector<PageTrace> traces;
  std::optional<RunLog> run;
  nlohmann::ordered_json prediction;  // prediction_of(); null: none
  std::optional<PagePlacement> placement;
  std::optional<PageSweep> sweep;
  std::vector<std::string> remarks;  // what the page lacks, and why; one sentence each
  std::vector<std::string> sources;  // names of what the page was made from, without folders
};

// The page's part on what planning::prediction_json() makes: the step, its bound, and every rank's
// memory, whose parts add up to what the device holds. Throws an exception of nlohmann::json for
// other JSON.
nlohmann::ordered_json prediction_of(const nlohmann::ordered_json& json);

// Of a file of such JSON. Throws Error(kUsage) for what is not of `simulate --json`.
nlohmann::ordered_json parse_prediction(const std::string& json, const std::string& where);

// The page. Throws Error(kUsage) for a trace that is none.
std::string to_html(const PageInputs& inputs);

// Throws as to_html and write_file_atomically do.
void write_page(const PageInputs& inputs, const std::string& path);

}  // namespace autodist::report
