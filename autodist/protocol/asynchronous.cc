// An asynchronous slice: the owner applies one contribution after the other, in the order of their
// arrival, and answers each sender alone.

#include "autodist/protocol/rank.h"

namespace autodist::protocol {

void RankProtocol::apply_next(SliceId id, Effects& effects) {
  Combined& here = combined(id);
  const auto [from, step] = here.queue.front();
  here.queue.erase(here.queue.begin());
  if (!here.queue.empty()) effects.add(Merge{id, here.queue.front().second});
  if (from == self_) {
    effects.add(Take{id, step});
  } else {
    effects.add(Answer{from, id, step});
  }
}

}  // namespace autodist::protocol
