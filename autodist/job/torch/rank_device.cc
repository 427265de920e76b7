#include "autodist/job/torch/rank_device.h"

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <string>

#include "autodist/base/error.h"

namespace autodist::job {

torch::Device rank_device(const cluster::Cluster& cluster, std::uint32_t rank, bool cpu_only,
                          const Environment& environment) {
  const cluster::Place place = cluster::ranks_of(cluster, cpu_only)[rank];
  if (place.device.kind != cluster::DeviceKind::kGpu) return torch::kCPU;
  const std::string wanted = fmt::format("rank {}: the cluster gives it GPU {} of {}", rank,
                                         place.device.index, cluster.nodes[place.node].address);
  const char* const otherwise = "--devices cpu (in a program: JobOptions::cpu_only)";
  if (!at::globalContext().hasCUDART()) {
    fail(ErrorCode::kEnvironment,
         "{}, and this libtorch ({}) is built for CPUs. Build with a torch for CUDA "
         "(docs/pytorch.md), or train on CPUs: {}.",
         wanted, TORCH_VERSION, otherwise);
  }
  const auto count = static_cast<std::uint32_t>(torch::cuda::device_count());
  if (count == 0) {
    fail(ErrorCode::kEnvironment,
         "{}, and libtorch finds no GPU here. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or "
         "train on CPUs: {}.",
         wanted, otherwise);
  }
  const bool shows_its_own = count == 1 && environment("CUDA_VISIBLE_DEVICES");
  const std::uint32_t index = shows_its_own ? 0 : place.device.index;
  if (index >= count) {
    fail(ErrorCode::kEnvironment,
         "{}, and there are {} here (GPU 0 to {}). Correct its list of gpus, or train on CPUs: {}.",
         wanted, count, count - 1, otherwise);
  }
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

void move_to(const torch::Device& device, TrainingStep& step) {
  const torch::NoGradGuard no_gradients;
  if (step.move) step.move(device);
  for (auto* tensors : {&step.parameters, &step.buffers}) {
    for (NamedTensor& each : *tensors) {
      if (each.tensor.device() != device) each.tensor.set_data(each.tensor.to(device));
    }
  }
  for (torch::Tensor& each : step.example) each = each.to(device);
}

}  // namespace autodist::job
