// `autodist bench pipeline`: a transformer that no device of its cluster holds, placed by `autodist
// place`, one batch at a time and in micro-batches.
//
// Every rank is a process. Compute is imitated: beside computing, a rank sleeps for what an op
// takes on a slow device, in proportion to its FLOPs and bytes, so that more stages than cores can
// overlap. The ideal for M micro-batches on S stages of equal load is M S / (M + S - 1) times the
// rate of one batch at a time.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autodist/app/torch/session.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/statistics.h"
#include "autodist/models/catalogue.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/placing.h"
#include "autodist/search/placement/from_graph.h"
#include "autodist/studies/torch/bench.h"

namespace autodist::studies {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "gpt-small";
constexpr std::int64_t kRows = 32;
constexpr std::int64_t kMicroBatches = 8;
constexpr std::int64_t kWarmup = 2;
constexpr std::int64_t kSteps = 6;
constexpr double kStepSeconds = 0.6;  // of all ops on one device
constexpr double kFlopsPerByte = 10;  // of the imitated device: as many FLOPs as a byte takes
constexpr std::uint64_t kMoves = 200'000;

// A folder that is gone afterwards, also where a probe failed.
struct Scratch {
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "autodist-pipeline-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      fail(ErrorCode::kEnvironment, "bench pipeline: no temporary folder can be made");
    }
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  fs::path path;
};

// What `op` costs beside others, in no unit.
double weight(const ir::Op& op, std::int64_t samples) {
  return std::max(static_cast<double>(op.flops.at(samples)),
                  kFlopsPerByte * static_cast<double>(op.bytes_moved.at(samples)));
}

double weight(const ir::Graph& graph) {
  double sum = 0;
  for (const ir::Op& op : graph.ops) sum += weight(op, kRows);
  return sum;
}

// A folder's plan, cluster and the devices' memory, for so many stages.
void plan_into(const fs::path& folder, std::size_t stages) {
  namespace placement = search::placement;
  ir::Graph graph = planning::load_graph(kModel);
  const double whole = weight(graph);
  for (ir::Op& op : graph.ops) {
    op.cost = {Seconds{}, Seconds(weight(op, kRows) / whole * kStepSeconds / kRows)};
  }
  const placement::TaskGraph tasks = placement::task_graph_of(graph, kRows);
  double memory = 0;
  double largest = 0;
  for (const placement::Task& task : tasks.tasks) {
    memory += task.memory;
    largest = std::max(largest, task.memory);
  }
  const double limit = std::max(1.1 * largest, 1.3 * memory / static_cast<double>(stages));
  const std::string cluster = folder / "cluster.yml";
  write_file_atomically(
      cluster, fmt::format("nodes:\n  - {{address: localhost, cpus: [0], slots: {}, chief: true, "
                           "devices: {{memory_gib: {:.9f}}}}}\n",
                           stages, limit / (1 << 30)));
  placement::PlaceRequest request;
  request.objective = placement::Objective::kThroughput;
  const cluster::Cluster ranks = cluster::read_cluster(cluster);
  for (const planning::NamedDevice& device : planning::devices_of_cluster(ranks, tasks)) {
    request.devices.push_back(device.figures);
  }
  request.evaluations = kMoves;
  const placement::PlaceResult result = placement::place(tasks, request, SteadyClock());
  if (result.placement.empty()) {
    fail(ErrorCode::kInfeasible, "bench pipeline: {} does not fit {} stages of {}", kModel, stages,
         to_string(Bytes(static_cast<std::int64_t>(limit))));
  }
  write_file_atomically(folder / "plan.strategy",
                        strategy::serialize(planning::placement_strategy(graph, ranks, 1, result)));
}

// Seconds per step of a job in so many micro-batches; printed by the chief. Its other ranks are
// started with the same arguments, and do the same.
int probe(const std::string& micro_batches, const fs::path& folder, app::Console& console) {
  const double whole = weight(planning::load_graph(kModel));
  JobOptions options;
  options.strategy_file = folder / "plan.strategy";
  options.accumulate = std::stoll(micro_batches);
  options.measure = false;
  options.device_time = [whole](const ir::Op& op, std::int64_t samples) {
    return Seconds(weight(op, samples) / whole * kStepSeconds);
  };
  AutoDist ad(folder / "cluster.yml", options);
  models::ModelOptions model;
  model.batch = kRows;
  TrainingStep step = models::make_model(kModel, model);
  const Batch batch = step.example;
  Session session = ad.distribute(std::move(step), Sgd(1e-3));
  const Seconds wall = seconds_of_steps(session, kWarmup, kSteps, [&] { session.run(batch); });
  session.finish();
  if (session.is_chief()) console.out << wall.value / kSteps << "\n";
  return 0;
}

}  // namespace

int bench_pipeline(const BenchArguments& arguments, app::Console& console) {
  if (!arguments.probe.empty()) return probe(arguments.probe, arguments.probe_model, console);
  const Scratch scratch;
  nlohmann::ordered_json figures;
  for (const std::size_t stages : {2, 4}) {
    const fs::path folder = scratch.path / std::to_string(stages);
    fs::create_directory(folder);
    plan_into(folder, stages);
    std::vector<double> ratios;  // of neighbouring runs
    std::vector<double> seconds;
    for (int i = 0; i < (arguments.quick ? 3 : 7); ++i) {
      const double at_once = run_probe(arguments, "1", folder);
      seconds.push_back(run_probe(arguments, std::to_string(kMicroBatches), folder));
      ratios.push_back(at_once / seconds.back());
    }
    const auto s = static_cast<double>(stages);
    const double ideal = s * kMicroBatches / (kMicroBatches + s - 1);
    figures[fmt::format("pipelined_over_unpipelined_{}", stages)] = median_of(ratios);
    figures[fmt::format("pipelined_step_s_{}", stages)] = median_of(seconds);
    figures[fmt::format("ideal_{}", stages)] = ideal;
  }
  return show_figures(figures, {}, console);
}

}  // namespace autodist::studies
