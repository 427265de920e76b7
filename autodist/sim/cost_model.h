// What things cost: the simulator's only source of time. Plain values, so that a test can state
// them, a calibration can fit them and a what-if can scale them.
//
// Links come from the Cluster; ops, the engine's own work and library collectives from here.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/factors.h"
#include "autodist/program/program.h"
#include "autodist/sim/collective_cost.h"
#include "autodist/sim/precision.h"

namespace autodist::sim {

// What computing costs on one kind of device.
struct DeviceCost {
  std::string kind;  // "as measured", "A100"
  // Of a step here, where parts of the batch differ.
  std::optional<std::int64_t> samples;
  std::vector<Seconds> ops;  // by op of the graph, for one micro-batch of the replica
  // Of all ops of a step, with one sample of it less, and with one more.
  Seconds with_less;
  Seconds with_more;
  bool on_host = true;  // computes on the node's cores, which the engine needs, too
  // The graph was captured on this kind of device: what kernels allocate for themselves is known.
  bool as_captured = true;
  Bytes memory;   // 0: unknown
  Bytes context;  // of it, what a process on a GPU holds besides tensors
  // Of parameters that every rank updates for itself, plain SGD; 0: on the host, as the engine
  // does.
  double update_bytes_per_s = 0;
  // Between the device and the host's memory, each way; 0 where they are one.
  double staging_bytes_per_s = 0;
};

// The engine's own work: what a rank's threads do besides computing. Rates are of one core.
struct EngineCost {
  Seconds message{15e-6};          // per slice, at the sender and at the receiver
  double goodput = 0.94;           // payload's share of a link's rate (TCP/IP over Ethernet)
  double goodput_bytes_per_s = 0;  // what one NIC carries at most, whatever its rate; 0: no cap
  double stream_bytes_per_s = 0;   // at which one slice travels at most, beside others; 0: no cap
  double send_cpu_s_per_byte = 3e-10;  // system calls and copies
  double receive_cpu_s_per_byte = 3e-10;
  double sum_bytes_per_s = 6e9;       // of contributions read
  double update_bytes_per_s = 3e9;    // of parameters updated
  double install_bytes_per_s = 8e9;   // of parameters copied from staging
  double encode_bytes_per_s = 1.5e9;  // of gradients compressed, or decoded again
  double multiply_flop_per_s = 2e10;  // of factors, where ranks compute on devices of their own
  Bytes window{1 << 20};              // comm::ExchangeOptions' defaults
  Bytes nic_budget{4 << 20};

  // The Program's own; where it says none, this model's.
  [[nodiscard]] Bytes window_of(const program::Program& program) const {
    return program.window > Bytes{0} ? program.window : window;
  }
  [[nodiscard]] Bytes nic_budget_of(const program::Program& program) const {
    return program.window > Bytes{0} ? program.window * program::kWindowsPerCard : nic_budget;
  }
};

struct CostModel {
  std::int64_t batch = 1;          // samples per replica and micro-batch, where parts are equal
  std::int64_t micro_batches = 1;  // per step
  Precision precision = Precision::kAsCaptured;
  std::vector<DeviceCost> devices;
  std::vector<std::uint32_t> device_of_rank;  // index into devices
  EngineCost engine;
  CollectiveCost collectives;
  // Cores per node; 0: as many as the node has ranks that compute on them, so that the engine finds
  // a free one only while some rank waits.
  std::uint32_t cores = 0;
  // By how much rank `r` computes slower at step `k` than its device says (2: half as fast). Empty:
  // never. With it no two ranks count as equal.
  std::function<double(program::Rank, std::uint64_t)> slowness;
  // What was not measured on the machines in question, one line each. Shown with every prediction.
  std::vector<std::string> uncalibrated;

