// Stands in for gloo.cc where Gloo's headers were not found.

#include "autodist/base/error.h"
#include "autodist/comm/c10d/gloo.h"

namespace autodist::comm {

std::unique_ptr<Collectives> make_gloo(Transport&, const std::string&, Seconds) {
  fail(ErrorCode::kEnvironment,
       "collectives: this build has no Gloo. Install its headers (Debian: libgloo-dev) and build "
       "again, or choose a strategy without library collectives");
}

}  // namespace autodist::comm
