// What ranks tell each other of what they compute on, when they have met.

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "autodist/comm/agreement.h"
#include "autodist/job/cores.h"
#include "autodist/job/gpus.h"
#include "autodist/job/same_bits.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/planning/gpu_kinds.h"

namespace autodist::job {

// By all ranks: each tells the others what it has.
void JoinedJob::share_cores() {
  Cores own = own_cores();
  if (environment_("OMP_NUM_THREADS")) own.threads = torch::get_num_threads();
  const std::vector<std::string> all =
      comm::all_gather(*transport_, to_string(own), "cores", options_.join_limit);
  std::vector<Cores> by_rank;
  std::map<std::size_t, std::vector<Cores>> by_node;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    by_rank.push_back(parse_cores(all[rank]));
    by_node[places_[rank].node].push_back(by_rank.back());
  }
  cores_ = job::too_few_cores(by_node[places_.front().node]);  // the chief computes
  for (const cluster::Place& place : places_) {
    if (!place.serves_only && job::too_few_cores(by_node[place.node]) != cores_) cores_.reset();
  }
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const int threads = threads_for(by_rank[rank], by_node[places_[rank].node]);
    const std::string& cpu = by_rank[rank].cpu;
    computing_.push_back(fmt::format("{} with {} thread{}", cpu.empty() ? "a CPU" : cpu, threads,
                                     threads == 1 ? "" : "s"));
  }
  if (own.threads > 0) return;
  const int threads = threads_for(own, by_node[places_[place_.rank].node]);
  torch::set_num_threads(threads);
  // Debian's OpenBLAS has threads of its own, which libtorch's setting does not reach.
  using SetThreads = void (*)(int);
  const auto set_blas_threads =
      reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

// Bits are the same on one kind of GPU, or of CPU with one number of threads.
void JoinedJob::compare_computing() {
  if (!memory_) return;
  const std::string line =
      other_computing_line(memory_->note_computing(number_, computing_), computing_, places_);
  if (!line.empty()) say(line);
}

// By all ranks: the chief says which of them share a GPU, and all know of what kind the GPUs are
// whose kind the cluster file does not say.
void JoinedJob::share_gpus() {
  const bool has_some = std::any_of(places_.begin(), places_.end(), [](const cluster::Place& each) {
    return each.device.kind == cluster::DeviceKind::kGpu;
  });
  if (!has_some) return;
  RankGpu own;
  if (device_.is_cuda()) {
    own = rank_gpu(static_cast<std::uint32_t>(device_.index()), gpu_models(), environment_);
  }
  std::vector<RankGpu> gpus;
  for (const std::string& each :
       comm::all_gather(*transport_, to_string(own), "GPUs", options_.join_limit)) {
    gpus.push_back(parse_gpu(each));
  }
  for (const std::string& line : {sharing_line(cluster(), places_, gpus), mixed_line(places_)}) {
    if (is_chief() && !line.empty()) say(line);
  }
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    const std::string& model = gpus[rank].model;
    planning::name_gpus(members_.cluster.nodes[places_[rank].node], model);
    const bool is_on_gpu = places_[rank].device.kind == cluster::DeviceKind::kGpu;
    if (is_on_gpu) computing_[rank] = model.empty() ? "a GPU" : model;
  }
}

}  // namespace autodist::job
