// Our own simulation of a step: devices of different speeds, links with contention at both ends, a
// price for every copy of a tensor, and memory that is a limit.
//
// A device runs one task at a time, in the order in which they become ready (ties: the graph's
// order). An output goes to every other device that wants it as a transfer of its own, in the order
// of the devices; a transfer holds the sender's card and the receiver's for its whole time, and
// transfers are served in the order in which their tensors were made. Devices of one node share a
// card towards other nodes and have links of their own inside.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/list_placers.h"
#include "autodist/search/placement/step_simulator.h"
#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

class LinkSimulator final : public StepSimulator {
 public:
  // REQUIRES: a verified graph, which outlives this; at least one device.
  LinkSimulator(const TaskGraph& graph, std::vector<ListDevice> devices);

  // kNotSupported where a task cannot run on its device or the memory does not suffice.
  double run(const Placement& placement) override;
  [[nodiscard]] const Timeline& timeline() const override { return timeline_; }

  // Of the last run: bytes held at the highest, per device: parameters and state all the time,
  // outputs from their task's start, copies from their arrival, both to the end of the last reader
  // there.
  [[nodiscard]] const std::vector<double>& peak_bytes() const { return peak_; }

 private:
  struct Reader {
    std::uint32_t task;
    std::uint32_t output;
  };
  struct Card {
    double out_free = 0;
    double in_free = 0;
  };

  double transfer(DeviceIndex from, DeviceIndex to, std::uint32_t task, std::uint32_t output,
                  double now);
  bool fits(const Placement& placement);

  const TaskGraph* graph_;
  std::vector<ListDevice> devices_;
  std::vector<std::uint32_t> card_of_;        // [device]: its node's card
  std::vector<std::vector<Reader>> readers_;  // [task], by output then task
  std::vector<std::uint32_t> parents_;
  bool limited_ = false;

  std::vector<Card> cards_;  // of nodes, then of devices (links inside)
  std::vector<double> end_;
  std::vector<std::vector<double>> arrival_;  // [task * devices + device][output]
  std::vector<std::uint32_t> waits_;
  std::vector<double> peak_;
  Timeline timeline_;
};

}  // namespace autodist::search::placement
