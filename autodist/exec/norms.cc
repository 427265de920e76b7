#include "autodist/exec/norms.h"

#include <algorithm>
#include <cmath>

#include "autodist/base/check.h"
#include "autodist/ir/loss_scaling.h"

namespace autodist::exec {
namespace {

constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

}  // namespace

NormPlan::NormPlan(const ir::Program& program)
    : parts(program.graph->clips.size()),
      clipped(program.slices.size()),
      lamb(program.slices.size()),
      whole(program.variables.size()) {
  const ir::Graph& graph = *program.graph;
  std::vector<std::optional<NormId>> norm_of_lamb(graph.variables.size());
  const auto next_part = [&](NormId norm) { return NormPart{norm, parts[norm.value]++}; };
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    const ir::Slice& slice = program.slices[i];
    for (const ir::Piece& piece : slice.pieces) {
      const ir::VariableId variable = program.shard(piece.shard).variable;
      const auto& clip = program.plan(variable).clip;
      clipped[i].push_back(clip ? std::optional(next_part(of(*clip))) : std::nullopt);
      std::optional<NormPart> part;
      if (graph.variable(variable).update.rule == ir::Rule::kLamb &&
          slice.update_at == ir::UpdateAt::kOwner) {
        auto& norm = norm_of_lamb[variable.value];
        if (!norm) {
          norm = NormId(parts.size());
          parts.push_back(0);
        }
        part = next_part(*norm);
      }
      lamb[i].push_back(part);
    }
  }
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariablePlan& plan = program.variables[i];
    if (plan.clip && plan.slices.empty() && graph.variables[i].gradient) {
      whole[i] = next_part(of(*plan.clip));
    }
  }
  if (ir::loss_scaling_of(program)) {
    flags = NormId(parts.size());
    parts.push_back(program.replica_count());
  }
}

double clip_factor(double max_norm, double sum_of_squares) {
  return std::min(1.0, max_norm / (std::sqrt(sum_of_squares) + 1e-6));
}

Norms::Norms(std::vector<std::uint32_t> parts) {
  for (std::vector<Entry>& entries : entries_) {
    for (const std::uint32_t count : parts) {
      entries.push_back({kNoStep, 0, std::vector<SquaredSums>(count), std::vector<bool>(count)});
    }
  }
}

bool Norms::add(std::uint64_t step, NormPart part, SquaredSums sums) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[step % 2].at(part.norm.value);
  if (entry.step != step) {
    AD_CHECK(entry.missing == 0) << "norm " << part.norm << " of step " << entry.step
                                 << " is incomplete when step " << step << " comes";
    entry.step = step;
    entry.missing = static_cast<std::uint32_t>(entry.parts.size());
    entry.present.assign(entry.parts.size(), false);
  }
  AD_CHECK(!entry.present.at(part.part))
      << "norm " << part.norm << " part " << part.part << " came twice";
  entry.present[part.part] = true;
  entry.parts[part.part] = sums;
  return --entry.missing == 0;
}

std::optional<SquaredSums> Norms::total(std::uint64_t step, NormId norm) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Entry& entry = entries_[step % 2].at(norm.value);
  if (entry.step != step || entry.missing != 0) return std::nullopt;
  SquaredSums total;
  for (const SquaredSums& part : entry.parts) {
    total.first += part.first;
    total.second += part.second;
  }
  return total;
}

}  // namespace autodist::exec
