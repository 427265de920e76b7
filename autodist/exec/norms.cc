#include "autodist/exec/norms.h"

#include <cmath>
#include <cstring>

#include "autodist/base/check.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/topic.h"

namespace autodist::exec {
namespace {

constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

}  // namespace

NormPlan::NormPlan(const program::Program& program, const protocol::Job& job)
    : clipped(program.slices.size()), lamb(program.slices.size()), whole(program.variables.size()) {
  std::vector<std::uint32_t> next(job.norms.parts.size());
  const auto next_part = [&](NormId norm) { return NormPart{norm, next[norm.value]++}; };
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    // One entry per part, in the order of pieces.
    auto clip_norm = job.slices[i].clip_norms.begin();
    auto lamb_norm = job.slices[i].lamb_norms.begin();
    for (const program::Piece& piece : program.slices[i].pieces) {
      const ir::VariableId variable = program.shard(piece.shard).variable;
      clipped[i].emplace_back();
      if (program.plan(variable).clip) clipped[i].back() = next_part(*clip_norm++);
      lamb[i].emplace_back();
      if (lamb_norm == job.slices[i].lamb_norms.end()) continue;
      const ir::Rule rule = program.graph->variable(variable).update.rule;
      if (rule == ir::Rule::kLamb) lamb[i].back() = next_part(*lamb_norm++);
    }
  }
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    if (job.variables[i].whole_norm) whole[i] = next_part(of(*program.variables[i].clip));
  }
}

comm::Payload payload_of(const std::vector<SquaredSums>& sums) {
  return aligned_copy(sums.data(), sums.size() * sizeof(SquaredSums));  // two doubles each
}

std::vector<SquaredSums> sums_of(const comm::Frame& frame, std::size_t expected) {
  AD_CHECK(frame.payload.size == expected * sizeof(SquaredSums))
      << name_of(topic_of(frame.header), frame.header.id) << " from rank " << frame.header.from
      << " has " << frame.payload.size << " bytes";
  std::vector<SquaredSums> sums(expected);
  if (expected != 0) std::memcpy(sums.data(), frame.payload.data, frame.payload.size);
  return sums;
}

double clip_factor(double max_norm, double sum_of_squares) {
  return std::min(1.0, max_norm / (std::sqrt(sum_of_squares) + 1e-6));
}

Norms::Norms(std::vector<std::uint32_t> parts, Signal& signal) : signal_(signal) {
  for (std::vector<Entry>& entries : entries_) {
    for (const std::uint32_t count : parts) {
      entries.push_back({kNoStep, std::vector<SquaredSums>(count), std::vector<bool>(count)});
    }
  }
}

void Norms::put(std::uint64_t step, NormPart part, SquaredSums sums) {
  const MutexLock lock(signal_);
  Entry& entry = entries_[step % 2].at(part.norm.value);
  if (entry.step != step) {
    AD_CHECK(entry.step == kNoStep || entry.is_complete())
        << "norm " << part.norm << " of step " << entry.step << " is incomplete when step " << step
        << " comes";
    entry.step = step;
    entry.present.assign(entry.parts.size(), false);
  }
  AD_CHECK(!entry.present.at(part.part))
      << "norm " << part.norm << " part " << part.part << " came twice";
  entry.present[part.part] = true;
  entry.parts[part.part] = sums;
}

SquaredSums Norms::total(std::uint64_t step, NormId norm) const {
  const MutexLock lock(signal_);
  const Entry& entry = entries_[step % 2].at(norm.value);
  AD_CHECK(entry.step == step && entry.is_complete())
      << "norm " << norm << " of step " << step << " is asked for before all its parts are known";
  SquaredSums total;
  for (const SquaredSums& part : entry.parts) total += part;
  return total;
}

}  // namespace autodist::exec
