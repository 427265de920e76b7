// An asynchronous slice: the owner applies one contribution after the other, in the order of their
// arrival, and answers each sender alone.

#include "autodist/protocol/rank.h"

namespace autodist::protocol {

void RankProtocol::apply_next(SliceId id, Effects& effects) {
  Combined& here = combined(id);
  const auto [from, step] = here.queue.front();
  here.queue.erase(here.queue.begin());
  if (!here.queue.empty()) {
    const auto [next, its_step] = here.queue.front();
    effects.add(Merge{id, its_step, next});
  }
  if (from == self_) {
    effects.add(Take{id, step});
  } else {
    effects.add(Answer{from, id, step});
  }
}

}  // namespace autodist::protocol
