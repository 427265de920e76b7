#include "autodist/sim/cost_model.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/sim/device_table.h"

namespace autodist::sim {
namespace {

// What dense kernels reach of a device's peak, and memory-bound ones of its bandwidth; and what
// starting one takes. Rules of thumb, uncalibrated.
constexpr double kComputeShare = 0.5;
constexpr double kMemoryShare = 0.7;
constexpr Seconds kLaunch{5e-6};

// The device that the rank computes on, as the cluster describes it: on a node with GPUs a CPU is
// not what its `devices:` are about.
cluster::Device device_at(const program::RankInfo& rank, const cluster::Node& node) {
  const std::size_t last = rank.device.rfind(':');
  const bool is_cpu = rank.device.substr(rank.device.rfind(':', last - 1) + 1, 3) == "CPU";
  const std::vector<cluster::Device>& listed = is_cpu ? node.cpus : node.gpus;
  cluster::Device device = listed.empty() ? cluster::Device{} : listed.back();
  device.kind = is_cpu ? cluster::DeviceKind::kCpu : cluster::DeviceKind::kGpu;
  return device;
}

std::map<std::string, const cluster::Node*> by_address(const cluster::Cluster& cluster) {
  std::map<std::string, const cluster::Node*> nodes;
  for (const cluster::Node& node : cluster.nodes) nodes[node.address] = &node;
  return nodes;
}

const cluster::Node& node_of(const program::RankInfo& rank,
                             const std::map<std::string, const cluster::Node*>& nodes) {
  const auto found = nodes.find(rank.node);
  AD_CHECK(found != nodes.end()) << "no node " << rank.node;
  return *found->second;
}

std::string place_of(const program::RankInfo& rank) { return "device of " + rank.device; }

// Whether some op says what it computes or moves. Ops of a graph_item do not: only that they are
// launched is known.
bool knows_its_work(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const ir::Op& op) {
    return !(op.flops == ir::Affine{}) || !(op.bytes_moved == ir::Affine{});
  });
}

bool was_measured(const ir::Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const ir::Op& op) {
    return op.cost.fixed > Seconds{0} || op.cost.per_sample > Seconds{0};
  });
}

class Model {
 public:
  Model(const program::Program& program, const cluster::Cluster& cluster,
        const CostOptions& options)
      : program_(program), graph_(*program.graph), options_(options), nodes_(by_address(cluster)) {
    costs_.batch = options.batch == 0 ? graph_.example_batch : options.batch;
    costs_.precision = options.precision;
    costs_.micro_batches = program.is_placed() ? program.micro_batches : options.micro_batches;
    check();
  }

