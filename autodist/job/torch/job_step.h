// One step of a job at this rank: captured, planned and agreed on with the other ranks, and, once
// it is due, run. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/job/torch/captured.h"
#include "autodist/job/torch/step_plan.h"
#include "autodist/job/torch/step_run.h"

namespace autodist::job {

class JobStep {
 public:
  // Captures and plans (capture_step, plan_step); by all ranks at the same point.
  JobStep(JoinedJob& job, NamedStep step, std::uint32_t index);
  JobStep(const JobStep&) = delete;
  JobStep& operator=(const JobStep&) = delete;

  [[nodiscard]] const std::string& name() const { return captured_.name(); }
  // Before what a checkpoint has of this step: "critic/"; nothing where the job has one step alone.
  [[nodiscard]] std::string prefix() const { return name().empty() ? "" : name() + "/"; }
  [[nodiscard]] const TrainingStep& declared() const { return captured_.named.step; }
  [[nodiscard]] bool trains() const { return captured_.trains(); }
  [[nodiscard]] std::string optimizer() const;
  [[nodiscard]] const ir::Graph& graph() const { return *captured_.graph; }
  [[nodiscard]] const capture::Bindings& bindings() const { return captured_.bindings; }
  // What it only reads, where the user has put other values in its place.
  void take_new_storage() const { capture::take_new_storage(*captured_.graph, captured_.bindings); }
  [[nodiscard]] const StepPlan& plan() const { return plan_; }
  std::optional<Rivals> take_rivals() { return std::exchange(plan_.rivals, std::nullopt); }
  [[nodiscard]] const program::Program& program() const { return *plan_.program; }

  // From a checkpoint, before start(): steps done, the state of the update rules, and what
  // compression owed.
  void resume(std::int64_t step, std::vector<NamedTensor> state, std::vector<NamedTensor> owed);
  // All ranks have got the same values of the variables: what is written to them from here on are
  // changes, which all make. Before start().
  void note_values();
  // Once, before the first step.
  void start(const exec::RunnerConnections& connections);

  // Of another plan: its strategy, by the chief (choose_by_chief), and what that makes, at every
  // rank. Throws Error(kInfeasible) as passes::rewrite() does.
  strategy::Strategy choose(const planning::StrategyRequest& request) {
    return choose_by_chief(job_, captured_, plan_, request);
  }
  [[nodiscard]] StepPlan plan_with(strategy::Strategy strategy, std::string name) const;
  // Goes on under another plan (StepRun::end_plan); `connections` is asked for those of the next
  // one when the transport is free.
  void change_plan(StepPlan next, const program::Transition& transition,
                   const std::function<exec::RunnerConnections()>& connections);
  // Who starts the job again after a loss begins with this plan.
  void remember_plan();

  // False before start(), and where that or a change of plans threw.
  [[nodiscard]] bool has_runner() const { return run_ != nullptr && run_->has_runner(); }
  // REQUIRES: started.
  [[nodiscard]] StepRun& run() { return *run_; }
  [[nodiscard]] exec::Runner& runner() { return run_->runner(); }

  // Of its exchange.
  [[nodiscard]] std::uint32_t generation() const { return start_.generation; }
  [[nodiscard]] std::int64_t step() const;  // of the next run
  [[nodiscard]] std::uint64_t bytes_sent() const { return run_ ? run_->bytes_sent() : 0; }
  [[nodiscard]] std::uint32_t replica() const;
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t batch) const;
  // Of the last step, where there was one.
  [[nodiscard]] const StepReport& last() const;
  [[nodiscard]] const std::vector<torch::Tensor>& outputs() const;
  [[nodiscard]] JobLoss job_number(std::size_t number) const;
  [[nodiscard]] const program::Trace& final_trace() const;

 private:
  JoinedJob& job_;
  Captured captured_;
  StepPlan plan_;
  RunStart start_;
  std::unique_ptr<StepRun> run_;
};

}  // namespace autodist::job
