#include "autodist/studies/p3.h"

#include <fmt/format.h>

#include <algorithm>

#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/device_table.h"
#include "autodist/studies/machines.h"
#include "autodist/studies/strategies.h"

namespace autodist::studies {
namespace {

constexpr std::int64_t kBigArray = 1'000'000;  // MXNET_KVSTORE_BIGARRAY_BOUND's default
// Fitted, once for all models and links: what a message takes at each end, and the payload's share.
constexpr Seconds kMessage{20e-6};
constexpr double kGoodput = 0.96;

// Whole tensors, each to the server with the fewest bytes so far; big ones in even parts, one per
// server.
strategy::Strategy plain(const ir::Graph& graph, const cluster::Cluster& cluster) {
  strategy::Strategy strategy = search::build_strategy("PSLoadBalancing", graph, cluster);
  const std::vector<std::string> servers = cluster::servers_of(cluster);
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    strategy::NodeConfig& node = strategy.nodes[i];
    const std::vector<std::int64_t> shape = ir::shape_of(graph, ir::VariableId(i));
    const auto parts = static_cast<std::int64_t>(servers.size());
    auto ps = std::get<strategy::PsSynchronizer>(node.synchronizer);
    const bool big = ir::element_count(graph, ir::VariableId(i)) > kBigArray;
    if (!big || shape.front() < parts || parts < 2) continue;
    node.synchronizer = {};
    node.partitioner = fmt::format("{}", parts);
    for (std::size_t axis = 1; axis < shape.size(); ++axis) node.partitioner += ",1";
    for (std::int64_t part = 0; part < parts; ++part) {
      ps.reduction_destination = servers[static_cast<std::size_t>(part)];
      strategy::NodeConfig shard;
      shard.name =
          strategy::node_name(fmt::format("{}/part_{}", strategy::variable_name(node.name), part));
      shard.synchronizer = ps;
      node.parts.push_back(shard);
    }
  }
  strategy.slice_bytes = Bytes(std::int64_t{1} << 40);
  return strategy;
}

sim::CostModel p3_costs(const program::Program& program, const cluster::Cluster& cluster,
                        const P3Model& model, const P3Setting& setting, P3Way way) {
  sim::CostModel costs = sim::cost_model(program, cluster, {model.batch, 1, ""});
  for (sim::DeviceCost& device : costs.devices) {
    device.on_host = false;  // GPUs: the engine takes nothing from them
    device.staging_bytes_per_s = 0;
  }
  costs.engine.goodput = kGoodput;
  costs.engine.message = kMessage;
  costs.engine.goodput_bytes_per_s = setting.goodput_gbit_per_s * kBytesPerGigabit;
  if (way != P3Way::kPriority) {  // neither knows windows
    costs.engine.window = Bytes(std::int64_t{1} << 50);
    costs.engine.nic_budget = costs.engine.window;
  }
  constexpr double kFast = 1e12;  // the paper's servers have cores to spare
  costs.engine.sum_bytes_per_s = setting.sum_gb_per_s > 0 ? setting.sum_gb_per_s * 1e9 : kFast;
  costs.engine.update_bytes_per_s = kFast;
  costs.engine.install_bytes_per_s = kFast;
  return costs;
}

}  // namespace

std::shared_ptr<const ir::Graph> p3_graph(const P3Model& model) {
  ir::Graph graph = planning::load_graph(model.graph);
  const double step = static_cast<double>(model.batch) / model.samples_per_s;
  const sim::DeviceRow& p4000 = sim::find_device("P4000", "P3's study");
  for (const ir::Phase phase : {ir::Phase::kForward, ir::Phase::kBackward}) {
    Seconds sum;
    for (ir::Op& op : graph.ops) {
      if (op.phase != phase) continue;
      op.cost = {sim::roofline(op, model.batch, p4000.tflops, p4000.memory_gb_per_s * 1e9), {}};
      sum += op.cost.fixed;
    }
    const double share = phase == ir::Phase::kForward ? 1.0 / 3 : 2.0 / 3;
    for (ir::Op& op : graph.ops) {
      if (op.phase != phase) continue;
      op.cost.fixed = op.cost.fixed * (share * step / sum.value);
    }
  }
  return std::make_shared<const ir::Graph>(std::move(graph));
}

