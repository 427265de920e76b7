#include "autodist/search/placement/throughput.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/sort_unique.h"

namespace autodist::search::placement {
namespace {

// A net per output: its producer and its readers.
void add_nets(const TaskGraph& graph, double bytes_per_unit, ThroughputProblem& problem) {
  std::vector<std::vector<std::vector<std::uint32_t>>> touched(graph.tasks.size());
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    const std::vector<std::uint32_t> producer{problem.group_of[i]};
    touched[i].assign(graph.tasks[i].outputs.size(), producer);
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (const TaskInput& input : graph.tasks[i].inputs) {
      touched[input.task.value][input.output].push_back(problem.group_of[i]);
    }
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (std::size_t output = 0; output < touched[i].size(); ++output) {
      problem.add_net(std::move(touched[i][output]),
                      transfer_time(graph.tasks[i].outputs[output], bytes_per_unit));
    }
  }
  problem.index_nets();
}

}  // namespace

std::vector<ThroughputDevice> alike(std::size_t accelerators, std::size_t cpus, double memory) {
  std::vector<ThroughputDevice> devices(accelerators, ThroughputDevice{false, 1, 1, memory});
  devices.resize(accelerators + cpus, ThroughputDevice{true, 1, 0, kNotSupported});
  return devices;
}

ThroughputProblem::ThroughputProblem(const TaskGraph& graph, std::vector<ThroughputDevice> on,
                                     double bytes_per_unit)
    : devices(std::move(on)) {
  Groups groups = groups_of(graph);
  members = std::move(groups.members);
  group_of = std::move(groups.of);
  for (const std::vector<std::uint32_t>& tasks : members) {
    double held = 0;
    for (const std::uint32_t task : tasks) held += graph.tasks[task].memory;
    memory.push_back(held);
    bool fits = false;
    for (const ThroughputDevice& device : devices) {
      double sum = 0;
      for (const std::uint32_t task : tasks) sum += time_on(graph.tasks[task], device);
      if (held > device.memory) sum = kNotSupported;
      cost.push_back(sum);
      fits |= sum != kNotSupported;
    }
    if (!fits) {
      fail(ErrorCode::kInfeasible,
           "{}: '{}' and what must stay with it fits no device ({} bytes). Use devices with more "
           "memory.",
           graph.name, graph.tasks[tasks.front()].name, held);
    }
  }
  add_nets(graph, bytes_per_unit, *this);
}

void ThroughputProblem::add_net(std::vector<std::uint32_t> groups, double cost) {
  sort_unique(groups);
  if (groups.size() < 2 || cost <= 0) return;
  net_cost.push_back(cost);
  pins.add(groups);
}

void ThroughputProblem::index_nets() {
  std::vector<std::vector<std::uint32_t>> nets(groups());
  for (std::uint32_t net = 0; net < net_cost.size(); ++net) {
    for (const std::uint32_t group : pins[net]) nets[group].push_back(net);
  }
  nets_of = {};
  for (const std::vector<std::uint32_t>& of_group : nets) nets_of.add(of_group);
}

Placement ThroughputProblem::expand(const std::vector<DeviceIndex>& of_group) const {
  Placement placement;
  placement.reserve(group_of.size());
  for (const std::uint32_t group : group_of) placement.push_back(of_group[group]);
  return placement;
}

ThroughputState::ThroughputState(const ThroughputProblem& problem,
                                 std::vector<DeviceIndex> assignment)
    : problem_(&problem), width_(problem.devices.size()), assignment_(std::move(assignment)) {
  AD_CHECK(assignment_.size() == problem.groups()) << "an assignment of another problem";
  refresh();
}

void ThroughputState::refresh() {
  const ThroughputProblem& problem = *problem_;
  load_.assign(width_, 0);
  memory_.assign(width_, 0);
  count_.assign(problem.nets() * width_, 0);
  spread_.assign(problem.nets(), 0);
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    load_[assignment_[group]] += problem.cost_on(group, assignment_[group]);
    memory_[assignment_[group]] += problem.memory[group];
  }
  for (std::uint32_t net = 0; net < problem.nets(); ++net) {
    for (const std::uint32_t group : problem.pins[net]) {
      std::uint16_t& count = count_[net * width_ + assignment_[group]];
      if (count++ == 0) ++spread_[net];
    }
    if (spread_[net] < 2) continue;
    for (std::size_t device = 0; device < width_; ++device) {
      if (count_[net * width_ + device] == 0) continue;
      load_[device] += problem.net_cost[net] * problem.devices[device].transfer;
    }
  }
}

void ThroughputState::move(std::uint32_t group, DeviceIndex to) {
  const DeviceIndex from = assignment_[group];
  if (from == to) return;
  const Loads loads = after_move(group, to);
  load_[from] = loads.from;
  load_[to] = loads.to;
  memory_[from] -= problem_->memory[group];
  memory_[to] += problem_->memory[group];
  for (const std::uint32_t net : problem_->nets_of[group]) {
    if (--count_[net * width_ + from] == 0) --spread_[net];
    if (count_[net * width_ + to]++ == 0) ++spread_[net];
  }
  assignment_[group] = to;
}

