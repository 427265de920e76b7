#include "autodist/comm/c10d/given_backend.h"

#include <utility>

#include "autodist/comm/c10d/group.h"

namespace autodist::comm {
namespace {

BackendMaker& given() {
  static BackendMaker maker;
  return maker;
}

}  // namespace

void set_backend_maker(BackendMaker maker) { given() = std::move(maker); }

bool has_gloo() { return given() != nullptr; }

std::unique_ptr<Collectives> make_gloo(Transport& transport, const std::string& own_address,
                                       Seconds limit) {
  if (!has_gloo()) {
    fail(ErrorCode::kEnvironment,
         "collectives: this program has no all-reduces by a library, as its libtorch comes without "
         "the headers of Gloo; choose a strategy without them (algorithm=direct, no PowerSGD), "
         "train from Python, or build with Debian's libtorch-dev and libgloo-dev");
  }
  return connect_group<c10d::Backend>(transport, "gloo", own_address, torch::kCPU, limit,
                                      [&](const c10::intrusive_ptr<c10d::Store>& store) {
                                        return given()(store, static_cast<int>(transport.self()),
                                                       static_cast<int>(transport.size()),
                                                       own_address, milliseconds(limit));
                                      });
}

}  // namespace autodist::comm
