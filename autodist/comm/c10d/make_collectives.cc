#include "autodist/comm/c10d/make_collectives.h"

#include <torch/types.h>

#include <set>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/nccl.h"

namespace autodist::comm {

CollectiveLibrary library_for(Transport& transport, const std::string& device, Seconds limit) {
  const std::vector<std::string> gpus =
      all_gather(transport, nccl_gpu(device), "the ranks' GPUs", limit);
  const std::set<std::string> different(gpus.begin(), gpus.end());
  if (different.size() == gpus.size() && different.count("") == 0) return CollectiveLibrary::kNccl;
  return has_gloo() ? CollectiveLibrary::kGloo : CollectiveLibrary::kNone;
}

std::unique_ptr<Collectives> make_collectives(Transport& transport, const std::string& own_address,
                                              const std::string& device, Seconds limit) {
  const CollectiveLibrary library = library_for(transport, device, limit);
  if (library == CollectiveLibrary::kNccl) return make_nccl(transport, device, limit);
  const std::string why = why_through_host(device);
  if (library == CollectiveLibrary::kNone && !why.empty()) {
    fail(ErrorCode::kEnvironment,
         "collectives: {} Nor has it Gloo: without both, take a strategy "
         "without all-reduces by a library (algorithm=direct, no PowerSGD).",
         why);
  }
  return make_gloo(transport, own_address, limit);
}

std::string why_through_host(const std::string& device) {
  if (!torch::Device(device).is_cuda() || has_nccl()) return "";
  return "this program has no NCCL, so GPUs do not sum by themselves. Install its headers (pip "
         "install nvidia-cuda-crt nvidia-cuda-cccl, of torch's version of CUDA) and build again, "
         "or train from Python (docs/gpus.md).";
}

}  // namespace autodist::comm
