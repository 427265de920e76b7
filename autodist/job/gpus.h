// The GPUs of a machine as its driver names them, and which of them the ranks of a job compute on.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/environment.h"
#include "autodist/cluster/cluster.h"

namespace autodist::job {

// The first line that NVIDIA's driver says of itself; "" where there is none.
std::string gpu_driver();
// The models that it names, in the order of their buses.
std::vector<std::string> gpu_models();

// What a process finds of GPUs.
struct GpusFound {
  bool for_cuda = false;    // what libtorch is built for
  std::uint32_t count = 0;  // that libtorch finds
  bool has_driver = false;
};
// Why there is no GPU of this index, and what to do about it, as the rest of a sentence; "" where
// there is one.
std::string lacking_gpu(const GpusFound& found, std::uint32_t index, const std::string& libtorch);

// A rank's GPU, for the other ranks.
struct RankGpu {
  // What all processes of its machine call it; "" where the rank computes on a CPU.
  std::string name;
  // Of the machine's GPUs, where all are alike: nobody knows in which order libtorch has them.
  std::string model;
};
// The GPU that libtorch numbers `index`: an entry of CUDA_VISIBLE_DEVICES, or the number.
RankGpu rank_gpu(std::uint32_t index, const std::vector<std::string>& models,
                 const Environment& environment);
// REQUIRES: of parse_gpu(), what to_string() made.
std::string to_string(const RankGpu& gpu);
RankGpu parse_gpu(const std::string& text);

// Which ranks of one machine compute on one GPU, in a line; "" where each has its own. `gpus`: by
// rank, as `places` are.
std::string sharing_line(const cluster::Cluster& cluster, const std::vector<cluster::Place>& places,
                         const std::vector<RankGpu>& gpus);

// That some ranks compute on GPUs and others on CPUs, in a line; "" where all compute on one kind.
std::string mixed_line(const std::vector<cluster::Place>& places);

// That so many GPUs are here and the job uses none of them, in a line; "" for none.
std::string unused_line(std::size_t count);

}  // namespace autodist::job
