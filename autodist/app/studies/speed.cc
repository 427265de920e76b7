#include "autodist/app/studies/speed.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <vector>

#include "autodist/app/archive.h"
#include "autodist/base/file.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/nccl_table.h"
#include "autodist/sim/simulator.h"

namespace autodist::app {
namespace {

using Graph = std::shared_ptr<const ir::Graph>;

constexpr double kFiftyGb = 50e9;

cluster::Cluster machines(std::uint32_t count, double bytes_per_s, double latency) {
  cluster::Cluster cluster;
  for (std::uint32_t i = 0; i < count; ++i) {
    cluster::Node node;
    node.address = fmt::format("10.{}.{}.{}", i / 40'000, i / 200 % 200, i % 200 + 1);
    node.cpus = {cluster::Device{}};
    node.chief = i == 0;
    node.bandwidth_bytes_per_s = bytes_per_s;
    node.latency = Seconds(latency);
    cluster.nodes.push_back(node);
  }
  return cluster;
}

// ResNet-50's tensors: 161 forward ops of 100 us, then 161 backward ops of 200 us in reverse, after
// each of which its tensor is complete.
Graph tensors161() {
  const ir::Graph model = load_graph("resnet50");
  ir::GraphBuilder step("tensors161");
  const auto takes = [](double seconds) {
    ir::Effects effects;
    effects.cost = {Seconds(seconds), Seconds{}};
    return effects;
  };
  const auto scalar = ir::contiguous({1});
  ir::ValueId value = step.input("x", scalar, false);
  std::vector<ir::ValueId> variables;
  for (std::size_t i = 0; i < model.variables.size(); ++i) {
    variables.push_back(step.variable(model.variables[i].name,
                                      ir::contiguous({ir::element_count(model, ir::VariableId(i))}),
                                      {ir::Rule::kSgd, {{"lr", 0.1}}, ""}));
    value = step.op("aten::mul", {value, variables.back()}, scalar, takes(100e-6));
  }
  step.output(value);
  step.backward();
  for (std::size_t i = variables.size(); i-- > 0;) {
    const auto like = ir::contiguous({ir::element_count(model, ir::VariableId(i))});
    step.gradient(variables[i], step.op("aten::mul", {value}, like, takes(200e-6)));
  }
  return std::make_shared<const ir::Graph>(step.finish());
}

// Of this process: one thread, whatever else the machine does.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Job {
  ir::Program program;
  cluster::Cluster cluster;
  sim::CostModel costs;
};

Job job_of(const Graph& graph, const std::string& builder, const cluster::Cluster& cluster) {
  strategy::Strategy strategy = search::build_strategy(builder, *graph, cluster);
  strategy::fix_priorities(strategy, *graph);
  passes::Options options;
  options.verify_each = false;
  Job job{passes::rewrite(graph, strategy, cluster, options, builder), cluster, {}};
  job.costs = sim::cost_model(job.program, cluster);
  return job;
}

class Measuring {
 public:
  Measuring(std::string data, bool quick) : data_(std::move(data)), quick_(quick) {}

  SpeedFigures run() {
    events();
    tensors();
    scale();
    nccl();
    programs();
    return std::move(result_);
  }

 private:
  // The least of several runs: others on the machine only add.
  template <typename Work>
  double least(Work work) const {
    double best = 1e9;
    for (int i = 0; i < (quick_ ? 3 : 7); ++i) {
      const double start = cpu_seconds();
      work();
      best = std::min(best, cpu_seconds() - start);
    }
    return best;
  }

  // Slice by slice, every rank: VGG-16 on four machines.
  void events() {
    const Job job = job_of(std::make_shared<const ir::Graph>(load_graph("vgg16")),
                           "AllReduce:algorithm=direct", machines(4, 1.25e9, 50e-6));
    sim::SimulationOptions options;
    options.symmetry = false;
    double events = 0;
    const double seconds = least([&] {
      events =
          static_cast<double>(sim::simulate(job.program, job.cluster, job.costs, options).events);
    });
    result_.figures["events_per_s"] = events / seconds;
    result_.raw["vgg16_4_events"] = events;
    result_.raw["vgg16_4_seconds"] = seconds;
  }

  void tensors() {
    const Graph graph = tensors161();
    for (const std::uint32_t ranks : {8U, 64U}) {
      Job job = job_of(graph, "AllReduce:algorithm=library,chunk_size=1",
                       machines(ranks, kFiftyGb, 500e-9));
      job.costs.collectives.kind = sim::CollectiveKind::kStoreAndForward;
      const std::string name = fmt::format("tensors161_{}_s", ranks);
      result_.figures[name] =
          least([&] { (void)sim::simulate(job.program, job.cluster, job.costs); });
      sim::SimulationOptions every_rank;
      every_rank.symmetry = false;
      result_.raw[name + "_every_rank"] =
          least([&] { (void)sim::simulate(job.program, job.cluster, job.costs, every_rank); });
    }
  }

  void scale() {
    const Graph graph = tensors161();
    for (const std::uint32_t ranks : {1024U, 16384U}) {
      const double start = cpu_seconds();
      const Job job = job_of(graph, "AllReduce:algorithm=library,chunk_size=1",
                             machines(ranks, kFiftyGb, 500e-9));
      result_.raw[fmt::format("devices_{}_program_s", ranks)] = cpu_seconds() - start;
      result_.figures[fmt::format("devices_{}_s", ranks)] =
          least([&] { (void)sim::simulate(job.program, job.cluster, job.costs); });
    }
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    result_.raw["peak_bytes"] = static_cast<double>(usage.ru_maxrss) * 1024;
  }

