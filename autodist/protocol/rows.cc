// Rows that are asked for: a member asks the owner for those that its next batch reads, and the
// owner gives them once it has a version that the step may use.

#include <algorithm>

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
  effects.add(GiveRows{event.from, event.slice, event.step, /*with_result=*/false});
}

// The others get the result with their rows: a message less for everyone who waits for them.
void RankProtocol::answer_those_who_have_not_asked(SliceId id, Step step, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  const std::vector<std::pair<Rank, Step>>& asked = combined(id).asked;
  if (asked.size() == slice.member_count) return;
  std::vector<Rank> waiting;
  for (const auto& [from, of_step] : asked) waiting.push_back(from);
  std::sort(waiting.begin(), waiting.end());
  job_->for_each_returned_to(slice, self_, [&](Rank to) {
    if (std::binary_search(waiting.begin(), waiting.end(), to)) return;
    effects.add(Answer{to, id, step});
  });
}

// Those that were asked for too early, now that the owner has a newer version. Whoever asks has
// passed the gate of the step before, and so is no more than one version ahead.
void RankProtocol::give_early_asks(SliceId id, Effects& effects) {
  Combined& here = combined(id);
  const bool with_result = job_->slice(id).asked_for;
  for (const auto& [from, step] : here.asked) {
    effects.add(GiveRows{from, id, step, with_result && from != self_});
  }
  here.asked.clear();
}

void RankProtocol::on(const RowsGiven& event, Effects& effects) {
  if (event.to == self_) {
    effects.add(TakeRows{event.slice, event.step});
  } else {
    effects.add(SendRows{event.to, event.slice, event.step, event.with_result});
  }
}

void RankProtocol::on(const RowsArrived& event, Effects& effects) {
  const VariableId variable(job_->slice(event.slice).variables.front());
  if (--variables_[variable.value].rows_missing == 0) effects.add(Open{variable});
}

}  // namespace autodist::protocol
