// Stands in for gloo.cc where there are no headers of libtorch's Gloo.

#include "autodist/base/error.h"
#include "autodist/comm/c10d/gloo.h"

namespace autodist::comm {

bool has_gloo() { return false; }

std::unique_ptr<Collectives> make_gloo(Transport&, const std::string&, Seconds) {
  fail(ErrorCode::kEnvironment,
       "collectives: this build has no all-reduces by a library, as its libtorch comes without the "
       "headers of Gloo; choose a strategy without them (algorithm=direct, no PowerSGD), or build "
       "with Debian's libtorch-dev and libgloo-dev");
}

}  // namespace autodist::comm