  void nccl() {
    double mean = 0;
    double p95 = 0;
    double most = 0;
    for (const int gpus : {2, 4, 8}) {
      const std::string path = fmt::format("{}/nccl/a100_allreduce_{}gpu.csv", data_, gpus);
      if (!std::filesystem::exists(path)) return;
      const sim::FitErrors errors = sim::judge_fit(sim::parse_nccl_table(read_file(path), path));
      result_.raw[fmt::format("nccl_{}_error_mean", gpus)] = errors.mean;
      result_.raw[fmt::format("nccl_{}_error_p95", gpus)] = errors.p95;
      result_.raw[fmt::format("nccl_{}_error_max", gpus)] = errors.most;
      mean = std::max(mean, errors.mean);
      p95 = std::max(p95, errors.p95);
      most = std::max(most, errors.most);
    }
    result_.figures["nccl_error_mean"] = mean;
    result_.figures["nccl_error_p95"] = p95;
    result_.raw["nccl_error_max"] = most;
  }

  void programs() {
    const auto graph = std::make_shared<const ir::Graph>(load_graph("bert-large"));
    const cluster::Cluster cluster = machines(16, 1.25e9, 50e-6);
    strategy::Strategy strategy =
        search::build_strategy("PartitionedPS:max_shards=16", *graph, cluster);
    strategy::fix_priorities(strategy, *graph);
    result_.figures["programs_bert_large_16_s"] =
        least([&] { (void)passes::rewrite(graph, strategy, cluster, {}, "bench"); });
  }

  static Job random_servers(const Graph& graph, const cluster::Cluster& cluster,
                            std::mt19937& random) {
    strategy::Strategy strategy = search::build_strategy("PSLoadBalancing", *graph, cluster);
    const std::vector<std::string> servers = cluster::servers_of(cluster);
    for (strategy::NodeConfig& node : strategy.nodes) {
      auto& ps = std::get<strategy::PsSynchronizer>(node.synchronizer);
      ps.reduction_destination = servers[random() % servers.size()];
    }
    if (random() % 2 == 0) {
      strategy = search::build_strategy("P3:slice_parameters=200000", *graph, cluster);
    }
    strategy::fix_priorities(strategy, *graph);
    passes::Options options;
    options.verify_each = false;
    Job job{passes::rewrite(graph, strategy, cluster, options, "random"), cluster, {}};
    job.costs = sim::cost_model(job.program, cluster);
    job.costs.cores = 2;  // one for the engine
    return job;
  }

  const std::string data_;
  const bool quick_;
  SpeedFigures result_;
};

}  // namespace

SpeedFigures measure_simulator(const std::string& data, bool quick) {
  return Measuring(data, quick).run();
}

namespace {

struct Goal {
  const char* name;
  const char* meaning;
  bool at_least;
  double value;
};
constexpr Goal kGoals[] = {
    {"events_per_s", "slice by slice, every rank: VGG-16 on 4 machines", true, 1e7},
    {"tensors161_8_s", "161 all-reduces of ResNet-50's tensors, 8 ranks", false, 0.005},
    {"tensors161_64_s", "the same, 64 ranks", false, 0.1},
    {"devices_1024_s", "the same, 1,024 ranks", false, 0.2},
    {"devices_16384_s", "the same, 16,384 ranks", false, 1},
    {"nccl_error_mean", "NCCL tables, fitted on even rows, judged on odd: the worst table's", false,
     0.01},
    {"nccl_error_p95", "the same, 95th percentile", false, 0.04},
    {"programs_bert_large_16_s", "BERT-large's Program for 16 machines", false, 1},
};

std::string verdict(const Goal& goal, double value) {
  const bool met = goal.at_least ? value >= goal.value : value <= goal.value;
  return met ? "met" : "missed";
}

}  // namespace

std::string speed_table(const SpeedFigures& figures) {
  std::string text;
  for (const Goal& goal : kGoals) {
    const auto found = figures.figures.find(goal.name);
    if (found == figures.figures.end()) continue;
    text += fmt::format("{:<28} {:>12.4g}  goal {} {:<8g} {:<7} {}\n", goal.name, found->second,
                        goal.at_least ? ">=" : "<=", goal.value, verdict(goal, found->second),
                        goal.meaning);
  }
  return text;
}

std::string speed_page(const SpeedFigures& figures) {
  std::string text =
      "# The simulator's speed\n\nWritten by `autodist bench sim -o "
      "docs/benchmarks/simulator.md`. Times are of the process's CPU, one thread, the least of "
      "several runs: others on the machine only add.\n\n| figure | what | measured | goal | "
      "|\n|---|---|---|---|---|\n";
  for (const Goal& goal : kGoals) {
    const auto found = figures.figures.find(goal.name);
    text += found == figures.figures.end()
                ? fmt::format("| `{}` | {} | not measured | {} {:g} | |\n", goal.name, goal.meaning,
                              goal.at_least ? "≥" : "≤", goal.value)
                : fmt::format("| `{}` | {} | {:.4g} | {} {:g} | {} |\n", goal.name, goal.meaning,
                              found->second, goal.at_least ? "≥" : "≤", goal.value,
                              verdict(goal, found->second));
  }
  text += "\nWhat they are made of:\n\n| | |\n|---|---|\n";
  for (const auto& [name, value] : figures.raw)
    text += fmt::format("| `{}` | {:.4g} |\n", name, value);
  return text;
}

}  // namespace autodist::app