  [[nodiscard]] const DeviceCost& device(program::Rank rank) const {
    return devices[device_of_rank[rank.value]];
  }
  // Of a step at this rank, and of its largest micro-batch.
  [[nodiscard]] std::int64_t samples_of(program::Rank rank) const {
    return device(rank).samples.value_or(batch * micro_batches);
  }
  [[nodiscard]] std::int64_t batch_of(program::Rank rank) const {
    return (samples_of(rank) + micro_batches - 1) / micro_batches;
  }
};

// `costs` with an engine, and a library, that take several times as long for everything but bytes
// on a wire: what a plan takes where threads wait for cores that compute. How much longer
// that is the model does not know; which plan suffers least it does.
CostModel with_slow_engine(CostModel costs);

// Of all micro-batches of a step, ops one after another.
Seconds compute_seconds(const CostModel& costs, program::Rank rank);

// The rank whose ops take longest; of equals the first. REQUIRES: `costs` is of the program.
program::Rank slowest_rank(const program::Program& program, const CostModel& costs);

// How many more samples of a step (fewer: negative, down to all it has) the rank could compute in
// `seconds`; at least as many as it really could, for times are convex in samples.
double samples_to_add(const CostModel& costs, program::Rank rank, double seconds);

// Bytes per second of parameters that a device of this memory bandwidth updates by plain SGD.
double updates_by_memory(double bytes_per_s);
// At which every rank's own update of the plain SGD kind goes: that of the slowest device.
double update_bytes_per_s(const CostModel& costs, const program::Program& program);
// At which versions go from the hosts to the devices: that of the slowest device; 0 where all ranks
// compute on their hosts.
double staging_bytes_per_s(const CostModel& costs, const program::Program& program);

// 0 where the rate is.
inline double seconds_for(double amount, double per_s) { return per_s > 0 ? amount / per_s : 0; }
// Streams of memory that an update reads or writes, against those of plain SGD: 1, 5/3 with one
// value of state per parameter, 7/3 with two.
double update_weight(const ir::UpdateRule& rule);
// Values of optimizer state per parameter.
int state_values(const ir::UpdateRule& rule);

// In which `rank` multiplies one member's factors of a gradient. Where it computes on the host:
// what the graph's own product was measured to take.
Seconds multiply_seconds(const CostModel& costs, const ir::Graph& graph, const ir::Factors& factors,
                         program::Rank rank);

// An op on a device of `tflops` and `bytes_per_s` of memory bandwidth: the longer of computing and
// moving, at the shares of the peak that kernels usually reach, after a launch (Williams et al.,
// "Roofline", CACM 2009).
Seconds roofline(const ir::Op& op, std::int64_t batch, double tflops, double bytes_per_s);

// How the list of what is uncalibrated speaks of EngineCost.
inline constexpr const char* kEngineRates = "the engine's rates (messages, sums, updates)";
// And, where several ranks compute on those of one machine, of CostModel::cores.
inline constexpr const char* kCoresOfAMachine = "a machine's cores";

struct CostOptions {
  std::int64_t batch = 0;  // per replica; 0: the graph's example batch
  std::int64_t micro_batches = 1;
  std::string
      device;  // every replica computes on this kind (device_table.h); "": as the cluster says
  Precision precision = Precision::kAsCaptured;  // on GPUs of a kind in the table
};

// Throws Error(kUsage) for a rank on a device of a kind that nobody knows (figures_of()).
void check_devices(const program::Program& program, const cluster::Cluster& cluster);

// The graph's measured times on CPUs that have no figures of their own; else roofline times from
// the figures (`devices:` in the cluster file, or the table by kind). Throws Error(kUsage) as
// check_devices() does, for a batch that the graph cannot have, for a graph without times on a
// CPU without figures, and for a precision of a device that is no GPU of the table, or has it not.
CostModel cost_model(const program::Program& program, const cluster::Cluster& cluster,
                     const CostOptions& options = {});

// The program's graph with the times that ops take on the slowest rank, whatever the batch: for
// builders that go by time. REQUIRES: `costs` is of the program.
ir::Graph with_times(const program::Program& program, const CostModel& costs);

}  // namespace autodist::sim
