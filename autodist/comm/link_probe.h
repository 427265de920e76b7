// What the links between ranks can do: measured once, before the first step, through an exchange
// as the job's slices will take it.

#pragma once

#include <optional>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

struct LinkFigures {
  double bandwidth_bytes_per_s = 0;  // of payload, each way while both are busy
  Seconds round_trip;                // of a slice of a few bytes, through all threads of both ranks
  // CPU time that a slice takes at both ends together whatever its size, acknowledgement included.
  Seconds message_cost;
};

// By all ranks together, between agreements. At rank 0 the worst of its links (the least bandwidth,
// the longest round trip, the largest cost), elsewhere nothing. Takes a few tenths of a second per
// peer; of more than sixteen peers sixteen are asked, evenly chosen. `cpu` is the CPU time of this
// process. Throws Error(kPeersLost) or Error(kTimeout) where a rank says nothing for `limit`.
// REQUIRES: the transport has at least two ranks.
std::optional<LinkFigures> probe_links(Transport& transport, const Clock& clock, const Clock& cpu,
                                       Seconds limit);

struct ProbedLink {
  RankNumber from = 0;
  RankNumber to = 0;
  LinkFigures figures;
};

// By all ranks together, like probe_links(): every pair of `members` (ascending ranks, two at
// least), one pair at a time. The same answer at every rank; message costs are those of `from`.
std::vector<ProbedLink> probe_all_links(Transport& transport,
                                        const std::vector<RankNumber>& members, const Clock& clock,
                                        const Clock& cpu, Seconds limit);

}  // namespace autodist::comm
