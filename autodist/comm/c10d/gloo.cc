#include "autodist/comm/c10d/gloo.h"

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "autodist/comm/c10d/group.h"

namespace autodist::comm {

bool has_gloo() { return true; }

std::unique_ptr<Collectives> make_gloo(Transport& transport, const std::string& own_address,
                                       Seconds limit) {
  using Gloo = c10d::ProcessGroupGloo;
  return connect_group<Gloo>(
      transport, "gloo", own_address, torch::kCPU, limit,
      [&](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
        auto options = Gloo::Options::create(to_milliseconds(limit));
        options->devices.push_back(Gloo::createDeviceForHostname(own_address));
        options->threads = 1;  // collectives follow one another
        return c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
      });
}

}  // namespace autodist::comm
