#include "autodist/app/cli/workload.h"

#include <nlohmann/json.hpp>

#include "autodist/app/cli/parse_errors.h"
#include "autodist/base/error.h"
#include "autodist/planning/prediction.h"
#include "autodist/sim/calibration.h"

namespace autodist::app {

void declare_workload(CLI::App& verb, Workload& workload) {
  auto* whole = verb.add_option("--batch", workload.batch,
                                "samples per step, all replicas together (default: as captured, "
                                "per replica)")
                    ->check(in_range(std::int64_t{1}, kMostCount));
  verb.add_option("--replica-batch", workload.replica_batch, "samples per step of each replica")
      ->check(in_range(std::int64_t{1}, kMostCount))
      ->excludes(whole);
  const auto set = [&workload](const std::string& name) {
    workload.precision = sim::precision_from_name(name);
  };
  verb.add_option_function<std::string>(
          "--dtype", set,
          "what GPUs compute in, at rates fitted on published trainings (default: as captured; "
          "float32 outside of matrix units)")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16", "fp16"}));
  verb.add_option("--calibration", workload.calibration,
                  "what was measured here (default: FILE.calibration.yml beside the cluster; of "
                  "local:N, local.calibration.yml)");
}

std::string title_of(const std::string& graph, const std::string& cluster, const std::string& by,
                     const Workload& workload) {
  return planning::prediction_title(graph, cluster, by,
                                    sim::calibration_file(cluster, workload.calibration));
}

void name_calibration(const std::string& cluster, const Workload& workload,
                      nlohmann::ordered_json& prediction) {
  const std::string file = sim::calibration_file(cluster, workload.calibration);
  if (!file.empty()) prediction["calibration"] = file;
}

void refuse_placed(const Workload& workload, const program::Program& program) {
  if (workload.batch == 0 || !program.is_placed()) return;
  fail(ErrorCode::kUsage,
       "--batch {}: the graph is placed in stages; --replica-batch expected, of each of its {} "
       "replicas",
       workload.batch, program.batch_parts());
}

void put_workload(const Workload& workload, const cluster::Cluster& cluster, bool cpu_only,
                  sim::CostOptions& costs, Console& console) {
  if (workload.precision != sim::Precision::kAsCaptured) costs.precision = workload.precision;
  const bool is_whole = workload.batch > 0;
  const std::int64_t samples = is_whole ? workload.batch : workload.replica_batch;
  if (samples == 0) return;
  const auto replicas =
      static_cast<std::int64_t>(cluster::computing_ranks_of(cluster, cpu_only).size());
  const std::int64_t parts = costs.micro_batches * (is_whole ? replicas : 1);
  costs.batch = (samples + parts - 1) / parts;
  if (samples == parts * costs.batch) return;
  console.err << fmt::format("autodist: {} {}: predicted as {} in {} equal parts\n",
                             is_whole ? "--batch" : "--replica-batch", samples, parts * costs.batch,
                             parts);
}

}  // namespace autodist::app
