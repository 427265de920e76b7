// Library collectives on CPUs: Gloo through libtorch's c10d.
//
// Gloo neither encrypts nor authenticates: for trusted networks. It listens on the given address
// alone; its addresses are exchanged over the job's own transport, so c10d's store, which listens
// on all interfaces, is not used.

#pragma once

#include <memory>
#include <string>

#include "autodist/base/units.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// Whether this build has Gloo: libtorch's headers alone do not do (pip's wheels).
bool has_gloo();

// Connects every rank with every other; all ranks call it at the same point, as an agreement, and
// then call all_reduce in one order from one thread. The transport is used during the call only.
// `limit` bounds this call and every all_reduce. Throws Error(kPeersLost) naming the ranks that did
// not come, and Error(kEnvironment) when this build has no Gloo.
//
// A rank destroys its collectives when all ranks are through with theirs (an agreement tells): a
// connection that closes early can fail the last call of a slower rank.
//
// After abort() a wait of this rank fails at once; other ranks wait until theirs is called, too.
//
// all_reduce sums f32, f64, f16, i8, u8, i32 and i64 and throws Error(kUsage) for others. After an
// error no further call succeeds. Ranks that call it with different counts get an error or, where
// Gloo does not notice, wrong sums: the Program's digest, compared before, rules that out.
std::unique_ptr<Collectives> make_gloo(Transport& transport, const std::string& own_address,
                                       Seconds limit);

}  // namespace autodist::comm