  CostModel make() {
    bool on_devices = false;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const program::Rank rank(r);
      costs_.device_of_rank.push_back(device_of(rank, samples_of(rank)));
      on_devices = on_devices || !costs_.devices[costs_.device_of_rank.back()].on_host;
    }
    say_default_network();
    say_own_cores();
    if (on_devices) {
      costs_.collectives.cpu_s_per_byte = 0;
      say_default_links();
    }
    costs_.uncalibrated.emplace_back(std::string(kEngineRates) + " and the collectives' constants");
    return std::move(costs_);
  }

 private:
  void check() const {
    if (costs_.batch < 1 || costs_.micro_batches < 1) {
      fail(ErrorCode::kUsage, "simulate: batch {} in {} micro-batches, at least 1 of each expected",
           costs_.batch, costs_.micro_batches);
    }
    if (graph_.batch_fixed_reason.empty() || costs_.batch == graph_.example_batch) return;
    fail(ErrorCode::kUsage, "simulate: batch {}, but '{}' can only have {}: {}. Take that.",
         costs_.batch, graph_.name, graph_.example_batch, graph_.batch_fixed_reason);
  }

  // What bounds most plans, where nobody has said it.
  void say_default_network() {
    const auto unsaid = std::find_if(nodes_.begin(), nodes_.end(), [](const auto& each) {
      const cluster::Node& node = *each.second;
      return !node.bandwidth_is_stated &&
             node.bandwidth_bytes_per_s == cluster::Node().bandwidth_bytes_per_s;
    });
    const std::vector<program::RankInfo>& ranks = program_.ranks;
    const bool several = std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
      return rank.node != ranks.front().node;
    });
    if (unsaid == nodes_.end() || !several) return;
    say_uncalibrated(fmt::format(
        "machines linked at {:g} Gbit/s, the default (`network_bandwidth:` in the cluster file)",
        unsaid->second->bandwidth_bytes_per_s / kBytesPerGigabit));
  }

  // As nobody has said how many there are.
  void say_own_cores() {
    std::map<std::string, int> ranks;  // that compute on their host, by node
    int most = 0;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const bool on_host = costs_.devices[costs_.device_of_rank[r]].on_host;
      if (!on_host || !program_.computes(program::Rank(r))) continue;
      most = std::max(most, ++ranks[program_.ranks[r].node]);
    }
    if (most < 2) return;
    say_uncalibrated(fmt::format("{}: one for each of its {} ranks (`cores` in a calibration)",
                                 kCoresOfAMachine, most));
  }

  // GPUs of one machine are mostly linked otherwise than by the default.
  void say_default_links() {
    std::set<const cluster::Node*> with_a_gpu;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      if (costs_.devices[costs_.device_of_rank[r]].on_host) continue;
      const cluster::Node& node = node_of(program_.ranks[r], nodes_);
      const bool is_default = node.intra_node_bytes_per_s == cluster::Node().intra_node_bytes_per_s;
      if (with_a_gpu.insert(&node).second || !is_default) continue;
      return say_uncalibrated(
          fmt::format("GPUs of a machine linked at {:g} Gbit/s, the default (`intra_node:` in the "
                      "cluster file; NVLink has 1200 on V100, 2400 on A100, 3600 on H100)",
                      node.intra_node_bytes_per_s / kBytesPerGigabit));
    }
  }

  // Of a step; nothing where parts are equal.
  [[nodiscard]] std::optional<std::int64_t> samples_of(program::Rank rank) const {
    if (program_.batch_shares.empty() || !program_.computes(rank)) return {};
    const auto [begin, end] =
        program::part_rows(program_, costs_.batch * costs_.micro_batches * program_.batch_parts(),
                           program_.batch_part(rank));
    return end - begin;
  }

  std::uint32_t device_of(program::Rank of, std::optional<std::int64_t> samples) {
    const program::RankInfo& rank = program_.ranks[of.value];
    const bool computes = program_.computes(of);
    cluster::Device device = device_at(rank, node_of(rank, nodes_));
    if (!options_.device.empty()) {
      device.figures = {};
      device.figures.kind = options_.device;
    }
    const bool is_cpu = device.kind == cluster::DeviceKind::kCpu;
    const cluster::DeviceFigures& stated = device.figures;
    const auto key =
        std::make_tuple(is_cpu, computes, stated.kind, stated.tflops, stated.memory.value,
                        stated.memory_bandwidth_bytes_per_s, stated.tf32_tflops, stated.half_tflops,
                        stated.pcie_bytes_per_s, samples);
    const auto [known, is_new] = known_.emplace(key, costs_.devices.size());
    if (!is_new) return known->second;
    if (is_assumed(device)) {
      say_uncalibrated(fmt::format(
          "GPUs whose kind the cluster file does not say count as {0} (`devices: {{kind: {0}}}`)",
          kAssumedGpu));
    }
    add_device(is_cpu, computes, figures_of(device, place_of(rank)), samples);
    return known->second;
  }

  // One on which nothing is computed has no times that anybody asks for.
  void add_device(bool is_cpu, bool computes, const cluster::DeviceFigures& figures,
                  std::optional<std::int64_t> samples) {
    DeviceCost device;
    device.samples = samples;
    device.memory = figures.memory;
    device.on_host = is_cpu;
    if (!options_.device.empty()) {
      const DeviceRow& row = find_device(options_.device, "--device");
      device.on_host = row.computes_on == cluster::DeviceKind::kCpu;
    }
    device.staging_bytes_per_s = device.on_host ? 0 : pcie_bytes_per_s(figures);
    const bool has_figures = has_rates(figures);
    if (computes && !has_figures && !was_measured(graph_)) {
      fail(ErrorCode::kUsage,
           "simulate: '{}' has no measured times and the cluster does not say what its devices "
           "are. Give `devices: {{kind: …}}` in the cluster file, or --what-if device=KIND.",
           graph_.name);
    }
    device.as_captured = device.on_host == (graph_.device == "cpu");
    device.kind = !has_figures           ? "as measured"
                  : figures.kind.empty() ? "devices of the cluster file's rates"
                                         : figures.kind;
    if (has_figures && !device.on_host) {
      device.update_bytes_per_s = updates_by_memory(figures.memory_bandwidth_bytes_per_s);
      device.context = context_bytes(row_of(figures));
    }
    std::optional<FittedTimes> fitted;
    if (computes) fitted = fitted_times(device, figures);
    const auto at_batch = [&](const ir::Op& op, std::int64_t batch) {
      if (batch <= 0) return Seconds{};
      if (fitted) return fitted->of(graph_, op, batch);
      return has_figures ? roofline(op, batch, figures.tflops, figures.memory_bandwidth_bytes_per_s)
                         : op.cost.at(batch);
    };
    // Micro-batches have the same number of samples, or one more.
    const std::int64_t parts = costs_.micro_batches;
    const auto in_step = [&](const ir::Op& op, std::int64_t all) {
      const std::int64_t larger = std::max<std::int64_t>(0, all) % parts;
      return at_batch(op, all / parts) * static_cast<double>(parts - larger) +
             at_batch(op, all / parts + 1) * static_cast<double>(larger);
    };
    const std::int64_t all = samples.value_or(costs_.batch * parts);
    for (const ir::Op& op : graph_.ops) {
      device.ops.push_back(all % parts == 0 ? at_batch(op, all / parts)
                                            : in_step(op, all) * (1 / static_cast<double>(parts)));
      device.with_less += in_step(op, all - 1);
      device.with_more += in_step(op, all + 1);
    }
    if (fitted) {
      say_uncalibrated(fitted->said());
    } else if (has_figures) {
      say_uncalibrated(fmt::format(
          "times and updates on {}: roofline at half of {:g} TFLOP/s and 70 % of {:g} GB/s",
          device.kind, figures.tflops, figures.memory_bandwidth_bytes_per_s / 1e9));
    }
    if (has_figures && !knows_its_work(graph_)) {
      say_uncalibrated(
          "the graph says nothing of what its ops compute and keep: only "
          "communication is predicted");
    }
    if (!device.on_host && figures.pcie_bytes_per_s == 0) {
      say_uncalibrated(fmt::format("host-device copies on {} at {:g} GB/s", device.kind,
                                   device.staging_bytes_per_s / 1e9));
    }
    costs_.devices.push_back(std::move(device));
  }

  // Where a precision is asked for.
  [[nodiscard]] std::optional<FittedTimes> fitted_times(
      const DeviceCost& device, const cluster::DeviceFigures& figures) const {
    if (options_.precision == Precision::kAsCaptured) return {};
    const std::string where = "--dtype " + name_of(options_.precision);
    if (device.on_host) {
      fail(ErrorCode::kUsage,
           "{}: the step computes on CPUs, whose times are as measured. Give GPUs a kind in the "
           "cluster file (`devices: {{kind: A100}}`), or --what-if device=KIND.",
           where);
    }
    const auto is_16_bit = [&](const ir::Value& value) {
      return is_floating(value.type.dtype) && size_of(value.type.dtype) == 2;
    };
    if (std::any_of(graph_.values.begin(), graph_.values.end(), is_16_bit)) {
      fail(ErrorCode::kUsage,
           "{}: '{}' was captured with values of 16 bits; a graph in float32 expected, or no "
           "--dtype",
           where, graph_.name);
    }
    return FittedTimes(row_of(figures), options_.precision);
  }

  // Once, whatever the number of batches on a kind of device.
  void say_uncalibrated(std::string line) {
    auto& lines = costs_.uncalibrated;
    if (std::find(lines.begin(), lines.end(), line) != lines.end()) return;
    lines.push_back(std::move(line));
  }

  const program::Program& program_;
  const ir::Graph& graph_;
  const CostOptions& options_;
  std::map<std::string, const cluster::Node*> nodes_;
  using Key = std::tuple<bool, bool, std::string, double, std::int64_t, double, double, double,
                         double, std::optional<std::int64_t>>;
  std::map<Key, std::uint32_t> known_;
  CostModel costs_;
};

}  // namespace

