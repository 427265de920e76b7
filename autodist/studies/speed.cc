#include "autodist/studies/speed.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/file.h"
#include "autodist/base/statistics.h"
#include "autodist/ir/graph_builder.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/search/autosync/analytic.h"
#include "autodist/search/autosync/judge.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/simulator.h"
#include "autodist/studies/machines.h"
#include "autodist/studies/nccl_table.h"

namespace autodist::studies {
namespace {

using Graph = std::shared_ptr<const ir::Graph>;

constexpr double kFiftyGb = 50e9;

// ResNet-50's tensors: 161 forward ops of 100 us, then 161 backward ops of 200 us in reverse, after
// each of which its tensor is complete.
Graph tensors161() {
  const ir::Graph model = planning::load_graph("resnet50");
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

struct Job {
  program::Program program;
  cluster::Cluster cluster;
  sim::CostModel costs;
};

Job job_of(const Graph& graph, const std::string& builder, const cluster::Cluster& cluster) {
  strategy::Strategy strategy = search::build_strategy(builder, *graph, cluster);
  strategy::fix_priorities(strategy, *graph);
  Job job{passes::rewrite(graph, strategy, cluster, {.verify_each = false}, builder), cluster, {}};
  job.costs = sim::cost_model(job.program, cluster);
  return job;
}

class Measuring {
 public:
  Measuring(std::string data, bool quick) : data_(std::move(data)), quick_(quick) {}

  Figures run() {
    events();
    tensors();
    scale();
    nccl();
    programs();
    estimates();
    return std::move(result_);
  }

 private:
  double least(const std::function<void()>& work) const {
    return least_cpu_seconds(quick_ ? 3 : 7, work);
  }

  // Slice by slice, every rank: VGG-16 on four machines.
  void events() {
    const Job job = job_of(std::make_shared<const ir::Graph>(planning::load_graph("vgg16")),
                           "AllReduce:algorithm=direct", machines(4, 1.25e9));
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
                       machines(ranks, kFiftyGb, Seconds(500e-9)));
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
      Job job;
      const double building = least_cpu_seconds(1, [&] {
        job = job_of(graph, "AllReduce:algorithm=library,chunk_size=1",
                     machines(ranks, kFiftyGb, Seconds(500e-9)));
      });
      result_.raw[fmt::format("devices_{}_program_s", ranks)] = building;
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
      const FitErrors errors = judge_fit(parse_nccl_table(read_file(path), path));
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
    const auto graph = std::make_shared<const ir::Graph>(planning::load_graph("bert-large"));
    const cluster::Cluster cluster = machines(16, 1.25e9);
    strategy::Strategy strategy =
        search::build_strategy("PartitionedPS:max_shards=16", *graph, cluster);
    strategy::fix_priorities(strategy, *graph);
    result_.figures["programs_bert_large_16_s"] =
        least([&] { (void)passes::rewrite(graph, strategy, cluster, {}, "bench"); });
  }

  // The search's cheap judge: how many points a second it takes, and how far it is from the
  // simulator on points drawn at random.
  void estimates() {
    struct Case {
      std::string model;
      std::uint32_t nodes = 0;
      std::string device;  // as CostOptions: none means the hosts' cores, which the engine shares
      std::string name;    // of its figures
      bool timed = false;
      bool judged = false;  // by the simulator, too
    };
    for (const Case& each : {Case{"vgg16", 4, "", "estimate", true, true},
                             Case{"vgg16", 4, "T4", "estimate_t4", false, true},
                             Case{"ncf", 4, "", "estimate_ncf", false, true},
                             Case{"bert-large", 16, "", "estimate", true, false}}) {
      const Graph graph = std::make_shared<const ir::Graph>(planning::load_graph(each.model));
      const cluster::Cluster cluster = machines(each.nodes, 1.25e9);
      sim::CostOptions how;
      how.device = each.device;
      const search::Space space(*graph, cluster);
      const search::Judge judge(graph, cluster, {}, [&](const program::Program& program) {
        return sim::cost_model(program, cluster, how);
      });
      const program::Program program =
          judge.program_of(search::build_strategy("PSLoadBalancing", *graph, cluster));
      const sim::CostModel costs = judge.costs_of(program);
      const search::Analytic analytic(space, program, costs);
      std::mt19937_64 random(1);
      std::vector<search::Point> points;
      while (points.size() < (each.judged && !quick_ ? 1000U : 200U)) {
        points.push_back(search::sample(space, random));
      }
      if (each.timed) {
        std::string of = fmt::format("{}_{}", each.model, each.nodes);
        std::replace(of.begin(), of.end(), '-', '_');
        const std::vector<search::Point> climbed = neighbours(space, random);
        result_.figures[each.name + "s_per_s_" + of] =
            per_second(climbed, [&](const auto& point) { return analytic.score(point).step; });
        search::Analytic::Loads loads;
        result_.figures[each.name + "s_again_per_s_" + of] = per_second(
            climbed, [&](const auto& point) { return analytic.score(point, loads).step; });
      }
      if (each.judged) compare_judges(space, judge, analytic, points, each.name);
    }
  }

  // As a climb meets them: each a change of the last one kept, one in four being kept.
  [[nodiscard]] std::vector<search::Point> neighbours(const search::Space& space,
                                                      std::mt19937_64& random) const {
    const search::Neighbourhood neighbourhood(space);
    search::Point here = search::sample(space, random);
    const std::vector<double> evenly(here.choices.size());
    std::vector<search::Point> points;
    while (points.size() < (quick_ ? 200U : 1000U)) {
      points.push_back(neighbourhood.draw_one(here, evenly, random));
      if (search::draw(random, 4) == 0) here = points.back();
    }
    return points;
  }

  template <typename Score>
  double per_second(const std::vector<search::Point>& points, const Score& score) {
    Seconds sum;
    const double seconds = least([&] {
      for (const search::Point& point : points) sum += score(point);
    });
    AD_CHECK(sum > Seconds{});
    return static_cast<double>(points.size()) / seconds;
  }

  void compare_judges(const search::Space& space, const search::Judge& judge,
                      const search::Analytic& analytic, const std::vector<search::Point>& points,
                      const std::string& name) {
    std::vector<std::pair<double, double>> pairs;
    std::vector<double> errors;
    for (const search::Point& point : points) {
      std::string why_not;
      const auto judged = judge(space.strategy_of(point), why_not);
      if (!judged) continue;
      const Seconds scored = analytic.score(point).step;
      pairs.emplace_back(scored.value, judged->step.value);
      errors.push_back(std::abs(scored / judged->step - 1));
    }
    result_.figures[name + "_error_median"] = quantile(errors, 0.5);
    result_.figures[name + "_error_p95"] = quantile(errors, 0.95);
    result_.figures[name + "_tau"] = kendall(pairs);
    result_.raw[name + "s_judged"] = static_cast<double>(pairs.size());
  }

  const std::string data_;
  const bool quick_;
  Figures result_;
};

}  // namespace

Figures measure_simulator(const std::string& data, bool quick) {
  return Measuring(data, quick).run();
}

namespace {

const std::vector<Goal>& speed_goals() {
  static const std::vector<Goal> all{
      {"events_per_s", "slice by slice, every rank: VGG-16 on 4 machines", true, 1e7},
      {"tensors161_8_s", "161 all-reduces of ResNet-50's tensors, 8 ranks", false, 0.005},
      {"tensors161_64_s", "the same, 64 ranks", false, 0.1},
      {"devices_1024_s", "the same, 1,024 ranks", false, 0.2},
      {"devices_16384_s", "the same, 16,384 ranks", false, 1},
      {"nccl_error_mean", "NCCL tables, fitted on even rows, judged on odd: the worst table's",
       false, 0.01},
      {"nccl_error_p95", "the same, 95th percentile", false, 0.04},
      {"programs_bert_large_16_s", "BERT-large's Program for 16 machines", false, 1},
      {"estimates_per_s_vgg16_4", "points of VGG-16 on 4 machines that the cheap judge takes", true,
       1e4},
      {"estimates_per_s_bert_large_16", "of BERT-large on 16", true, 1e3},
      {"estimates_again_per_s_vgg16_4", "VGG-16's, keeping the rows that the point before has, too",
       true, 1e4},
      {"estimates_again_per_s_bert_large_16", "BERT-large's, likewise", true, 1e3},
      {"estimate_error_median",
       "cheap judge against simulator, random points of VGG-16 on 4 machines' cores", false, 0.01},
      {"estimate_error_p95", "the same, 95th percentile", false, 0.05},
      {"estimate_tau", "the same, Kendall's tau of the points' order", true, 0.95},
      {"estimate_t4_error_median", "the same with a T4 on each, where links are what binds", false,
       0.01},
      {"estimate_t4_error_p95", "the same, 95th percentile", false, 0.05},
      {"estimate_t4_tau", "the same, Kendall's tau", true, 0.95},
      {"estimate_ncf_error_median", "the same for NCF on cores, whose messages are what binds",
       false, 0.01},
      {"estimate_ncf_error_p95", "the same, 95th percentile", false, 0.05},
      {"estimate_ncf_tau", "the same, Kendall's tau", true, 0.95},
  };
  return all;
}

}  // namespace

std::string speed_table(const Figures& figures) { return goals_table(speed_goals(), figures); }

std::string speed_page(const Figures& figures) {
  return "# The simulator's speed\n\nWritten by `autodist bench sim -o "
         "docs/benchmarks/simulator.md`. Times are of the process's CPU, one thread, the least of "
         "several runs: others on the machine only add. This build: " AUTODIST_BUILD_TYPE ".\n\n" +
         goals_page(speed_goals(), figures);
}

}  // namespace autodist::studies
