#include "autodist/search/placement/link_simulator.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "autodist/base/check.h"

namespace autodist::search::placement {
namespace {

constexpr double kNotYet = -1;

}  // namespace

LinkSimulator::LinkSimulator(const TaskGraph& graph, std::vector<ListDevice> devices)
    : graph_(&graph), devices_(std::move(devices)) {
  AD_CHECK(!devices_.empty()) << "a simulation without devices";
  const std::size_t count = graph.tasks.size();
  std::vector<std::uint32_t> nodes;
  for (const ListDevice& device : devices_) {
    const auto same = std::find(nodes.begin(), nodes.end(), device.node);
    card_of_.push_back(static_cast<std::uint32_t>(
        device.node == kNoNode ? nodes.size() : static_cast<std::size_t>(same - nodes.begin())));
    if (card_of_.back() == nodes.size()) nodes.push_back(device.node);
    limited_ |= device.memory != kNotSupported;
  }
  cards_.resize(nodes.size() + devices_.size());
  readers_.resize(count);
  parents_.assign(count, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (const TaskInput& input : graph.tasks[i].inputs) {
      std::vector<Reader>& readers = readers_[input.task.value];
      const auto same = std::find_if(readers.begin(), readers.end(), [&](const Reader& reader) {
        return reader.task == i && reader.output == input.output;
      });
      if (same != readers.end()) continue;
      readers.push_back({i, input.output});
      ++parents_[i];
    }
  }
  end_.resize(count);
  arrival_.resize(count * devices_.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      arrival_[i * devices_.size() + d].resize(graph.tasks[i].outputs.size());
    }
  }
  timeline_.resize(count);
}

// The time at which the output is there.
double LinkSimulator::transfer(DeviceIndex from, DeviceIndex to, std::uint32_t task,
                               std::uint32_t output, double now) {
  double& arrives = arrival_[task * devices_.size() + to][output];
  if (arrives != kNotYet) return arrives;
  const bool inside = devices_[from].node != kNoNode && devices_[from].node == devices_[to].node &&
                      devices_[from].inside_bytes_per_unit > 0;
  const std::size_t nodes = cards_.size() - devices_.size();
  Card& sender = cards_[inside ? nodes + from : card_of_[from]];
  Card& receiver = cards_[inside ? nodes + to : card_of_[to]];
  const TaskOutput& tensor = graph_->tasks[task].outputs[output];
  const double rate =
      inside ? std::min(devices_[from].inside_bytes_per_unit, devices_[to].inside_bytes_per_unit)
             : std::min(devices_[from].bytes_per_unit, devices_[to].bytes_per_unit);
  const double time = transfer_time(tensor, rate);
  const double start = std::max(now, std::max(sender.out_free, receiver.in_free));
  arrives = start + time;
  sender.out_free = arrives + devices_[from].after_transfer;
  receiver.in_free = arrives;
  return arrives;
}

double LinkSimulator::run(const Placement& placement) {
  AD_CHECK(placement.size() == end_.size()) << "a placement of another graph";
  for (std::uint32_t i = 0; i < placement.size(); ++i) {
    const double time = time_on(graph_->tasks[i], devices_[placement[i]]);
    if (time == kNotSupported) return kNotSupported;
  }
  std::fill(cards_.begin(), cards_.end(), Card{});
  for (std::vector<double>& arrivals : arrival_) {
    std::fill(arrivals.begin(), arrivals.end(), kNotYet);
  }
  waits_ = parents_;
  enum Kind : std::uint8_t { kEnds, kArrives, kMayStart };
  using Event = std::tuple<double, Kind, std::uint32_t, std::uint32_t>;  // …, task, its parent
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  using Ready = std::pair<double, std::uint32_t>;
  std::vector<std::priority_queue<Ready, std::vector<Ready>, std::greater<>>> queues(
      devices_.size());
  std::vector<double> free(devices_.size(), 0);
  constexpr std::uint32_t kNobody = kNoColour;
  std::vector<std::uint32_t> last(devices_.size(), kNobody);
  Timeline& timeline = timeline_;
  double time = 0;
  const auto ready = [&](std::uint32_t task, std::uint32_t parent, double now) {
    timeline.ready[task] = now;
    timeline.last_parent[task] = parent;
    queues[placement[task]].emplace(now, task);
    events.emplace(std::max(now, free[placement[task]]), kMayStart, task, 0);
  };
  for (std::uint32_t i = 0; i < placement.size(); ++i) {
    if (parents_[i] == 0) ready(i, i, 0);
  }
  while (!events.empty()) {
    const auto [now, kind, task, parent] = events.top();
    events.pop();
    const DeviceIndex here = placement[task];
    if (kind == kArrives) {
      if (--waits_[task] == 0) ready(task, parent, now);
    } else if (kind == kEnds) {
      for (const Reader& reader : readers_[task]) {
        const DeviceIndex there = placement[reader.task];
        const double at = there == here ? now : transfer(here, there, task, reader.output, now);
        events.emplace(at, kArrives, reader.task, task);
      }
    } else if (free[here] <= now && !queues[here].empty()) {
      const std::uint32_t next = queues[here].top().second;
      queues[here].pop();
      const double cost = time_on(graph_->tasks[next], devices_[here]);
      timeline.start[next] = now;
      timeline.before[next] = last[here] == kNobody ? next : last[here];
      last[here] = next;
      end_[next] = now + cost;
      free[here] = end_[next] + (cost > 0 ? devices_[here].after_op : 0);
      if (end_[next] >= time) {
        time = end_[next];
        timeline.last_task = next;
      }
      events.emplace(end_[next], kEnds, next, 0);
      if (!queues[here].empty()) events.emplace(free[here], kMayStart, next, 0);
    } else if (!queues[here].empty()) {
      events.emplace(free[here], kMayStart, queues[here].top().second, 0);
    }
  }
  return fits(placement) ? time : kNotSupported;
}

bool LinkSimulator::fits(const Placement& placement) {
  peak_.assign(devices_.size(), 0);
  std::vector<std::vector<HeldChange>> changes(devices_.size());
  for (std::uint32_t i = 0; i < placement.size(); ++i) {
    const Task& task = graph_->tasks[i];
    peak_[placement[i]] += task.memory;
    for (std::uint32_t output = 0; output < task.outputs.size(); ++output) {
      std::vector<double> until(devices_.size(), kNotYet);
      until[placement[i]] = end_[i];
      for (const Reader& reader : readers_[i]) {
        if (reader.output != output) continue;
        double& last = until[placement[reader.task]];
        last = std::max(last, end_[reader.task]);
      }
      for (std::size_t device = 0; device < devices_.size(); ++device) {
        if (until[device] == kNotYet) continue;
        const double from = device == placement[i] ? timeline_.start[i]
                                                   : arrival_[i * devices_.size() + device][output];
        changes[device].push_back({from, false, task.outputs[output].bytes});
        changes[device].push_back({until[device], true, task.outputs[output].bytes});
      }
    }
  }
  bool enough = true;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    peak_[device] = most_held(peak_[device], std::move(changes[device]));
    enough &= peak_[device] <= devices_[device].memory;
  }
  return enough || !limited_;
}

}  // namespace autodist::search::placement
