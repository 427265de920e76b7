// What a rank says beside its gradients (rider.h): options of update rules that are not as
// declared, variables that have got other values, and its part of a step's sums. By the compute
// thread, but for take_note() and take_sums().
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/exec/job_sums.h"
#include "autodist/exec/link.h"
#include "autodist/exec/local_variables.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/small_collectives.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class StepNews {
 public:
  // All references outlive it.
  StepNews(const RankContext& rank, const LocalVariables& variables,
           SmallCollectives& small_collectives, Link& link);

  // What this rank says with its contributions from the next step on, until it is said otherwise:
  // options of an update rule that are not as declared. Between steps.
  void set_options(ir::VariableId variable, const std::map<std::string, double>& options);
  // Somebody has given these variables other values, with these digests: said with the
  // contributions to the next step.
  void change(const std::map<ir::VariableId, std::uint64_t>& digests);
  // Where ranks that are not members must agree: all computing ranks call it before the same step.
  // Throws Error(kUsage) where their changes differ.
  void agree_on_changes(const std::map<ir::VariableId, std::uint64_t>& digests, std::uint64_t step);

  // The sums of each step over all replicas, which are opened when it begins and become known
  // later; in a job with asynchronous variables they are this rank's alone.
  [[nodiscard]] JobSums& job_sums() { return job_sums_; }
  // This rank's part, at most once per step: before its first contribution to the step, or with
  // end_step().
  void add_sums(std::vector<double> sums, std::int64_t samples);
  // Further numbers of the step that is next, which are added up as they are. Between steps.
  void add_to_next_sums(std::vector<double> numbers) { next_numbers_ = std::move(numbers); }
  void end_step(std::uint64_t step);

  // Encoded: what goes with a contribution to a slice, and what concerns a variable that no slice
  // carries.
  [[nodiscard]] std::string rider_of(program::SliceId slice) const;
  [[nodiscard]] std::string news_of(ir::VariableId variable) const;

  // The sums that came back with a slice's result, if it is the one that carries them. Any thread.
  void take_sums(program::SliceId slice, std::uint64_t step, std::vector<double> sums);
  // A rank's part of a step whose sums no slice carries. By the receiving thread. Throws
  // Error(kUsage) where the ranks' news differ.
  void take_note(program::Rank from, std::uint64_t step, std::string note);

 private:
  [[nodiscard]] std::string values_of(const program::Slice& slice) const;
  [[nodiscard]] std::string news_of_whole() const;

  const program::Program& program_;
  const program::Rank self_;
  const LocalVariables& variables_;
  SmallCollectives& small_collectives_;
  Link& link_;
  const Seconds limit_;
  // What it says with this step's contributions.
  News news_;
  std::vector<double> sums_;          // the samples first; none without
  std::vector<double> next_numbers_;  // add_to_next_sums()
  // Whose contributions and results carry the sums, if one has all replicas for members.
  const std::optional<program::SliceId> sums_slice_;
  JobSums job_sums_;
};

}  // namespace autodist::exec
