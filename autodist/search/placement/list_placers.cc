#include "autodist/search/placement/list_placers.h"

#include <algorithm>
#include <limits>

#include "autodist/base/check.h"
#include "autodist/search/placement/random.h"

namespace autodist::search::placement {
namespace {

double average_rate(const std::vector<ListDevice>& devices) {
  double sum = 0;
  for (const ListDevice& device : devices) sum += device.bytes_per_unit;
  return sum / static_cast<double>(devices.size());
}

// A task's bytes: what stays, and what it makes.
double bytes_of(const Task& task) {
  double sum = task.memory;
  for (const TaskOutput& output : task.outputs) sum += output.bytes;
  return sum;
}

class ListPlacer {
 public:
  ListPlacer(const TaskGraph& graph, const std::vector<ListDevice>& devices,
             const ListOptions& options, std::mt19937_64& random)
      : graph_(graph),
        devices_(devices),
        options_(options),
        random_(random),
        neighbours_(neighbours_of(graph)),
        free_(devices.size(), 0),
        link_free_(devices.size(), 0),
        held_(devices.size(), 0),
        end_(graph.tasks.size(), 0),
        placement_(graph.tasks.size(), 0) {
    for (const Task& task : graph.tasks) delivered_.emplace_back(task.outputs.size(), kNever);
    for (const auto& parents : neighbours_.parents) waits_.push_back(parents.size());
  }

  Placement run() {
    std::vector<double> ranks = upward_ranks(graph_, devices_, options_.caution);
    for (double& rank : ranks) rank *= 1 + options_.noise * (fraction(random_) - 0.5);
    return run_by(std::move(ranks));
  }

  Placement run_by(std::vector<double> ranks) {
    rank_ = std::move(ranks);
    if (options_.rule == ListRule::kTopo) {
      fill_in_order();
      return placement_;
    }
    if (options_.rule == ListRule::kSct) choose_favourites();
    std::vector<std::uint32_t> ready;
    for (std::uint32_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const Choice choice =
          options_.rule == ListRule::kHeft ? by_rank(ready) : by_earliest_start(ready);
      const std::uint32_t task = ready[choice.at];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(choice.at));
      put(task, choice.device);
      for (const std::uint32_t child : neighbours_.children[task]) {
        if (--waits_[child] == 0) ready.push_back(child);
      }
    }
    return placement_;
  }

 private:
  struct Choice {
    std::size_t at = 0;
    DeviceIndex device = 0;
  };

  // When an output would be on another device, with `caution` times its transfer. The link keeps
  // the order of requests.
  [[nodiscard]] double arrival(const TaskInput& input, double caution) const {
    const double known = delivered_[input.task.value][input.output];
    if (known != kNever) return known;
    const DeviceIndex from = placement_[input.task.value];
    const double transfer =
        transfer_time(graph_.task(input.task).outputs[input.output], devices_[from].bytes_per_unit);
    return std::max(end_[input.task.value], link_free_[from]) + caution * transfer;
  }

  [[nodiscard]] double start_on(std::uint32_t task, DeviceIndex device) const {
    double ready = free_[device];
    for (const TaskInput& input : graph_.tasks[task].inputs) {
      const bool here = placement_[input.task.value] == device;
      ready = std::max(ready, here ? end_[input.task.value] : arrival(input, options_.caution));
    }
    return ready;
  }

  // The device of its colour, where that is decided; else every device that can run it and has
  // room, or, where none has, every one that can run it.
  [[nodiscard]] std::vector<DeviceIndex> devices_for(std::uint32_t task) const {
    const Task& what = graph_.tasks[task];
    if (what.colour < of_colour_.size() && of_colour_[what.colour] != kNoDevice) {
      return {of_colour_[what.colour]};
    }
    std::vector<DeviceIndex> fitting;
    std::vector<DeviceIndex> possible;
    for (DeviceIndex device = 0; device < devices_.size(); ++device) {
      if (time_on(what, devices_[device]) == kNotSupported) continue;
      possible.push_back(device);
      if (held_[device] + bytes_of(what) <= devices_[device].memory) fitting.push_back(device);
    }
    AD_CHECK(!possible.empty()) << "a task that no device can run: " << what.name;
    return fitting.empty() ? possible : fitting;
  }

