#include "autodist/comm/c10d/make_collectives.h"

#include <set>
#include <vector>

#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/nccl.h"

namespace autodist::comm {

std::unique_ptr<Collectives> make_collectives(Transport& transport, const std::string& own_address,
                                              const std::string& device, Seconds limit) {
  const std::vector<std::string> gpus =
      all_gather(transport, nccl_gpu(device), "the ranks' GPUs", limit);
  const std::set<std::string> different(gpus.begin(), gpus.end());
  if (different.size() == gpus.size() && different.count("") == 0) {
    return make_nccl(transport, device, limit);
  }
  return make_gloo(transport, own_address, limit);
}

}  // namespace autodist::comm