double ThroughputState::largest_load() const {
  return *std::max_element(load_.begin(), load_.end());
}

double ThroughputState::overflow() const {
  double over = 0;
  for (std::size_t device = 0; device < width_; ++device) {
    over += std::max(0.0, memory_[device] - problem_->devices[device].memory);
  }
  return over;
}

std::vector<DeviceLoad> loads_of(const TaskGraph& graph, const Placement& placement,
                                 const std::vector<ThroughputDevice>& devices,
                                 double bytes_per_unit) {
  std::vector<DeviceLoad> loads(devices.size());
  // touched[task][output]: the devices of its readers.
  std::vector<std::vector<std::vector<bool>>> touched(graph.tasks.size());
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    touched[i].assign(graph.tasks[i].outputs.size(), std::vector<bool>(devices.size(), false));
    DeviceLoad& load = loads[placement[i]];
    load.work += time_on(graph.tasks[i], devices[placement[i]]);
    load.memory += graph.tasks[i].memory;
    ++load.tasks;
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (const TaskInput& input : graph.tasks[i].inputs) {
      touched[input.task.value][input.output][placement[i]] = true;
    }
  }
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    for (std::size_t output = 0; output < touched[i].size(); ++output) {
      const TaskOutput& tensor = graph.tasks[i].outputs[output];
      const double time = transfer_time(tensor, bytes_per_unit);
      bool leaves = false;
      for (std::size_t device = 0; device < devices.size(); ++device) {
        if (device == placement[i] || !touched[i][output][device]) continue;
        leaves = true;
        loads[device].transfers += time * devices[device].transfer;
        loads[device].bytes_in += tensor.bytes;
      }
      if (!leaves) continue;
      loads[placement[i]].transfers += time * devices[placement[i]].transfer;
      loads[placement[i]].bytes_out += tensor.bytes;
    }
  }
  return loads;
}

namespace {

// Whether all work fits below `limit` when groups may be cut: CPUs take what is cheapest for them
// relative to the fastest accelerator.
bool work_fits(const ThroughputProblem& problem, double limit,
               const std::vector<std::uint32_t>& by_ratio, const std::vector<double>& fast,
               const std::vector<double>& slow, double accelerators, double cpus) {
  double room_fast = limit * accelerators;
  double room_slow = limit * cpus;
  for (const std::uint32_t group : by_ratio) {  // dearest on a CPU first
    const double on_fast = fast[group];
    if (on_fast != kNotSupported && on_fast <= room_fast) {
      room_fast -= on_fast;
      continue;
    }
    const double part = on_fast == kNotSupported ? 0 : room_fast / on_fast;
    room_fast -= on_fast == kNotSupported ? 0 : room_fast;
    if (slow[group] == kNotSupported) return false;
    room_slow -= (1 - part) * slow[group];
    if (room_slow < 0) return false;
  }
  return true;
}

}  // namespace

double throughput_bound(const ThroughputProblem& problem) {
  // Costs at speed 1; a kind's devices count with their speeds.
  std::vector<double> fast(problem.groups(), kNotSupported);
  std::vector<double> slow(problem.groups(), kNotSupported);
  double accelerators = 0;
  double cpus = 0;
  double bound = 0;
  for (std::size_t device = 0; device < problem.devices.size(); ++device) {
    (problem.devices[device].cpu ? cpus : accelerators) += problem.devices[device].speed;
  }
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    double best = kNotSupported;
    for (std::size_t device = 0; device < problem.devices.size(); ++device) {
      const double cost = problem.cost_on(group, device);
      best = std::min(best, cost);
      double& at = problem.devices[device].cpu ? slow[group] : fast[group];
      at = std::min(at, cost * problem.devices[device].speed);
    }
    bound = std::max(bound, best);
  }
  std::vector<std::uint32_t> by_ratio;
  for (std::uint32_t group = 0; group < problem.groups(); ++group) {
    if (fast[group] > 0 || slow[group] > 0) by_ratio.push_back(group);
  }
  const auto ratio = [&](std::uint32_t group) {
    if (fast[group] == kNotSupported) return -1.0;  // goes to a CPU whatever it costs there
    return fast[group] == 0 ? kNotSupported : slow[group] / fast[group];
  };
  std::stable_sort(by_ratio.begin(), by_ratio.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return ratio(a) > ratio(b); });
  double high = bound + 1;
  while (!work_fits(problem, high, by_ratio, fast, slow, accelerators, cpus)) high *= 2;
  double low = bound;
  for (int i = 0; i < 100; ++i) {
    const double middle = low + (high - low) / 2;
    (work_fits(problem, middle, by_ratio, fast, slow, accelerators, cpus) ? high : low) = middle;
  }
  return std::max(bound, low * (1 - 1e-12));
}

}  // namespace autodist::search::placement