  double blurred(double value) {
    return options_.noise == 0 ? value
                               : value * (1 + 0.1 * options_.noise * (fraction(random_) - 0.5));
  }

  Choice by_rank(const std::vector<std::uint32_t>& ready) {
    Choice choice;
    for (std::size_t at = 1; at < ready.size(); ++at) {
      if (rank_[ready[at]] > rank_[ready[choice.at]]) choice.at = at;
    }
    const std::uint32_t task = ready[choice.at];
    double best = kNever;
    for (const DeviceIndex device : devices_for(task)) {
      const double end =
          blurred(start_on(task, device) + time_on(graph_.tasks[task], devices_[device]));
      if (end < best) {
        best = end;
        choice.device = device;
      }
    }
    return choice;
  }

  Choice by_earliest_start(const std::vector<std::uint32_t>& ready) {
    Choice choice;
    double best = kNever;
    double best_rank = 0;
    for (std::size_t at = 0; at < ready.size(); ++at) {
      const std::uint32_t task = ready[at];
      for (const DeviceIndex device : devices_for(task)) {
        double start = start_on(task, device);
        if (is_kept_for_another(task, device)) {
          start += time_on(graph_.tasks[task], devices_[device]);
        }
        start = blurred(start);
        if (start > best || (start == best && rank_[task] <= best_rank)) continue;
        best = start;
        best_rank = rank_[task];
        choice = {at, device};
      }
    }
    return choice;
  }

  // The task that ran last on `device` has a favourite child that could come here, and it is not
  // `task`.
  [[nodiscard]] bool is_kept_for_another(std::uint32_t task, DeviceIndex device) const {
    if (options_.rule != ListRule::kSct || last_.empty() || last_[device] == kNoColour) {
      return false;
    }
    const std::uint32_t favourite = favourite_[last_[device]];
    return favourite != kNoColour && favourite != task && waits_[favourite] <= 1 &&
           end_[favourite] == 0;
  }

