#include "autodist/comm/c10d/nccl.h"

#include <ATen/cuda/CUDAContext.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "autodist/comm/c10d/group.h"

namespace autodist::comm {

bool has_nccl() { return true; }

std::string nccl_gpu(const std::string& device) {
  const torch::Device gpu(device);
  if (!gpu.is_cuda()) return "";
  std::string words;
  for (const char byte : at::cuda::getDeviceProperties(gpu.index())->uuid.bytes) {
    words += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return words;
}

std::unique_ptr<Collectives> make_nccl(Transport& transport, const std::string& device,
                                       Seconds limit) {
  using Nccl = c10d::ProcessGroupNCCL;
  const torch::Device gpu(device);
  const auto make = [&](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
    const auto options = Nccl::Options::create();
    options->timeout = to_milliseconds(limit);
    auto group = c10::make_intrusive<Nccl>(store, rank, size, options);
    sum_once(*group, gpu, size);
    return group;
  };
  return connect_group<Nccl>(transport, "nccl", device, gpu, limit, make);
}

}  // namespace autodist::comm