Seconds roofline(const ir::Op& op, std::int64_t batch, double tflops, double bytes_per_s) {
  const auto flops = static_cast<double>(op.flops.at(batch));
  const double bytes = bytes_moved(op, batch);
  const double computing = flops / (tflops * 1e12 * kComputeShare);
  const double moving = bytes / (bytes_per_s * kMemoryShare);
  return kLaunch + Seconds(std::max(computing, moving));
}

CostModel with_slow_engine(CostModel costs) {
  constexpr double kMessages = 4;  // as much dearer
  constexpr double kWork = 3;
  EngineCost& engine = costs.engine;
  engine.message = engine.message * kMessages;
  engine.send_cpu_s_per_byte *= kWork;
  engine.receive_cpu_s_per_byte *= kWork;
  for (double* rate : {&engine.sum_bytes_per_s, &engine.update_bytes_per_s,
                       &engine.install_bytes_per_s, &engine.encode_bytes_per_s}) {
    *rate /= kWork;
  }
  costs.collectives.start = costs.collectives.start * kWork;
  costs.collectives.round = costs.collectives.round * kWork;
  costs.collectives.cpu_s_per_byte *= kWork;
  return costs;
}

Seconds compute_seconds(const CostModel& costs, program::Rank rank) {
  const std::vector<Seconds>& ops = costs.device(rank).ops;
  return std::accumulate(ops.begin(), ops.end(), Seconds{}) *
         static_cast<double>(costs.micro_batches);
}

