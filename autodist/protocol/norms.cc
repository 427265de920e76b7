// Sums that need parts of several ranks before anybody updates: the norms of clips, LAMB's, and
// whether all gradients are finite.

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/protocol/rank.h"

namespace autodist::protocol {

bool RankProtocol::is_known(NormId norm, Step step) const {
  const NormState& state = norms_[step % 2][norm.value];
  return state.step == step && state.missing == 0;
}

bool RankProtocol::all_known(const std::vector<NormId>& norms, Step step) const {
  return std::all_of(norms.begin(), norms.end(), [&](NormId norm) { return is_known(norm, step); });
}

bool RankProtocol::first_norms_known(const Job::Slice& slice, Step step) const {
  return all_known(slice.clip_norms, step) && agreed(step);
}

// From one wait to the next: the clips' norms and the flags, then LAMB's, then the update.
void RankProtocol::go_on(SliceId id, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  Combined& here = combined(id);
  if (here.awaits == Awaits::kFirstNorms && first_norms_known(slice, here.step)) {
    if (!all_known(slice.lamb_norms, here.step)) {
      here.awaits = Awaits::kMeasuring;
      effects.add(Measure{id, here.step});
      return;
    }
    here.awaits = Awaits::kContributions;
    effects.add(Update{id, here.step});
  } else if (here.awaits == Awaits::kLambNorms && all_known(slice.lamb_norms, here.step)) {
    here.awaits = Awaits::kContributions;
    effects.add(Update{id, here.step});
  }
}

void RankProtocol::on(const Measured& event, Effects& effects) {
  Combined& here = combined(event.slice);
  here.awaits = Awaits::kLambNorms;
  tell(event.slice, here.step, /*lamb=*/true, effects);
}

// All members that combine a slice have its sums: the owner tells the others.
void RankProtocol::tell(SliceId id, Step step, bool lamb, Effects& effects) {
  if (job_->slice(id).owner != self_) return;
  effects.add(TellSums{id, step, lamb});
  sums_are_known(id, step, lamb, effects);
}

void RankProtocol::sums_are_known(SliceId id, Step step, bool lamb, Effects& effects) {
  const Job::Slice& slice = job_->slice(id);
  const std::vector<NormId>& norms = lamb ? slice.lamb_norms : slice.clip_norms;
  for (auto norm = norms.begin(); norm != norms.end(); ++norm) {
    if (std::find(norms.begin(), norm, *norm) != norm) continue;
    const auto parts = static_cast<std::uint32_t>(std::count(norms.begin(), norms.end(), *norm));
    parts_are_known(*norm, step, parts, effects);
  }
}

void RankProtocol::on(const SumsArrived& event, Effects& effects) {
  sums_are_known(event.slice, event.step, event.lamb, effects);
}

void RankProtocol::on(const WholeSumArrived& event, Effects& effects) {
  parts_are_known(NormId(job_->variable(event.variable).clip->value), event.step, 1, effects);
}

void RankProtocol::on(const Flagged& event, Effects& effects) {
  FlagState& flags = flags_[event.step % 2];
  if (flags.step != event.step) flags = {event.step, false};
  if (!event.finite) flags.overflow = true;
  parts_are_known(*job_->norms.flags, event.step, 1, effects);
}

void RankProtocol::parts_are_known(NormId norm, Step step, std::uint32_t parts, Effects& effects) {
  NormState& state = norms_[step % 2][norm.value];
  if (state.step != step) {
    AD_CHECK(state.missing == 0 && step == state.step + 2)
        << "norm " << norm << " of step " << step << " comes while that of step " << state.step
        << " lacks " << state.missing << " parts";
    state = {step, job_->norms.parts[norm.value]};
  }
  AD_CHECK(state.missing >= parts) << "norm " << norm << " of step " << step << " came twice";
  state.missing -= parts;
  if (state.missing != 0) return;
  const bool agreed_now = job_->norms.flags == norm;
  if (agreed_now) {
    effects.add(Agreed{step, skips(step)});
    // Nobody measures what all skip: nobody waits for it either.
    for (std::uint32_t lamb = job_->norms.clips; skips(step) && lamb < norm.value; ++lamb) {
      norms_[step % 2][lamb] = {step, 0};
    }
  }
  for (std::uint32_t i = 0; i < combined_at_.size(); ++i) {
    if (combined_at_[i] == kNone) continue;
    const Combined& here = combined_[combined_at_[i]];
    if (here.awaits != Awaits::kContributions && here.step == step) go_on(SliceId(i), effects);
  }
  for (std::uint32_t i = 0; i < variables_.size(); ++i) {
    const auto& clip = job_->variables[i].clip;
    if (agreed_now || (clip && clip->value == norm.value)) install_if_ready(VariableId(i), effects);
  }
  effects.add(NormKnown{norm, step});
}

}  // namespace autodist::protocol
