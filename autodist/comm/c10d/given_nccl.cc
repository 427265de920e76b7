#include "autodist/comm/c10d/given_nccl.h"

#include <utility>

#include "autodist/comm/c10d/group.h"
#include "autodist/comm/c10d/nccl.h"

namespace autodist::comm {
namespace {

struct GivenNccl {
  BackendMaker maker;
  std::function<std::string(const std::string&)> name;
};

GivenNccl& given_nccl() {
  static GivenNccl nccl;
  return nccl;
}

}  // namespace

void set_nccl_maker(BackendMaker maker, std::function<std::string(const std::string&)> name) {
  given_nccl() = {std::move(maker), std::move(name)};
}

bool has_nccl() { return given_nccl().maker != nullptr; }

std::string nccl_gpu(const std::string& device) {
  return has_nccl() && torch::Device(device).is_cuda() ? given_nccl().name(device) : "";
}

std::unique_ptr<Collectives> make_nccl(Transport& transport, const std::string& device,
                                       Seconds limit) {
  const torch::Device gpu(device);
  const auto make = [&](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
    auto group = given_nccl().maker(store, rank, size, device, to_milliseconds(limit));
    sum_once(*group, gpu, size);
    return group;
  };
  return connect_group<c10d::Backend>(transport, "nccl", device, gpu, limit, make);
}

}  // namespace autodist::comm
