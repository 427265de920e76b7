// Rows that are asked for: a member asks the owner for those that its next batch reads, and the
// owner gives them once it has a version that the step may use.

#include "autodist/protocol/rank.h"

namespace autodist::protocol {

void RankProtocol::on(const RowsWanted& event, Effects& effects) {
  const Job::Slice& slice = job_->slice(event.slice);
  ++variables_[slice.variables.front()].rows_missing;
  if (slice.owner != self_) {
    effects.add(Ask{event.slice, event.step});
  } else {
    on(AskArrived{self_, event.slice, event.step}, effects);
  }
}

void RankProtocol::on(const AskArrived& event, Effects& effects) {
  const Job::Slice& slice = job_->slice(event.slice);
  Combined& here = combined(event.slice);
  if (slice.synchronous && event.step > here.step + slice.ring - 1) {
    here.asked.emplace_back(event.from, event.step);
    return;
  }
  effects.add(GiveRows{event.from, event.slice, event.step});
}

// Those that were asked for too early, now that the owner has a newer version. Whoever asks has
// passed the gate of the step before, and so is no more than one version ahead.
void RankProtocol::give_early_asks(SliceId id, Effects& effects) {
  Combined& here = combined(id);
  for (const auto& [from, step] : here.asked) effects.add(GiveRows{from, id, step});
  here.asked.clear();
}

void RankProtocol::on(const RowsGiven& event, Effects& effects) {
  if (event.to == self_) {
    effects.add(TakeRows{event.slice, event.step});
  } else {
    effects.add(SendRows{event.to, event.slice, event.step});
  }
}

void RankProtocol::on(const RowsArrived& event, Effects& effects) {
  const VariableId variable(job_->slice(event.slice).variables.front());
  if (--variables_[variable.value].rows_missing == 0) effects.add(Open{variable});
}

}  // namespace autodist::protocol