sim::Simulation simulate_p3(const std::shared_ptr<const ir::Graph>& graph, const P3Model& model,
                            const P3Setting& setting, P3Way way, bool trace) {
  const cluster::Cluster cluster = machines(static_cast<std::uint32_t>(setting.machines),
                                            setting.gbit_per_s * kBytesPerGigabit, Seconds(25e-6));
  strategy::Strategy strategy =
      way == P3Way::kPlain
          ? plain(*graph, cluster)
          : search::build_strategy(fmt::format("P3:slice_parameters={}", setting.slice_parameters),
                                   *graph, cluster);
  if (way == P3Way::kPriority) {
    strategy::fix_priorities(strategy, *graph);
  } else {
    forget_priorities(strategy, *graph);
  }
  passes::Options options;
  options.verify_each = false;
  options.fuse_below = Bytes{0};
  if (way != P3Way::kPlain) options.slice_bytes = Bytes(4 * setting.slice_parameters);
  program::Program program = passes::rewrite(graph, strategy, cluster, options, "P3's study");
  if (setting.barrier) program = sim::with_barrier(std::move(program));
  sim::SimulationOptions how;
  how.trace = trace;
  return sim::simulate(program, cluster, p3_costs(program, cluster, model, setting, way), how);
}

double p3_speedup(const std::shared_ptr<const ir::Graph>& graph, const P3Model& model,
                  const P3Setting& setting, P3Way against) {
  const Seconds before = simulate_p3(graph, model, setting, against).step;
  return before / simulate_p3(graph, model, setting, P3Way::kPriority).step;
}

namespace {

struct Study {
  const char* title;
  P3Model model;
  double published;  // "as much as": the largest gain of the paper
  const char* where;
  std::vector<double> rates;
};

// Rates of a P4000, from the paper's plots; Sockeye's stands for the shipped translation models.
const std::vector<Study>& studies() {
  static const std::vector<Study> all{
      {"ResNet-50", {"resnet50", 105, 32}, 1.26, "4 Gbit/s", {1, 2, 3, 4, 5, 6, 8, 10}},
      {"Inception-v3", {"inception-v3", 62, 32}, 1.18, "", {1, 2, 3, 4, 6, 8}},
      {"VGG-19", {"vgg19", 42, 32}, 1.66, "15 Gbit/s", {5, 10, 15, 20, 30}},
      {"Sockeye (here: nmt-iwslt)", {"nmt-iwslt", 80, 16}, 1.38, "", {1, 2, 3, 4, 5, 6, 8, 10}},
      {"Sockeye (here: nmt)", {"nmt", 80, 16}, 1.38, "", {1, 2, 4, 6, 10, 15}},
  };
  return all;
}

// What bounds VGG-19 at 15 Gbit/s, in the place of its links. Fitted to its one figure.
constexpr double kVggRate = 15;
constexpr double kVggGoodput = 10;
constexpr double kVggSums[] = {0.7, 0.75, 0.8};

P3Setting vgg_setting(double sum_gb_per_s) {
  P3Setting setting;
  setting.gbit_per_s = kVggRate;
  setting.goodput_gbit_per_s = kVggGoodput;
  setting.sum_gb_per_s = sum_gb_per_s;
  return setting;
}

// Published gains beside ours, whether they please or not.
std::string gain_rows() {
  std::string text =
      "| model | published | largest here, on links alone | at, Gbit/s | all rates |\n"
      "|---|---|---|---|---|\n";
  for (const Study& study : studies()) {
    const auto graph = p3_graph(study.model);
    double most = 0;
    double at = 0;
    std::string all;
    for (const double rate : study.rates) {
      P3Setting setting;
      setting.gbit_per_s = rate;
      const double gain = p3_speedup(graph, study.model, setting);
      if (gain > most) at = rate;
      most = std::max(most, gain);
      all += fmt::format("{}{:.2f} at {:g}", all.empty() ? "" : ", ", gain, rate);
    }
    const std::string where = *study.where != 0 ? fmt::format(" at {}", study.where) : "";
    text += fmt::format("| {} | {:.2f}{} | {:.2f} | {:g} | {} |\n", study.title, study.published,
                        where, most, at, all);
  }
  return text;
}

std::string vgg_rows() {
  std::string text = "| servers sum, GB/s | P3 / plain |\n|---|---|\n";
  const P3Model vgg{"vgg19", 42, 32};
  const auto graph = p3_graph(vgg);
  for (const double sum : kVggSums) {
    text += fmt::format("| {:.2f} | {:.2f} |\n", sum, p3_speedup(graph, vgg, vgg_setting(sum)));
  }
  return text;
}

std::string speed_rows(const Study& study) {
  const auto graph = p3_graph(study.model);
  std::string text =
      "| Gbit/s | plain | slices | P3 | P3 / plain | P3 / bound | link busy, plain | link busy, P3 "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const double rate : study.rates) {
    P3Setting setting;
    setting.gbit_per_s = rate;
    const auto plain = simulate_p3(graph, study.model, setting, P3Way::kPlain);
    const auto sliced = simulate_p3(graph, study.model, setting, P3Way::kSliced);
    const auto priority = simulate_p3(graph, study.model, setting, P3Way::kPriority);
    const double samples = static_cast<double>(study.model.batch);
    text += fmt::format(
        "| {:g} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.3f} | {:.0f} % | {:.0f} % |\n", rate,
        samples / plain.step.value, samples / sliced.step.value, samples / priority.step.value,
        plain.step / priority.step, priority.step / priority.bounds.whole,
        100 * plain.nodes[0].sending, 100 * priority.nodes[0].sending);
  }
  return text;
}

