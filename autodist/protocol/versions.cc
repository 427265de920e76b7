// Which version of a variable this rank has, who reads it, and when the next one goes in.

#include <algorithm>

#include "autodist/protocol/rank.h"

namespace autodist::protocol {

void RankProtocol::on(const Held& event, Effects& /*effects*/) {
  variables_[event.variable.value].released = false;
}

void RankProtocol::on(const Released& event, Effects& effects) {
  variables_[event.variable.value].released = true;
  install_if_ready(event.variable, effects);
}

void RankProtocol::on(const Taken& event, Effects& effects) {
  for (const std::uint32_t variable : job_->slice(event.slice).variables) {
    ++arrived(VariableId(variable), event.step);
    install_if_ready(VariableId(variable), effects);
  }
}

// Once all of a version is there and nobody reads the one before any more.
void RankProtocol::install_if_ready(VariableId id, Effects& effects) {
  const Job::Variable& variable = job_->variable(id);
  VariableState& here = variables_[id.value];
  if (variable.slices.empty() || !here.released || here.installing ||
      arrived(id, here.version) != variable.slices.size()) {
    return;
  }
  if (variable.updates_here) {
    const bool clipped = variable.clip.has_value();
    if (clipped && !is_known(NormId(variable.clip->value), here.version)) return;
    if (!agreed(here.version)) return;
  }
  here.installing = true;
  effects.add(Install{id, here.version});
}

void RankProtocol::on(const Installed& event, Effects& effects) {
  arrived(event.variable, variables_[event.variable.value].version) = 0;
  publish(event.variable, effects);
}

void RankProtocol::on(const UpdatedHere& event, Effects& effects) {
  publish(event.variable, effects);
}

void RankProtocol::publish(VariableId id, Effects& effects) {
  VariableState& here = variables_[id.value];
  here.installing = false;
  ++here.version;
  install_if_ready(id, effects);
  effects.add(Open{id});
}

bool RankProtocol::is_open(VariableId id, Step step) const {
  if (step >= stop_) return false;
  const Job::Variable& variable = job_->variable(id);
  const VariableState& here = variables_[id.value];
  if (!variable.trained || !here.held_here) return true;
  const Step oldest = step - std::min<Step>(step, variable.staleness);
  return here.version >= oldest && !here.installing && here.rows_missing == 0;
}

void RankProtocol::on(const Averaged& event, Effects& effects) {
  const Job::Variable& variable = job_->variable(event.variable);
  variables_[event.variable.value].averaged = event.step + 1;
  if (!variable.whole_norm) return;
  // Every computing rank has the same average and knows its part by itself; the first of them tells
  // those that only serve.
  if (self_ == job_->first_computing) effects.add(TellServers{event.variable, event.step});
  parts_are_known(NormId(variable.clip->value), event.step, 1, effects);
}

bool RankProtocol::may_update(VariableId id, Step step) const {
  const Job::Variable& variable = job_->variable(id);
  const VariableState& here = variables_[id.value];
  return is_averaged(id, step) && here.released &&
         (!variable.clip || is_known(NormId(variable.clip->value), step)) && agreed(step);
}

bool RankProtocol::expects(SliceId id, Step step) const {
  const Job::Slice& slice = job_->slice(id);
  if (!job_->is_member(slice, self_)) return false;
  return std::all_of(slice.variables.begin(), slice.variables.end(), [&](std::uint32_t each) {
    const Step version = variables_[each].version;
    return version <= step && step <= version + job_->variables[each].staleness;
  });
}

bool RankProtocol::may_go_in(SliceId id, Step step) const {
  const Job::Slice& slice = job_->slice(id);
  if (!slice.at_owner || !slice.synchronous) return false;
  return std::all_of(slice.variables.begin(), slice.variables.end(), [&](std::uint32_t each) {
    const VariableState& here = variables_[each];
    return job_->variables[each].staleness == 0 && here.released && here.version == step;
  });
}

}  // namespace autodist::protocol
