// Placeto's simulator (Addanki et al., NeurIPS 2019; simulator of their published code), to the bit
// of its order of events.
//
// Times in µs, sizes in bytes. One compute queue per device, first in first out by the time at
// which an op is ready; one outgoing bus per device; a tensor crosses once however many devices
// want it; nothing contends at the receiver. Events of the same time are taken by kind (an input
// arrives, a bus starts, a device starts), then by name.

#pragma once

#include <cstdint>
#include <vector>

#include "autodist/search/placement/step_simulator.h"
#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

// The constants of Placeto's code.
inline constexpr double kPlacetoAfterOp = 5.7;  // µs that a device pauses after an op that costs
inline constexpr double kPlacetoAfterTransfer = 25;  // µs that a bus pauses after every transfer
inline constexpr double kPlacetoBytesPerUs = 7600;   // of every link

// Reusable: run() allocates nothing after construction. Not safe from two threads; copies are
// independent.
class PlacetoSimulator final : public StepSimulator {
 public:
  // REQUIRES: a verified graph whose costs are finite, devices > 0. Keeps no reference to `graph`.
  PlacetoSimulator(const TaskGraph& graph, std::size_t devices);

  // The run time: the time of the last event, trailing pauses included.
  // REQUIRES: one device per task, below the count of devices.
  double run(const Placement& placement) override;

  [[nodiscard]] const Timeline& timeline() const override { return timeline_; }

  // Highest total of outputs held at a time, per device, in the last run: an output lives from its
  // op's start to the whole µs before the end of its last child.
  [[nodiscard]] std::vector<std::int64_t> peak_bytes(const Placement& placement) const;

 private:
  struct Edge {
    std::uint32_t child;
    std::uint32_t name_rank;  // of the child
    std::uint32_t output;
    std::uint32_t place;  // among its task's edges in the order of the file
  };
  struct BusJob {
    std::uint32_t task;
    std::uint32_t first;  // its edges: [first, last) of by_output_
    std::uint32_t last;
    double ready;  // the op's end
  };
  // A device and its bus. Each has at most one event of a kind outstanding.
  struct Device {
    double op_ends = 0;   // children on the same device see the output
    double free = 0;      // the device may start the next op
    double arrives = 0;   // a transfer ends: children elsewhere see the output
    double bus_free = 0;  // the bus may start the next transfer
    std::uint32_t running = 0;
    BusJob moving{};
    std::vector<std::uint32_t> queue;  // ready tasks: [queue_head, queue_end)
    std::size_t queue_head = 0;
    std::size_t queue_end = 0;
    std::vector<BusJob> bus;  // waiting transfers: [bus_head, bus_end)
    std::size_t bus_head = 0;
    std::size_t bus_end = 0;
  };

  void index_outputs(const std::vector<Edge>& edges, std::uint32_t begin);
  void reset(const Placement& placement);
  void receive(std::uint32_t parent, std::uint32_t child, double now, const Placement& placement);
  std::size_t first_of_tied(double now, const Placement& placement);
  void take_event(std::size_t device, double now, const Placement& placement);
  void note_next(std::size_t device);
  // Ends what the device computes, or sends: calls visit(parent, edge) for each child that sees it.
  template <typename Visit>
  void end_op(Device& device, const Placement& placement, Visit visit);
  template <typename Visit>
  void end_transfer(Device& device, const Placement& placement, Visit visit);
  void receive_in_order_of_name(double now, const Placement& placement);
  void start_next_transfer(Device& device, double now);
  void enqueue_transfers(std::uint32_t task, Device& device, const Placement& placement);
  void start_next_op(Device& device, double now, const Placement& placement);

  std::size_t devices_;
  std::vector<double> cost_;
  std::vector<double> held_bytes_;  // sum of a task's outputs
  std::vector<Edge> by_name_;     // a task's edges by the child's name: [edge_begin_[t], …[t+1])
  std::vector<Edge> by_output_;   // the same by output, then name
  std::vector<double> transfer_;  // of the output of by_output_'s edge
  std::vector<std::uint32_t> edge_begin_;
  // A task's outputs that somebody reads are [output_begin_[t], …[t+1]) of outputs_; the edges in
  // the order of the file say which output leaves first.
  struct ReadOutput {
    std::uint32_t first;
    std::uint32_t last;
  };
  struct FileEdge {
    std::uint32_t child;
    std::uint32_t output;  // index into outputs_
  };
  std::vector<ReadOutput> outputs_;
  std::vector<std::uint32_t> output_begin_;
  std::vector<FileEdge> in_file_order_;  // by edge_begin_
  std::vector<std::uint32_t> leaving_;
  std::vector<std::uint32_t> parents_;
  std::vector<std::uint32_t> sources_;

  std::vector<Device> device_;
  std::vector<double> next_;  // time of each device's next event
  std::vector<std::uint32_t> waits_;
  Timeline timeline_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> tied_;  // name rank; parent and child
};

}  // namespace autodist::search::placement
