#include "autodist/studies/published_chart.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/program/route.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/device_table.h"
#include "autodist/sim/simulator.h"
#include "autodist/studies/figures.h"
#include "autodist/studies/machines.h"
#include "autodist/studies/strategies.h"

namespace autodist::studies {
namespace {

constexpr int kGpusPerNode = 4;
constexpr const char* kGpu = "T4";
constexpr double kCard = 50e9 / 8;              // bytes per second
constexpr Bytes kWhole{std::int64_t{1} << 40};  // a shard is sent as one message
constexpr int kCounts[] = {8, 16, 32};          // GPUs

struct ChartModel {
  const char* name;
  const char* graph;
  std::int64_t batch;
  int chunk;  // variables per all-reduce, as the chart's page says
};

const ChartModel& model_of(const std::string& name) {
  static const std::vector<ChartModel> all{{"ResNet101", "resnet101", 32, 200},
                                           {"VGG16", "vgg16", 32, 25},
                                           {"InceptionV3", "inception-v3", 32, 30},
                                           {"DenseNet121", "densenet121", 32, 512},
                                           {"BERT", "bert-large", 8, 256}};
  for (const ChartModel& each : all) {
    if (each.name == name) return each;
  }
  std::vector<std::string> names;
  for (const ChartModel& each : all) names.emplace_back(each.name);
  fail(ErrorCode::kUsage, "chart: unknown model '{}', one of {} expected{}", name,
       fmt::join(names, ", "), nearest_hint(name, names));
}

bool is_parameter_server(const std::string& system) {
  return system == "PS" || system == "PSLoadBalancing" || system == "PartitionedPS";
}

std::string builder_of(const std::string& system, const ChartModel& model) {
  if (is_parameter_server(system)) return system + ":local_proxy_variable=true";
  // The defaults of its releases of that year.
  if (system == "Horovod") return "Horovod-like:algorithm=library,fusion_mib=64,cycle_ms=5";
  return fmt::format("{}:algorithm=library,chunk_size={}", system, model.chunk);
}

cluster::Cluster machines_of_gpus(int nodes) {
  cluster::Cluster cluster = machines(static_cast<std::uint32_t>(nodes), kCard);
  for (cluster::Node& node : cluster.nodes) add_gpus(node, kGpusPerNode, kGpu);
  return cluster;
}

// The ops' shares of a step by roofline on a T4.
const ir::Graph& graph_of(const ChartModel& model) {
  static std::map<std::string, ir::Graph> loaded;
  const auto [place, is_new] = loaded.try_emplace(model.graph);
  if (!is_new) return place->second;
  place->second = planning::load_graph(model.graph);
  const sim::DeviceRow& gpu = sim::find_device(kGpu, "chart");
  for (ir::Op& op : place->second.ops) {
    op.cost = {sim::roofline(op, model.batch, gpu.tflops, gpu.memory_gb_per_s * 1e9), Seconds{}};
  }
  return place->second;
}

// All tensors travel at once, each at most at its call's rate; a session sends, accumulates and
// updates every shard by ops of its own, which take their time from the step.
void set_servers(sim::CostModel& costs, const program::Program& program, const ChartCosts& chart) {
  costs.engine.window = kWhole;
  costs.engine.nic_budget = kWhole;
  costs.engine.stream_bytes_per_s = chart.tensor_bytes_per_s;
  std::set<program::ShardId> shards;
  for (const program::Slice& slice : program.slices) {
    for (const program::Piece& piece : slice.pieces) shards.insert(piece.shard);
  }
  for (sim::DeviceCost& device : costs.devices) {
    for (const program::ShardId shard : shards) {
      const ir::Variable& variable = program.graph->variable(program.shard(shard).variable);
      const auto& complete = variable.gradient_complete;
      if (complete) device.ops[complete->value] += chart.shard;
    }
  }
}

// What goes by a library does not pass through the host, and every GPU updates for itself.
void set_library(sim::CostModel& costs, const ChartCosts& chart) {
  costs.collectives.efficiency = chart.nccl_bytes_per_s / kCard;
  const double memory = sim::find_device(kGpu, "chart").memory_gb_per_s * 1e9;
  for (sim::DeviceCost& device : costs.devices) {
    device.staging_bytes_per_s = 0;
    device.update_bytes_per_s = sim::updates_by_memory(memory);
  }
}

}  // namespace

Chart parse_chart(const std::string& text, const std::string& where) {
  Chart chart;
  std::vector<std::string> systems;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = split(line, '\t');
    if (systems.empty()) {
      if (fields.size() < 3 || fields[0] != "model" || fields[1] != "gpus") {
        fail(ErrorCode::kUsage, "{}: line {}: 'model', 'gpus' and systems expected", where, number);
      }
      systems.assign(fields.begin() + 2, fields.end());
      continue;
    }
    if (fields.size() < 2 || fields.size() > systems.size() + 2) {
      fail(ErrorCode::kUsage, "{}: line {}: {} fields, at most {} expected", where, number,
           fields.size(), systems.size() + 2);
    }
    const auto gpus = as_number<int>(fields[1]);
    if (!gpus || *gpus < 1) {
      fail(ErrorCode::kUsage, "{}: line {}: '{}', a number of GPUs expected", where, number,
           fields[1]);
    }
    for (std::size_t i = 2; i < fields.size(); ++i) {
      if (fields[i].empty()) continue;
      const auto rate = as_number<double>(fields[i]);
      if (!rate || !(*rate > 0)) {
        fail(ErrorCode::kUsage, "{}: line {}: '{}', a rate expected", where, number, fields[i]);
      }
      chart[{fields[0], *gpus, systems[i - 2]}] = *rate;
    }
  }
  return chart;
}

