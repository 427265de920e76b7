#include "autodist/search/placement/placeto_simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/search/placement/orders.h"

namespace autodist::search::placement {

PlacetoSimulator::PlacetoSimulator(const TaskGraph& graph, std::size_t devices)
    : devices_(devices) {
  AD_CHECK(devices > 0) << "a simulation without devices";
  const std::size_t count = graph.tasks.size();
  const std::vector<std::uint32_t> rank = ranks_by_name(graph);
  std::vector<std::vector<Edge>> edges(count);
  parents_.resize(count);
  for (std::uint32_t child = 0; child < count; ++child) {
    for (const TaskInput& input : graph.tasks[child].inputs) {
      std::vector<Edge>& out = edges[input.task.value];
      // A child that reads two outputs of one parent counts the last one only.
      if (!out.empty() && out.back().child == child) {
        out.back().output = input.output;
        continue;
      }
      out.push_back({child, rank[child], input.output, static_cast<std::uint32_t>(out.size())});
      ++parents_[child];
    }
  }
  edge_begin_.push_back(0);
  output_begin_.push_back(0);
  for (std::uint32_t task = 0; task < count; ++task) {
    const Task& from = graph.tasks[task];
    cost_.push_back(from.cost);
    held_bytes_.push_back(0);
    for (const TaskOutput& output : from.outputs) held_bytes_.back() += output.bytes;
    if (parents_[task] == 0) sources_.push_back(task);
    std::vector<Edge>& out = edges[task];
    std::sort(out.begin(), out.end(),
              [](const Edge& a, const Edge& b) { return a.name_rank < b.name_rank; });
    by_name_.insert(by_name_.end(), out.begin(), out.end());
    std::stable_sort(out.begin(), out.end(),
                     [](const Edge& a, const Edge& b) { return a.output < b.output; });
    by_output_.insert(by_output_.end(), out.begin(), out.end());
    index_outputs(out, edge_begin_.back());
    edge_begin_.push_back(static_cast<std::uint32_t>(by_output_.size()));
    for (const Edge& edge : out) {
      transfer_.push_back(from.outputs.at(edge.output).bytes / kPlacetoBytesPerUs);
    }
  }
  device_.resize(devices);
  next_.resize(devices);
  waits_.resize(count);
  timeline_.resize(count);
  for (Device& device : device_) {
    device.queue.resize(count);
    device.bus.resize(outputs_.size());
  }
}

// `edges`: of one task, by output. `begin`: where they stand in by_output_.
void PlacetoSimulator::index_outputs(const std::vector<Edge>& edges, std::uint32_t begin) {
  in_file_order_.resize(begin + edges.size());
  for (std::uint32_t e = 0; e < edges.size(); ++e) {
    if (e == 0 || edges[e].output != edges[e - 1].output) {
      outputs_.push_back({begin + e, begin + e});
    }
    outputs_.back().last = begin + e + 1;
    in_file_order_[begin + edges[e].place] = {edges[e].child,
                                              static_cast<std::uint32_t>(outputs_.size() - 1)};
  }
  output_begin_.push_back(static_cast<std::uint32_t>(outputs_.size()));
}

void PlacetoSimulator::reset(const Placement& placement) {
  std::copy(parents_.begin(), parents_.end(), waits_.begin());
  for (Device& device : device_) {
    device.op_ends = device.free = device.arrives = device.bus_free = kNever;
    device.queue_head = device.queue_end = device.bus_head = device.bus_end = 0;
  }
  for (const std::uint32_t task : sources_) {
    Device& device = device_[placement[task]];
    timeline_.ready[task] = 0;
    timeline_.last_parent[task] = task;
    device.queue[device.queue_end++] = task;
    device.free = 0;
  }
  for (std::size_t d = 0; d < devices_; ++d) note_next(d);
}

double PlacetoSimulator::run(const Placement& placement) {
  AD_CHECK(placement.size() == cost_.size()) << "a placement of another graph";
  reset(placement);
  double last = 0;
  for (;;) {
    double now = kNever;
    double second = kNever;
    std::size_t first = 0;
    for (std::size_t d = 0; d < devices_; ++d) {
      const double next = next_[d];
      second = std::min(second, std::max(next, now));
      first = next < now ? d : first;
      now = std::min(now, next);
    }
    if (now == kNever) return last;
    last = now;
    if (second == now) {  // several
      first = first_of_tied(now, placement);
      if (first == devices_) continue;
    }
    take_event(first, now, placement);
  }
}

// Several devices have an event at `now`: arrivals first, all of them by name, then buses by index,
// then devices. The index of the one to go on with, or devices_ when there were arrivals.
std::size_t PlacetoSimulator::first_of_tied(double now, const Placement& placement) {
  std::size_t bus = devices_;
  std::size_t free = devices_;
  bool arrivals = false;
  for (std::size_t d = devices_; d-- > 0;) {
    const Device& device = device_[d];
    if (device.op_ends == now || device.arrives == now) arrivals = true;
    if (device.bus_free == now) bus = d;
    if (device.free == now) free = d;
  }
  if (arrivals) {
    receive_in_order_of_name(now, placement);
    return devices_;
  }
  return bus < devices_ ? bus : free;
}

template <typename Visit>
void PlacetoSimulator::end_op(Device& device, const Placement& placement, Visit visit) {
  device.op_ends = kNever;
  const std::uint32_t task = device.running;
  for (std::uint32_t e = edge_begin_[task]; e < edge_begin_[task + 1]; ++e) {
    if (placement[by_name_[e].child] == placement[task]) visit(task, by_name_[e]);
  }
}

template <typename Visit>
void PlacetoSimulator::end_transfer(Device& device, const Placement& placement, Visit visit) {
  device.arrives = kNever;
  const BusJob& job = device.moving;
  for (std::uint32_t e = job.first; e < job.last; ++e) {
    if (placement[by_output_[e].child] != placement[job.task]) visit(job.task, by_output_[e]);
  }
}

void PlacetoSimulator::receive_in_order_of_name(double now, const Placement& placement) {
  tied_.clear();
  const auto add = [&](std::uint32_t parent, const Edge& edge) {
    tied_.emplace_back(edge.name_rank, std::uint64_t{parent} << 32 | edge.child);
  };
  for (Device& device : device_) {
    if (device.op_ends == now) end_op(device, placement, add);
    if (device.arrives == now) end_transfer(device, placement, add);
  }
  for (std::size_t d = 0; d < devices_; ++d) note_next(d);
  std::sort(tied_.begin(), tied_.end());
  for (const auto& [rank, edge] : tied_) {
    receive(static_cast<std::uint32_t>(edge >> 32), static_cast<std::uint32_t>(edge), now,
            placement);
  }
}

void PlacetoSimulator::take_event(std::size_t index, double now, const Placement& placement) {
  Device& device = device_[index];
  const auto pass_on = [&](std::uint32_t parent, const Edge& edge) {
    receive(parent, edge.child, now, placement);
  };
  if (device.op_ends == now && device.arrives == now) {
    receive_in_order_of_name(now, placement);
  } else if (device.op_ends == now) {
    // No other device has an event now, and an op that ends reaches no other: what this one starts
    // at the same time may follow at once.
    end_op(device, placement, pass_on);
    if (device.bus_free == now) start_next_transfer(device, now);
    if (device.free == now && device.arrives != now) start_next_op(device, now, placement);
  } else if (device.arrives == now) {
    end_transfer(device, placement, pass_on);
  } else if (device.bus_free == now) {
    start_next_transfer(device, now);
  } else {
    start_next_op(device, now, placement);
  }
  note_next(index);
}

void PlacetoSimulator::note_next(std::size_t index) {
  const Device& device = device_[index];
  next_[index] =
      std::min(std::min(device.op_ends, device.arrives), std::min(device.bus_free, device.free));
}

void PlacetoSimulator::receive(std::uint32_t parent, std::uint32_t child, double now,
                               const Placement& placement) {
  if (--waits_[child] != 0) return;
  timeline_.ready[child] = now;
  timeline_.last_parent[child] = parent;
  const DeviceIndex here = placement[child];
  Device& device = device_[here];
  device.queue[device.queue_end++] = child;
  if (device.free == kNever) {
    device.free = now;
    next_[here] = now;
  }
}

void PlacetoSimulator::start_next_transfer(Device& device, double now) {
  timeline_.last_task = device.moving.task;
  if (device.bus_head == device.bus_end) {
    device.bus_free = kNever;
    return;
  }
  const BusJob& next = device.bus[device.bus_head];
  if (next.ready > now) {
    device.bus_free = next.ready;
    return;
  }
  device.moving = next;
  ++device.bus_head;
  device.arrives = now + transfer_[device.moving.first];
  device.bus_free = device.arrives + kPlacetoAfterTransfer;
}

// One job per output that is wanted elsewhere, in the order of the first child that wants it.
void PlacetoSimulator::enqueue_transfers(std::uint32_t task, Device& device,
                                         const Placement& placement) {
  const DeviceIndex here = placement[task];
  const std::uint32_t begin = output_begin_[task];
  const std::uint32_t outputs = output_begin_[task + 1] - begin;
  if (outputs == 1) {
    const ReadOutput& output = outputs_[begin];
    for (std::uint32_t e = output.first; e < output.last; ++e) {
      if (placement[by_output_[e].child] == here) continue;
      device.bus[device.bus_end++] = {task, output.first, output.last, device.op_ends};
      return;
    }
    return;
  }
  leaving_.clear();
  for (std::uint32_t e = edge_begin_[task]; e < edge_begin_[task + 1] && leaving_.size() < outputs;
       ++e) {
    const FileEdge& edge = in_file_order_[e];
    if (placement[edge.child] == here) continue;
    if (std::find(leaving_.begin(), leaving_.end(), edge.output) != leaving_.end()) continue;
    leaving_.push_back(edge.output);
    const ReadOutput& output = outputs_[edge.output];
    device.bus[device.bus_end++] = {task, output.first, output.last, device.op_ends};
  }
}

void PlacetoSimulator::start_next_op(Device& device, double now, const Placement& placement) {
  timeline_.last_task = device.running;
  if (device.queue_head == device.queue_end) {
    device.free = kNever;
    return;
  }
  const std::uint32_t task = device.queue[device.queue_head++];
  timeline_.start[task] = now;
  timeline_.before[task] = device.queue_head == 1 ? task : device.running;
  device.running = task;
  device.op_ends = now + cost_[task];
  device.free = device.op_ends + (cost_[task] > 0 ? kPlacetoAfterOp : 0);

  enqueue_transfers(task, device, placement);
  if (device.bus_head < device.bus_end && device.bus_free == kNever) {
    device.bus_free = device.op_ends;
  }
}

std::vector<std::int64_t> PlacetoSimulator::peak_bytes(const Placement& placement) const {
  std::vector<std::vector<HeldChange>> changes(devices_);
  for (std::uint32_t task = 0; task < cost_.size(); ++task) {
    double until = timeline_.start[task];
    for (std::uint32_t e = edge_begin_[task]; e < edge_begin_[task + 1]; ++e) {
      const std::uint32_t child = by_name_[e].child;
      until = std::max(until, std::trunc(timeline_.start[child] + cost_[child]) - 1);
    }
    changes[placement[task]].push_back({timeline_.start[task], false, held_bytes_[task]});
    changes[placement[task]].push_back({until, true, held_bytes_[task]});
  }
  std::vector<std::int64_t> peaks;
  for (std::vector<HeldChange>& each : changes) {
    peaks.push_back(static_cast<std::int64_t>(most_held(0, std::move(each))));
  }
  return peaks;
}

}  // namespace autodist::search::placement
