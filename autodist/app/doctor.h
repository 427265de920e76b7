// What this machine has for a job, what it lacks, and what to do about it. Needs no libtorch, no
// cluster and no peer: it works before anything else works.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/app/libtorch.h"
#include "autodist/cluster/cluster.h"
#include "autodist/sim/calibration.h"

namespace autodist::app {

enum class Health : std::uint8_t { kGood, kPoor, kBad };
std::string name_of(Health health);  // "ok", "poor", "bad"

struct Finding {
  std::string subject;  // "ports"
  Health health = Health::kGood;
  std::string found;
  std::string remedy;  // one line; "" where nothing is wrong
};

// A GPU as libtorch numbers it; bytes per second between it and pinned memory.
struct GpuFacts {
  double to_device = 0;
  double to_host = 0;
  double both = 0;
};

// What the findings are made of, so that a test can have any machine.
struct MachineFacts {
  std::string torch_program;  // path of autodist-torch; "" where there is none
  LibtorchOfBuild libtorch;
  std::string torch_there;  // the version in its folder now; "" where it is gone
  std::string gpu_driver;   // the first line that NVIDIA's says of itself; "" where there is none
  std::vector<std::string> gpu_models;        // that the driver names
  std::optional<std::vector<GpuFacts>> gpus;  // that libtorch finds; nothing: nobody asked it, or
                                              // it could not say
  bool nccl = false;                          // autodist-torch has it; of GPUs alone
  bool ssh = false;                           // a client in PATH
  bool curve = false;                         // libzmq can encrypt
  std::string blas;          // what computes: libblas.so.3, or libtorch's own; "" for none
  std::string blas_kernels;  // for which CPU (blas_kernels.h)
  std::string better_kernels;
  unsigned cores = 0;
  double core_limit = 0;            // of the control group; 0: none
  std::string omp_threads;          // OMP_NUM_THREADS; "" where it is not set
  std::uint64_t open_files = 0;     // the hard limit, to which a job raises the soft one
  std::uint64_t processes = 0;      // the soft one
  std::uint64_t locked_memory = 0;  // the soft one, in bytes
  std::uint64_t shared_memory = 0;  // bytes free in /dev/shm
  std::uint64_t free_memory = 0;
  bool port = false;   // one can be bound
  int first_port = 0;  // of those that the system hands out
  int last_port = 0;
  std::string clock_source;   // of the kernel
  bool synchronised = false;  // by NTP or PTP
};
MachineFacts machine_facts();

// A node's address, and what it resolves to.
struct NodeFacts {
  std::string address;
  std::string resolved;  // "" where it cannot be
  bool is_here = false;
  std::size_t gpus = 0;  // that its file numbers, from 0 to the last
};
// Of its nodes, then of its spares.
std::vector<NodeFacts> node_facts(const cluster::Cluster& cluster);

// In the order of the fields of MachineFacts; `ranks`: of the job on this machine.
std::vector<Finding> findings(const MachineFacts& machine, std::size_t ranks);
std::vector<Finding> findings(const std::vector<NodeFacts>& nodes);
// Of the nodes that are here: whether there are the GPUs that their file lists, and whether it
// lists any where there are some.
std::vector<Finding> gpu_findings(const MachineFacts& machine, const std::vector<NodeFacts>& nodes);

// What one pair of machines has between them, measured.
struct MeasuredLink {
  std::string from;
  std::string to;
  double bytes_per_s = 0;  // of payload, each way while both are busy
  Seconds round_trip;
  Seconds message_cpu;  // of a slice, at both ends together
};
// By `autodist-torch`, which starts a rank of the job everywhere as a training does. Throws
// Error(kEnvironment) where it cannot, with what it said.
std::vector<MeasuredLink> measure_links(const std::string& torch_program,
                                        const std::string& cluster_file);
// Of every link: whether it is slower than the others or than the cluster's file says, or its round
// trip longer than theirs.
std::vector<Finding> findings(const std::vector<MeasuredLink>& links,
                              const cluster::Cluster& cluster);
// A row per machine: bandwidth above, round trip below the diagonal.
std::string link_table(const std::vector<MeasuredLink>& links);
// What a calibration holds of links: the share of its nominal rate that the worst of them carries.
// Not the cost of a slice: that of a lone one is mostly waking threads up, which are awake while
// many are on their way. Empty for none.
sim::Calibration link_calibration(const std::vector<MeasuredLink>& links,
                                  const cluster::Cluster& cluster);

// Whether predictions for this cluster know the machines; those for none are told the file.
Finding calibration_finding(const std::string& path, bool exists, bool is_beside_a_cluster);

// Rates of this machine's memory and arithmetic, in a second or two: what a calibration holds
// besides links.
sim::Calibration measure_machine();

}  // namespace autodist::app