const std::vector<std::string>& chart_systems() {
  static const std::vector<std::string> systems{"AllReduce", "Parallax",        "PartitionedPS",
                                                "PS",        "PSLoadBalancing", "Horovod"};
  return systems;
}

bool is_fitted(const std::string& model) { return model == "ResNet101" || model == "VGG16"; }

double predicted_rate(const std::string& name, const std::string& system, int gpus, double single,
                      const ChartCosts& chart) {
  const ChartModel& model = model_of(name);
  cluster::Cluster cluster = machines_of_gpus(gpus / kGpusPerNode);
  ir::Graph scaled = graph_of(model);
  Seconds sum;
  for (const ir::Op& op : scaled.ops) sum += op.cost.fixed;
  const double alone = static_cast<double>(model.batch) / single;
  for (ir::Op& op : scaled.ops) op.cost.fixed = op.cost.fixed * (alone / sum.value);
  const auto graph = std::make_shared<const ir::Graph>(std::move(scaled));

  strategy::Strategy strategy = search::build_strategy(builder_of(system, model), *graph, cluster);
  forget_priorities(strategy, *graph);
  strategy.slice_bytes = kWhole;
  passes::Options options;
  options.verify_each = false;
  options.fuse_below = Bytes{0};
  program::Program program = passes::rewrite(graph, strategy, cluster, options, "chart");
  // One process per machine: its replicas' gradients are added before they leave it.
  program::meet_on_nodes(program);
  program = sim::with_barrier(std::move(program));  // a session's run() ends for all at once

  sim::CostModel costs = sim::cost_model(program, cluster, {model.batch, 1, ""});
  // An op takes what the graph says: scaled to the published rate of one GPU.
  for (sim::DeviceCost& device : costs.devices) {
    device.on_host = false;
    device.update_bytes_per_s = 0;
    for (std::size_t i = 0; i < graph->ops.size(); ++i) device.ops[i] = graph->ops[i].cost.fixed;
  }
  costs.engine.goodput = 1;
  if (!is_parameter_server(system)) set_library(costs, chart);
  if (is_parameter_server(system) || system == "Parallax") set_servers(costs, program, chart);
  return static_cast<double>(model.batch) / sim::simulate(program, cluster, costs).step.value;
}

