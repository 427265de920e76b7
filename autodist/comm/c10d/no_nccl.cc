#include "autodist/base/check.h"
#include "autodist/comm/c10d/nccl.h"

namespace autodist::comm {

bool has_nccl() { return false; }

std::string nccl_gpu(const std::string& /*device*/) { return ""; }

std::unique_ptr<Collectives> make_nccl(Transport& /*transport*/, const std::string& device,
                                       Seconds /*limit*/) {
  AD_CHECK(false) << "no NCCL for " << device;
  return nullptr;
}

}  // namespace autodist::comm
