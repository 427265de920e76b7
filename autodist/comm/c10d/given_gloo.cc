#include "autodist/comm/c10d/given_gloo.h"

#include <utility>

#include "autodist/comm/c10d/group.h"

namespace autodist::comm {
namespace {

BackendMaker& given_gloo() {
  static BackendMaker maker;
  return maker;
}

}  // namespace

void set_gloo_maker(BackendMaker maker) { given_gloo() = std::move(maker); }

bool has_gloo() { return given_gloo() != nullptr; }

std::unique_ptr<Collectives> make_gloo(Transport& transport, const std::string& own_address,
                                       Seconds limit) {
  if (!has_gloo()) {
    fail(ErrorCode::kEnvironment,
         "collectives: this program has no all-reduces by a library, as its libtorch comes without "
         "the headers of Gloo; choose a strategy without them (algorithm=direct, no PowerSGD), "
         "train from Python, or build with Debian's libtorch-dev and libgloo-dev");
  }
  const auto make = [&](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
    return given_gloo()(store, rank, size, own_address, to_milliseconds(limit));
  };
  return connect_group<c10d::Backend>(transport, "gloo", own_address, torch::kCPU, limit, make);
}

}  // namespace autodist::comm