std::string machine_rows() {
  std::string text =
      "| machines | ResNet-50 at 4 Gbit/s | VGG-19 at 15 Gbit/s, bound by its machines "
      "|\n|---|---|---|\n";
  const P3Model resnet{"resnet50", 105, 32};
  const P3Model vgg{"vgg19", 42, 32};
  const auto resnet_graph = p3_graph(resnet);
  const auto vgg_graph = p3_graph(vgg);
  for (const std::int64_t machines : {2, 4, 8, 16}) {
    P3Setting setting;
    setting.machines = machines;
    setting.gbit_per_s = 4;
    const double first = p3_speedup(resnet_graph, resnet, setting);
    P3Setting bound = vgg_setting(kVggSums[1]);
    bound.machines = machines;
    text += fmt::format("| {} | {:.2f} | {:.2f} |\n", machines, first,
                        p3_speedup(vgg_graph, vgg, bound));
  }
  return text;
}

std::string slice_rows() {
  std::string text = "| parameters per slice | images/s per machine |\n|---|---|\n";
  const P3Model model{"resnet50", 105, 32};
  const auto graph = p3_graph(model);
  for (const std::int64_t slice : {1'000, 5'000, 10'000, 50'000, 100'000, 200'000, 1'000'000}) {
    P3Setting setting;
    setting.gbit_per_s = 4;
    setting.slice_parameters = slice;
    text += fmt::format("| {} | {:.1f} |\n", slice,
                        32 / simulate_p3(graph, model, setting, P3Way::kPriority).step.value);
  }
  return text;
}

}  // namespace

std::string p3_page() {
  std::string text =
      "# P3 in the simulator\n\nJayarajan et al., \"Priority-based parameter propagation for "
      "distributed DNN training\", MLSys 2019: the experiments on four machines, each with a "
      "worker and a server.\n\n"
      "**Given**: the throughput of one worker (ResNet-50 105 images/s, Inception-v3 62, VGG-19 "
      "42, batch 32; Sockeye 80 sentences/s, batch 16), forward to backward 1:2, the layers' "
      "shares by roofline on a P4000. For Sockeye stands the shipped recurrent translation model "
      "at that rate: with vocabularies of IWSLT 2015's sizes (English to Vietnamese: 17,191 and "
      "7,709; LSTMs of 512, 25 tokens: `nmt-iwslt`), and, as before, in the size of a larger task "
      "(`nmt`). Gradients of embeddings are dense in both.\n\n"
      "**Fitted**, to published gains themselves: for all models and links 20 us per message at "
      "each end, and 96 % of a link's rate for payload; for VGG-19 at 15 Gbit/s alone, further, "
      "cards that carry 10 Gbit/s and servers that sum 0.70 to 0.80 GB/s. Where a height agrees "
      "with what was published, that is the fit; what the model adds is where a gain begins, peaks "
      "and ends.\n\n"
      "*plain*: whole tensors, those above a million parameters in even parts, first in, first "
      "out. *slices*: 50,000 parameters each, first in, first out. *P3*: the same slices by first "
      "use. Samples per second and machine.\n\n## Gains\n\n" +
      gain_rows() + "\nVGG-19 at 15 Gbit/s with constants of its own (published: 1.66):\n\n" +
      vgg_rows();
  for (const Study& study : studies()) {
    text += fmt::format("\n## {}\n\n{}", study.title, speed_rows(study));
  }
  text += "\n## More machines\n\nVGG-19 with servers that sum 0.75 GB/s.\n\n" + machine_rows() +
          "\n## Slices\n\nResNet-50 on 4 machines at 4 Gbit/s, P3.\n\n" + slice_rows();
  return text;
}

}  // namespace autodist::studies
