// Contributions that wait for each other, their merge, and the way of the result.

#include "autodist/protocol/rank.h"

namespace autodist::protocol {

void RankProtocol::on(const Contributed& event, Effects& effects) {
  const Job::Slice& slice = job_->slice(event.slice);
  const bool keeps_own = job_->keeps_own(slice, self_);
  if (slice.by_all || !keeps_own) effects.add(Contribute{event.slice, event.step});
  if (keeps_own) contribution_is_here(event.slice, self_, event.step, effects);
}

void RankProtocol::on(const ContributionArrived& event, Effects& effects) {
  contribution_is_here(event.slice, event.from, event.step, effects);
}

void RankProtocol::contribution_is_here(SliceId id, Rank from, Step step, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  Combined& here = combined(id);
  if (!slice.synchronous) {
    here.queue.emplace_back(from, step);
    if (here.queue.size() == 1) effects.add(Merge{id, step, from});
    return;
  }
  // The sum is formed once, when the last contribution is in: then it can add in rank order,
  // whatever the order of arrival was.
  if (++present(here, slice, step) == here.awaited && step == here.step) {
    effects.add(Merge{id, step});
  }
}

void RankProtocol::on(const Merged& event, Effects& effects) {
  const Job::Slice& slice = job_->slice(event.slice);
  Combined& here = combined(event.slice);
  if (!slice.synchronous) return apply_next(event.slice, effects);
  present(here, slice, here.step) = 0;
  if (slice.relays && slice.owner != self_) return combine(event.slice, effects);
  if (!slice.clip_norms.empty()) tell(event.slice, here.step, /*lamb=*/false, effects);
  if (!slice.at_owner || job_->updates_at_once(slice)) return combine(event.slice, effects);
  here.awaits = Awaits::kFirstNorms;
  go_on(event.slice, effects);
}

void RankProtocol::on(const Updated& event, Effects& effects) { combine(event.slice, effects); }

// What was combined here goes out, and the next step's turn comes.
void RankProtocol::combine(SliceId id, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  Combined& here = combined(id);
  if (slice.relays && slice.owner != self_) {
    effects.add(HandOn{id, here.step});
  } else {
    result_is_made(id, here.step, effects);
  }
  ++here.step;
  give_early_asks(id, effects);
  if (present(here, slice, here.step) == here.awaited) {
    effects.add(Merge{id, here.step});
  }
}

void RankProtocol::result_is_made(SliceId id, Step step, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  if (slice.asked_for && !combined(id).asked.empty()) {
    answer_those_who_have_not_asked(id, step, effects);
  } else if (!slice.by_all) {
    effects.add(Return{id, step});
  }
  const bool installs = slice.by_all || slice.route.is_direct() ? job_->is_member(slice, self_)
                                                                : job_->stop(slice, self_).installs;
  if (installs) effects.add(Take{id, step});
}

void RankProtocol::on(const ResultArrived& event, Effects& effects) {
  const Job::Slice& slice = job_->slice(event.slice);
  if (!slice.route.is_direct()) return result_is_made(event.slice, event.step, effects);
  effects.add(Take{event.slice, event.step});
}

}  // namespace autodist::protocol
