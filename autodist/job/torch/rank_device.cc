#include "autodist/job/torch/rank_device.h"

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <string>

#include "autodist/base/error.h"
#include "autodist/job/gpus.h"

namespace autodist::job {

torch::Device rank_device(const cluster::Cluster& cluster, std::uint32_t rank, bool cpu_only,
                          const Environment& environment) {
  const cluster::Place place = cluster::ranks_of(cluster, cpu_only)[rank];
  if (place.device.kind != cluster::DeviceKind::kGpu) return torch::kCPU;
  const auto count = static_cast<std::uint32_t>(torch::cuda::device_count());
  const bool shows_its_own = count == 1 && environment("CUDA_VISIBLE_DEVICES");
  const std::uint32_t index = shows_its_own ? 0 : place.device.index;
  const std::string lacking = lacking_gpu(
      {at::globalContext().hasCUDART(), count, !gpu_driver().empty()}, index, TORCH_VERSION);
  if (!lacking.empty()) {
    fail(ErrorCode::kEnvironment,
         "rank {}: the cluster gives it GPU {} of {}, and {}, or train on CPUs: --devices cpu (in "
         "a program: JobOptions::cpu_only).",
         rank, place.device.index, cluster.nodes[place.node].address, lacking);
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