  // m-SCT takes favourites from a linear program; this greedy stands for it: each task's child with
  // the dearest tensor that is not yet another's.
  void choose_favourites() {
    const double rate = average_rate(devices_);
    last_.assign(devices_.size(), kNoColour);
    favourite_.assign(graph_.tasks.size(), kNoColour);
    struct Edge {
      double transfer;
      std::uint32_t from;
      std::uint32_t to;
    };
    std::vector<Edge> edges;
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      for (const TaskInput& input : graph_.tasks[i].inputs) {
        const TaskOutput& output = graph_.task(input.task).outputs[input.output];
        edges.push_back({transfer_time(output, rate), input.task.value, i});
      }
    }
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Edge& a, const Edge& b) { return a.transfer > b.transfer; });
    std::vector<bool> taken(graph_.tasks.size(), false);
    for (const Edge& edge : edges) {
      if (taken[edge.to] || favourite_[edge.from] != kNoColour) continue;
      favourite_[edge.from] = edge.to;
      taken[edge.to] = true;
    }
  }

  void put(std::uint32_t task, DeviceIndex device) {
    const Task& what = graph_.tasks[task];
    double ready = free_[device];
    for (const TaskInput& input : what.inputs) {
      const DeviceIndex from = placement_[input.task.value];
      if (from == device) {
        ready = std::max(ready, end_[input.task.value]);
        continue;
      }
      double& delivered = delivered_[input.task.value][input.output];
      if (delivered == kNever) {
        delivered = arrival(input, 1);
        link_free_[from] = delivered + devices_[from].after_transfer;
      }
      ready = std::max(ready, delivered);
    }
    const double cost = time_on(what, devices_[device]);
    placement_[task] = device;
    end_[task] = ready + cost;
    free_[device] = end_[task] + (cost > 0 ? devices_[device].after_op : 0);
    held_[device] += bytes_of(what);
    if (!last_.empty()) last_[device] = task;
    if (what.colour != kNoColour) {
      if (what.colour >= of_colour_.size()) of_colour_.resize(what.colour + 1, kNoDevice);
      of_colour_[what.colour] = device;
    }
  }

  // m-TOPO: topological order, the next device when this one has its share of the work or no room.
  void fill_in_order() {
    double total = 0;
    double speed = 0;
    for (const Task& task : graph_.tasks) total += task.cost == kNotSupported ? 0 : task.cost;
    for (const ListDevice& device : devices_) speed += device.cpu ? 0 : device.speed;
    DeviceIndex device = 0;
    double work = 0;
    for (const std::uint32_t task : topological_order(neighbours_)) {
      const Task& what = graph_.tasks[task];
      const double share = total * devices_[device].speed / std::max(speed, devices_[device].speed);
      const bool full = work >= share || held_[device] + bytes_of(what) > devices_[device].memory;
      if (full && device + 1u < devices_.size() && !devices_[device + 1u].cpu) {
        ++device;
        work = 0;
      }
      const std::vector<DeviceIndex> possible = devices_for(task);
      const bool here = std::find(possible.begin(), possible.end(), device) != possible.end();
      put(task, here ? device : possible.front());
      if (here) work += what.cost == kNotSupported ? 0 : what.cost;
    }
  }

  static constexpr DeviceIndex kNoDevice = std::numeric_limits<DeviceIndex>::max();

  const TaskGraph& graph_;
  const std::vector<ListDevice>& devices_;
  const ListOptions& options_;
  std::mt19937_64& random_;
  Neighbours neighbours_;
  std::vector<double> rank_;
  std::vector<double> free_;
  std::vector<double> link_free_;
  std::vector<double> held_;
  std::vector<double> end_;
  std::vector<std::vector<double>> delivered_;  // [task][output]: at all other devices
  std::vector<std::size_t> waits_;
  std::vector<DeviceIndex> of_colour_;
  std::vector<std::uint32_t> favourite_;
  std::vector<std::uint32_t> last_;  // task per device
  Placement placement_;
};

}  // namespace

std::vector<double> upward_ranks(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                                 double caution) {
  const Neighbours neighbours = neighbours_of(graph);
  const std::vector<std::uint32_t> order = topological_order(neighbours);
  const double rate = average_rate(devices);
  std::vector<double> rank(graph.tasks.size(), 0);
  for (std::size_t at = order.size(); at-- > 0;) {
    const Task& task = graph.tasks[order[at]];
    double cost = 0;
    double able = 0;
    for (const ListDevice& device : devices) {
      const double here = time_on(task, device);
      if (here == kNotSupported) continue;
      cost += here;
      ++able;
    }
    rank[order[at]] += able > 0 ? cost / able : 0;
    for (const TaskInput& input : task.inputs) {
      const TaskOutput& output = graph.task(input.task).outputs[input.output];
      double& of_parent = rank[input.task.value];
      of_parent = std::max(of_parent, rank[order[at]] + caution * transfer_time(output, rate));
    }
  }
  return rank;
}

Placement place_by_list(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                        const ListOptions& options, std::mt19937_64& random) {
  AD_CHECK(!devices.empty()) << "a placement without devices";
  return ListPlacer(graph, devices, options, random).run();
}

Placement place_by_keys(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                        const ListOptions& options, const std::vector<double>& keys) {
  AD_CHECK(keys.size() == graph.tasks.size()) << "keys of another graph";
  std::mt19937_64 random(0);  // nothing is drawn: the options carry no noise here
  ListOptions silent = options;
  silent.rule = ListRule::kHeft;
  silent.noise = 0;
  return ListPlacer(graph, devices, silent, random).run_by(keys);
}

}  // namespace autodist::search::placement
