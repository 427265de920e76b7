#include "autodist/protocol/rank.h"

namespace autodist::protocol {

RankProtocol::RankProtocol(const Job& job, Rank self, Step first)
    : job_(&job), self_(self), variables_(job.variables.size()) {
  std::uint32_t arrived = 0;
  for (std::size_t i = 0; i < job.variables.size(); ++i) {
    variables_[i].version = first;
    if (job.variables[i].slices.empty()) variables_[i].averaged = first;
    variables_[i].held_here = job.holds(job.variables[i], self);
    arrived_at_.push_back(arrived);
    arrived += job.variables[i].staleness + 1;
  }
  arrived_.assign(arrived, 0);
  combined_at_.assign(job.slices.size(), kNone);
  for (std::size_t i = 0; i < job.slices.size(); ++i) {
    const Job::Slice& slice = job.slices[i];
    gradients_missing_.push_back(static_cast<std::uint32_t>(slice.variables.size()));
    const std::uint32_t awaited = job.awaited(slice, self);
    if (awaited == 0) continue;
    combined_at_[i] = static_cast<std::uint32_t>(combined_.size());
    combined_.emplace_back();
    if (slice.synchronous) combined_.back().step = first;
    combined_.back().awaited = awaited;
    combined_.back().present = static_cast<std::uint32_t>(present_.size());
    present_.resize(present_.size() + slice.ring + 1, 0);
  }
  // The norms of the two steps before are known, as they are to a rank that has gone through them.
  for (const Step before : {first - 1, first - 2}) {
    norms_[before % 2].assign(job.norms.parts.size(), {before, 0});
  }
}

bool RankProtocol::operator==(const RankProtocol& other) const {
  // An overflow matters until all have said whether there is one.
  const auto overflows = [](const RankProtocol& each, std::uint32_t parity) {
    const auto& flags = each.job_->norms.flags;
    return flags && each.norms_[parity][flags->value].missing != 0 && each.flags_[parity].overflow;
  };
  return self_ == other.self_ && variables_ == other.variables_ && arrived_ == other.arrived_ &&
         gradients_missing_ == other.gradients_missing_ && combined_ == other.combined_ &&
         present_ == other.present_ && norms_[0] == other.norms_[0] &&
         norms_[1] == other.norms_[1] && overflows(*this, 0) == overflows(other, 0) &&
         overflows(*this, 1) == overflows(other, 1);
}

}  // namespace autodist::protocol
