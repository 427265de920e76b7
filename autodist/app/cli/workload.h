// What a prediction is of: how many samples, in which numbers, by which calibration.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "autodist/app/cli/program.h"
#include "autodist/cluster/cluster.h"
#include "autodist/sim/cost_model.h"

namespace autodist::app {

struct Workload {
  std::int64_t batch = 0;          // of all replicas together; 0: not said
  std::int64_t replica_batch = 0;  // of each; 0: not said
  sim::Precision precision = sim::Precision::kAsCaptured;
  std::string calibration;  // a file; empty: the one beside the cluster's
};

// --batch, --replica-batch, --dtype, --calibration.
void declare_workload(CLI::App& verb, Workload& workload);

// planning::prediction_title, with the workload's calibration.
std::string title_of(const std::string& graph, const std::string& cluster, const std::string& by,
                     const Workload& workload);

// Puts the name of the calibration's file into a prediction's JSON, where there is one.
void name_calibration(const std::string& cluster, const Workload& workload,
                      nlohmann::ordered_json& prediction);

// Throws Error(kUsage) for --batch of a placed graph, whose parts of a batch are not its ranks.
void refuse_placed(const Workload& workload, const program::Program& program);

// Puts into `costs` what was said. Replicas have the same number of samples, and so have their
// micro-batches: as many as the largest part of the batch. A line says so where parts differ.
void put_workload(const Workload& workload, const cluster::Cluster& cluster, bool cpu_only,
                  sim::CostOptions& costs, Console& console);

}  // namespace autodist::app
