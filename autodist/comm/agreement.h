// Small blocking collectives for before the first step and between steps: the same bytes
// everywhere, or one message that says who differs. `limit` bounds the silence of the ranks that
// are waited for: a large message may take longer as long as it moves, and a rank that is busy as
// long as it shows that it is alive (live_transport.h). A rank whose process is gone is
// noticed at once.
//
// Every rank calls the same functions in the same order; a rank at another `what` is refused with
// Error(kUsage). Not while an Exchange runs on the transport. A peer's farewell with a reason ends
// the wait with that reason, and so does what Transport::look_around throws.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/digest.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

// What a user sets for a longer `limit`, as messages name it.
inline constexpr const char* kJoinLimit = "--join-timeout (in a program: join_limit)";
inline constexpr const char* kSilenceLimit = "--silence-timeout (in a program: silence_limit)";

// The root's bytes at every rank. `what` names the exchange in messages ("job document"), and
// `option` what `limit` was set by. Throws Error(kPeersLost) naming the ranks that said nothing
// within `limit`.
std::string broadcast(Transport& transport, RankNumber root, const std::string& bytes,
                      const std::string& what, Seconds limit, const char* option = kJoinLimit);

// Everyone's bytes at every rank, by rank.
std::vector<std::string> all_gather(Transport& transport, const std::string& bytes,
                                    const std::string& what, Seconds limit);

// Returns when all ranks have called it. A rank that is heard in an exchange of this generation
// or a later one will not: Error(kUsage) that names both and `what`, at that rank, too.
void meet(Transport& transport, const std::string& what, std::uint32_t generation, Seconds limit);

// Throws Error(kUsage) at every rank, with both sides' digest and summary and the ranks that hold
// them, unless all ranks give the same digest.
void agree(Transport& transport, const std::string& what, const Digest& digest,
           const std::string& summary, Seconds limit);

// Tells the others why this rank leaves: those that wait for it here, and those that are in the
// exchange of this generation already. Does not wait.
void leave(Transport& transport, std::uint32_t generation, const std::string& reason);

}  // namespace autodist::comm