namespace {

std::vector<std::string> models_in(const Chart& chart) {
  std::vector<std::string> names;
  for (const auto& [key, rate] : chart) {
    if (names.empty() || names.back() != std::get<0>(key)) names.push_back(std::get<0>(key));
  }
  return names;
}

double rate_in(const Chart& chart, const std::string& model, int gpus, const std::string& system) {
  const auto found = chart.find({model, gpus, system});
  if (found != chart.end()) return found->second;
  fail(ErrorCode::kUsage, "chart: no rate of {} on {} GPUs under {}. The table must have one.",
       model, gpus, system);
}

// Mean |log| over the cells of the fitted models that `uses` a cost.
template <typename Uses>
double distance(const Chart& chart, const ChartCosts& costs, Uses uses) {
  double sum = 0;
  int count = 0;
  for (const std::string& model : models_in(chart)) {
    if (!is_fitted(model)) continue;
    for (const int gpus : kCounts) {
      for (const std::string& system : chart_systems()) {
        const auto published = chart.find({model, gpus, system});
        if (published == chart.end() || !uses(system)) continue;
        const double single = rate_in(chart, model, 1, system);
        sum += std::abs(
            std::log(predicted_rate(model, system, gpus, single, costs) / published->second));
        ++count;
      }
    }
  }
  return count > 0 ? sum / count : 0;
}

// Steps `value` up and down, by less and less, while `error` falls.
template <typename Error>
void descend(double& value, double least, double most, Error error) {
  double best = error();
  for (const double factor : {2.0, 1.4, 1.15, 1.05}) {
    for (const double step : {factor, 1 / factor}) {
      while (true) {
        const double before = value;
        value = std::clamp(value * step, least, most);
        const double now = value == before ? best : error();
        if (now < best - 1e-6) {
          best = now;
          continue;
        }
        value = before;
        break;
      }
    }
  }
}

ChartCosts fitted(const Chart& chart) {
  ChartCosts costs;
  const auto by_library = [](const std::string& system) { return !is_parameter_server(system); };
  const auto by_rpc = [](const std::string& system) { return is_parameter_server(system); };
  descend(costs.nccl_bytes_per_s, 1e8, kCard, [&] { return distance(chart, costs, by_library); });
  for (int round = 0; round < 2; ++round) {
    descend(costs.tensor_bytes_per_s, 1e7, kCard, [&] { return distance(chart, costs, by_rpc); });
    descend(costs.shard.value, 1e-6, 1e-2, [&] { return distance(chart, costs, by_rpc); });
  }
  return costs;
}

bool winner_in_two(const std::vector<std::pair<double, double>>& rates) {
  const auto winner = std::max_element(rates.begin(), rates.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
  return std::count_if(rates.begin(), rates.end(),
                       [&](auto& each) { return each.first > winner->first; }) < 2;
}

}  // namespace

ChartStudy study_chart(const Chart& chart) {
  ChartStudy study;
  study.costs = fitted(chart);
  for (const std::string& model : models_in(chart)) {
    for (const int gpus : kCounts) {
      ChartCell cell{model, gpus, {}, 0, false};
      for (const std::string& system : chart_systems()) {
        cell.rates.emplace_back(
            predicted_rate(model, system, gpus, rate_in(chart, model, 1, system), study.costs),
            rate_in(chart, model, gpus, system));
      }
      cell.tau = kendall(cell.rates);
      cell.winner_in_two = winner_in_two(cell.rates);
      study.cells.push_back(std::move(cell));
    }
  }
  return study;
}

std::string chart_json(const ChartStudy& study) {
  nlohmann::ordered_json json{{"fitted",
                               {{"nccl_bytes_per_s", study.costs.nccl_bytes_per_s},
                                {"tensor_bytes_per_s", study.costs.tensor_bytes_per_s},
                                {"shard_seconds", study.costs.shard.value}}},
                              {"cells", nlohmann::ordered_json::array()}};
  for (const ChartCell& cell : study.cells) {
    nlohmann::ordered_json row{{"model", cell.model},
                               {"gpus", cell.gpus},
                               {"fitted", is_fitted(cell.model)},
                               {"kendall_tau", cell.tau},
                               {"winner_in_two", cell.winner_in_two}};
    for (std::size_t i = 0; i < cell.rates.size(); ++i) {
      const auto& [predicted, published] = cell.rates[i];
      row["samples_per_s"][chart_systems()[i]] = {{"predicted", predicted},
                                                  {"published", published}};
    }
    json["cells"].push_back(std::move(row));
  }
  return json.dump();
}

std::string chart_page(const ChartStudy& study) {
  std::string table = "| model | GPUs |";
  std::string line = "|---|---|";
  for (const std::string& system : chart_systems()) {
    table += fmt::format(" {} |", system);
    line += "---|";
  }
  table += " τ | first among two |\n" + line + "---|---|\n";
  double tau = 0;
  double error = 0;
  double fit_error = 0;
  int predicted = 0;
  int winners = 0;
  for (const ChartCell& cell : study.cells) {
    const bool was_fitted = is_fitted(cell.model);
    table += fmt::format("| {}{} | {} |", cell.model, was_fitted ? " (fitted)" : "", cell.gpus);
    for (const auto& [ours, published] : cell.rates) {
      table += fmt::format(" {:.1f} / {:.1f} |", ours, published);
      (was_fitted ? fit_error : error) += std::abs(ours / published - 1);
    }
    table += fmt::format(" {:.2f} | {} |\n", cell.tau, cell.winner_in_two ? "yes" : "no");
    if (was_fitted) continue;
    ++predicted;
    tau += cell.tau;
    winners += cell.winner_in_two ? 1 : 0;
  }
  const auto systems = static_cast<double>(chart_systems().size());
  const double fitted_cells = static_cast<double>(study.cells.size()) - predicted;
  return fmt::format(
      "# AutoDist's published chart\n\n"
      "Throughput per GPU of five models under AutoDist's strategies and Horovod on T4 GPUs, four "
      "to a machine, 50 Gbit/s, read off the chart in AutoDist's documentation (2020, ±0.5 %), and "
      "what the simulator makes of the same jobs. `autodist bench chart -o "
      "docs/benchmarks/published-chart.md` writes this page anew.\n\n"
      "**Given**: each system's rate on one GPU; batch 32 per GPU, BERT-large 8; the chart's chunk "
      "sizes; Horovod's fusion buffers of 64 MiB and cycles of 5 ms. **Fitted** on ResNet101 and "
      "VGG16 on 8 to 32 GPUs: NCCL's bandwidth ({:.2f} GB/s of a card's 6.25); that of a remote "
      "procedure call with one tensor ({:.2f} GB/s; all that run at once share the card); {:.0f} "
      "us per step and shard on a server, from the time that a replica computes in. **Predicted**: "
      "the other three models. Ops' shares of a step are by roofline on a T4; replicas of a "
      "machine add up their gradients before these leave it; a step ends for all at once.\n\n"
      "Samples per second and GPU, ours / published:\n\n{}\n"
      "| figure, of the predicted models | value | goal |\n|---|---|---|\n"
      "| published winner among our first two | {} of {} cells | ≥ 7 of 9 |\n"
      "| mean Kendall τ of the systems' order | {:.2f} | ≥ 0.5 |\n"
      "| mean error of a rate | {:.0f} % (of the fitted models {:.0f} %) | printed |\n\n"
      "DenseNet121 has no sparse variable, so AllReduce and Parallax are one plan there, and which "
      "of the two bars is longer is no strategy's doing. What is missing: a second shard of a "
      "variable cost those servers less than a first one, so PartitionedPS is too slow here where "
      "bytes do not decide; and every cycle's ring pays all its rounds here, which makes Horovod "
      "too slow on 32 GPUs.\n",
      study.costs.nccl_bytes_per_s / 1e9, study.costs.tensor_bytes_per_s / 1e9,
      study.costs.shard.value * 1e6, table, winners, predicted, tau / predicted,
      100 * error / (predicted * systems), 100 * fit_error / (fitted_cells * systems));
}

}  // namespace autodist::studies