program::Rank slowest_rank(const program::Program& program, const CostModel& costs) {
  std::optional<program::Rank> slowest;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const program::Rank rank(r);
    if (!program.computes(rank)) continue;
    if (!slowest || compute_seconds(costs, rank) > compute_seconds(costs, *slowest)) slowest = rank;
  }
  AD_CHECK(slowest) << "nobody computes";
  return *slowest;
}

double updates_by_memory(double bytes_per_s) {
  constexpr double kStreams = 3;  // reads gradient and parameter, writes the parameter
  return bytes_per_s * kMemoryShare / kStreams;
}

double update_bytes_per_s(const CostModel& costs, const program::Program& program) {
  std::optional<double> least;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (!program.computes(program::Rank(r))) continue;
    const double own = costs.device(program::Rank(r)).update_bytes_per_s;
    const double rate = own > 0 ? own : costs.engine.update_bytes_per_s;
    least = std::min(least.value_or(rate), rate);
  }
  return least.value_or(costs.engine.update_bytes_per_s);
}

double staging_bytes_per_s(const CostModel& costs, const program::Program& program) {
  double least = 0;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (!program.computes(program::Rank(r))) continue;
    const double own = costs.device(program::Rank(r)).staging_bytes_per_s;
    if (own > 0 && (least == 0 || own < least)) least = own;
  }
  return least;
}

double samples_to_add(const CostModel& costs, program::Rank rank, double seconds) {
  const DeviceCost& device = costs.device(rank);
  const double now = compute_seconds(costs, rank).value;
  if (seconds < now) {
    const auto all = static_cast<double>(costs.samples_of(rank));
    const double each = now - device.with_less.value;
    return each > 0 ? std::max(-all, (seconds - now) / each) : -all;
  }
  const double each = device.with_more.value - now;
  constexpr double kAnyNumber = 1e18;
  return each > 0 ? (seconds - now) / each : kAnyNumber;
}

int state_values(const ir::UpdateRule& rule) {
  switch (rule.rule) {
    case ir::Rule::kSgd:
      return rule.option("momentum") == 0 ? 0 : 1;
    case ir::Rule::kAdam:
    case ir::Rule::kAdamW:
      return rule.option("amsgrad") == 0 ? 2 : 3;
    case ir::Rule::kAdagrad:
    case ir::Rule::kUser:
      return 1;
    case ir::Rule::kRmsProp:
      return 1 + (rule.option("momentum") > 0 ? 1 : 0) + (rule.option("centered") != 0 ? 1 : 0);
    case ir::Rule::kAdadelta:
    case ir::Rule::kAdamax:
    case ir::Rule::kNAdam:
    case ir::Rule::kRAdam:
    case ir::Rule::kFtrl:
    case ir::Rule::kLamb:
      return 2;
  }
  return 0;
}

// Read gradient and parameter, write the parameter; read and write every value of state.
double update_weight(const ir::UpdateRule& rule) { return (3.0 + 2.0 * state_values(rule)) / 3.0; }

Seconds multiply_seconds(const CostModel& costs, const ir::Graph& graph, const ir::Factors& factors,
                         program::Rank rank) {
  const DeviceCost& device = costs.device(rank);
  if (device.on_host) {  // everybody's factors, of equal parts
    const Seconds own = device.ops[factors.product.value];
    return device.samples.value_or(0) > 0
               ? own * (static_cast<double>(costs.batch) / static_cast<double>(*device.samples))
               : own;
  }
  double flop = 2;
  for (const ir::Affine& size : {graph.value(factors.left).type.sizes.front(), factors.inner,
                                 graph.value(factors.right).type.sizes.back()}) {
    flop *= static_cast<double>(size.at(costs.batch));
  }
  return Seconds(flop / costs.engine.multiply_flop_per_s);
}

void check_devices(const program::Program& program, const cluster::Cluster& cluster) {
  const auto nodes = by_address(cluster);
  for (const program::RankInfo& rank : program.ranks) {
    figures_of(device_at(rank, node_of(rank, nodes)), place_of(rank));
  }
}

CostModel cost_model(const program::Program& program, const cluster::Cluster& cluster,
                     const CostOptions& options) {
  return Model(program, cluster, options).make();
}

ir::Graph with_times(const program::Program& program, const CostModel& costs) {
  const DeviceCost& device = costs.device(slowest_rank(program, costs));
  ir::Graph timed = *program.graph;
  for (std::size_t i = 0; i < timed.ops.size(); ++i) timed.ops[i].cost = {device.ops[i], Seconds{}};
  return timed;
}

}  // namespace autodist::sim
