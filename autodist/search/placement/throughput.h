// The throughput objective: steps are pipelined, so the time of a step is the load of the busiest
// device. ("Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.)
//
// The load of an accelerator is the cost of its tasks plus that of every tensor that enters or
// leaves it, each once. The load of a CPU is the CPU cost of its tasks; its transfers are paid on
// the accelerators' side, and its memory is not limited.
//
// A tensor is a net: what touches its producer and all its readers. It costs every accelerator that
// it touches, as soon as it touches two devices. So a move of one group changes two loads.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// What a graph is placed on. Accelerators first, then CPUs.
struct ThroughputDevice {
  bool cpu = false;
  double speed = 1;               // costs are divided by it
  double transfer = 1;            // times a tensor's transfer time; 0 on CPUs
  double memory = kNotSupported;  // bytes; infinite: not limited

  friend bool operator==(const ThroughputDevice& a, const ThroughputDevice& b) {
    return a.cpu == b.cpu && a.speed == b.speed && a.transfer == b.transfer && a.memory == b.memory;
  }
};

// `accelerators` alike with `memory` bytes each, then `cpus`.
std::vector<ThroughputDevice> alike(std::size_t accelerators, std::size_t cpus,
                                    double memory = kNotSupported);

// Lists of numbers that lie one behind the other.
class PackedLists {
 public:
  struct List {
    const std::uint32_t* first;
    const std::uint32_t* last;

    [[nodiscard]] const std::uint32_t* begin() const { return first; }
    [[nodiscard]] const std::uint32_t* end() const { return last; }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(last - first); }
    std::uint32_t operator[](std::size_t i) const { return first[i]; }
  };

  // Valid until the next add().
  List operator[](std::size_t index) const {
    return {numbers_.data() + begin_[index], numbers_.data() + begin_[index + 1]};
  }
  void add(const std::vector<std::uint32_t>& list) {
    numbers_.insert(numbers_.end(), list.begin(), list.end());
    begin_.push_back(static_cast<std::uint32_t>(numbers_.size()));
  }

 private:
  std::vector<std::uint32_t> begin_ = {0};  // of each list, and the end of the last
  std::vector<std::uint32_t> numbers_;
};

// A graph in the form in which it is searched: groups (colour classes and single tasks) and nets.
struct ThroughputProblem {
  // `bytes_per_unit`: bytes that cross a link in one unit of the graph's time, for outputs whose
  // transfer time is not stated. Throws Error(kInfeasible) where a group fits no device.
  ThroughputProblem(const TaskGraph& graph, std::vector<ThroughputDevice> devices,
                    double bytes_per_unit = kNotSupported);

  [[nodiscard]] std::size_t groups() const { return members.size(); }
  [[nodiscard]] std::size_t nets() const { return net_cost.size(); }
  [[nodiscard]] double cost_on(std::uint32_t group, std::size_t device) const {
    return cost[group * devices.size() + device];
  }
  // The devices of the tasks of `graph`, given those of the groups.
  [[nodiscard]] Placement expand(const std::vector<DeviceIndex>& of_group) const;

  // A net that touches these groups, which may stand there several times. One that is inside of one
  // group or costs nothing is left out.
  void add_net(std::vector<std::uint32_t> groups, double cost);
  // Makes nets_of when all nets are added.
  void index_nets();

  std::vector<ThroughputDevice> devices;
  std::vector<std::vector<std::uint32_t>> members;  // group -> tasks
  std::vector<std::uint32_t> group_of;              // task -> group
  std::vector<double> cost;                         // [group][device]; kNotSupported: not there
  std::vector<double> memory;                       // [group]
  std::vector<double> net_cost;                     // of nets that two or more groups touch
  PackedLists pins;                                 // [net]: the groups, ascending
  PackedLists nets_of;                              // [group]: the nets, ascending
};

// An assignment of the groups with its loads, kept up to date under moves.
class ThroughputState {
 public:
  // REQUIRES: `problem` outlives this.
  ThroughputState(const ThroughputProblem& problem, std::vector<DeviceIndex> assignment);

  struct Loads {
    double from = 0;
    double to = 0;
  };
  // The loads of the group's device and of `to` after the move; all others stay as they are.
  // REQUIRES: to is another device.
  [[nodiscard]] Loads after_move(std::uint32_t group, DeviceIndex to) const {
    const DeviceIndex from = assignment_[group];
    double paid_from = load_[from] - problem_->cost_on(group, from);
    double paid_to = load_[to] + problem_->cost_on(group, to);
    double saved_from = 0;
    double added_to = 0;
    for (const std::uint32_t net : problem_->nets_of[group]) {
      const double cost = problem_->net_cost[net];
      const std::uint16_t* const count = &count_[net * width_];
      const bool last = count[from] == 1;
      const bool first = count[to] == 0;
      const std::uint32_t spread = spread_[net];
      const std::uint32_t after =
          spread - static_cast<std::uint32_t>(last) + static_cast<std::uint32_t>(first);
      const double before_cost = spread > 1 ? cost : 0;
      const double after_cost = after > 1 ? cost : 0;
      saved_from += before_cost - (last ? 0 : after_cost);
      added_to += after_cost - (first ? 0 : before_cost);
    }
    paid_from -= saved_from * problem_->devices[from].transfer;
    paid_to += added_to * problem_->devices[to].transfer;
    return {paid_from, paid_to};
  }
  void move(std::uint32_t group, DeviceIndex to);

  [[nodiscard]] double load(std::size_t device) const { return load_[device]; }
  [[nodiscard]] double memory(std::size_t device) const { return memory_[device]; }
  [[nodiscard]] double largest_load() const;
  // Bytes over the limits of all devices; 0 for a placement that fits.
  [[nodiscard]] double overflow() const;
  [[nodiscard]] DeviceIndex device_of(std::uint32_t group) const { return assignment_[group]; }
  [[nodiscard]] const std::vector<DeviceIndex>& assignment() const { return assignment_; }

  // Loads anew from the assignment: rounding of many moves does not add up.
  void refresh();

 private:
  const ThroughputProblem* problem_;
  std::size_t width_;  // devices
  std::vector<DeviceIndex> assignment_;
  std::vector<double> load_;
  std::vector<double> memory_;
  std::vector<std::uint16_t> count_;   // [net][device]: pins there
  std::vector<std::uint16_t> spread_;  // [net]: devices touched
};

// The load of every device by the definition alone, from the tasks: what incremental figures are
// checked against, and what reports show.
struct DeviceLoad {
  double work = 0;       // time units
  double transfers = 0;  // time units that its links are busy
  double memory = 0;     // bytes
  double bytes_in = 0;
  double bytes_out = 0;
  std::size_t tasks = 0;

  [[nodiscard]] double total() const { return work + transfers; }
};
std::vector<DeviceLoad> loads_of(const TaskGraph& graph, const Placement& placement,
                                 const std::vector<ThroughputDevice>& devices,
                                 double bytes_per_unit = kNotSupported);

// No placement has a smaller largest load: work spread evenly by a fractional knapsack over the
// CPUs' and accelerators' costs, the dearest group at its best device, and what memory forces off
// the accelerators.
double throughput_bound(const ThroughputProblem& problem);

}  // namespace autodist::search::placement
