// The steps of this rank, under one plan after the other.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/exec/runner.h"
#include "autodist/job/torch/shape_cache.h"
#include "autodist/job/torch/step_plan.h"
#include "autodist/program/transition.h"

namespace autodist::job {

constexpr char kNoStepYet[] = "job_loss: no step was run yet. Run one first.";

// Where a run begins.
struct RunStart {
  std::int64_t step = 0;  // steps that were done before
  exec::RankState state;
  std::vector<std::uint64_t> values;  // digests of the variables as all ranks have them
  std::uint32_t generation = 0;       // of its exchange
};

// Of what StepRun::state() gave, and of what this rank owes.
exec::RankState state_of(std::vector<NamedTensor> saved, std::vector<NamedTensor> owed);

// This rank is in the call while what is returned lives, after the runner's last step
// (exec::Calls::begin and enter).
[[nodiscard]] exec::Calls::Scope begin_call(exec::Runner& runner, exec::Call call);
[[nodiscard]] exec::Calls::Scope enter_call(exec::Runner& runner, exec::Call call);

class StepRun {
 public:
  // All but `start` outlive it. `plan` may be assigned to between end_plan() and begin_plan().
  StepRun(JoinedJob& job, const Captured& captured, const StepPlan& plan, RunStart start,
          const exec::RunnerConnections& connections);
  ~StepRun();
  StepRun(const StepRun&) = delete;
  StepRun& operator=(const StepRun&) = delete;

  // False after a begin_plan() that threw.
  [[nodiscard]] bool has_runner() const { return runner_ != nullptr; }
  // Throws again why the plan that took another's place could not begin, where one could not.
  [[nodiscard]] exec::Runner& runner() const;
  [[nodiscard]] std::int64_t step() const {  // of the next run()
    return static_cast<std::int64_t>(runner().steps_done());
  }
  [[nodiscard]] std::uint64_t bytes_sent() const {
    return bytes_before_ + runner().counters().payload_bytes_sent;
  }
  // What a checkpoint keeps of it beside the variables, at the chief: the state of the update
  // rules, and of loss scaling.
  struct State {
    exec::LaterTensors rules;
    std::vector<NamedTensor> scaling;
  };
  State state();

  // The plan ends after the step that was done last, and what this rank goes on from is returned.
  // By all ranks, once each knows that the others are settled (Runner::settle). Afterwards nothing
  // of the transport is used until begin_plan().
  RunStart end_plan(const program::Transition& transition);
  // `connections` is asked for when the transport is free. Where it throws, no plan runs any more.
  void begin_plan(RunStart start, const std::function<exec::RunnerConnections()>& connections);

  // What Session says of them. REQUIRES: between two steps, no other step of the job still changes
  // variables.
  double run(const Batch& batch);
  double run_local(const Batch& rows);
  std::map<std::string, torch::Tensor> run_and_fetch(const Batch& batch,
                                                     const std::vector<std::string>& names);
  std::vector<double> sum_over_ranks(const std::vector<double>& values);
  [[nodiscard]] const StepReport& last() const { return report_; }
  [[nodiscard]] const std::vector<torch::Tensor>& outputs() const { return outputs_; }
  // The next step is compared with its replay.
  void verify_next() { verifies_next_ = true; }
  ir::LossScale loss_scale();
  void gather_trace() { final_trace_ = runner().gather_trace(); }
  [[nodiscard]] const program::Trace& final_trace() const { return final_trace_; }
  // Of the last step.
  [[nodiscard]] JobLoss job_number(std::size_t number) const;
  void set_options(const std::map<std::string, std::map<std::string, double>>& options);
  StepSummary summarise(bool stop, bool save);
  std::vector<StepSummary> remaining_summaries();
  StepSummary last_summary();

 private:
  [[nodiscard]] const ir::Graph& graph() const { return *captured_.graph; }
  [[nodiscard]] const program::Program& program() const { return *plan_.program; }
  [[nodiscard]] exec::RunnerOptions runner_options(RunStart& start) const;
  void begin(RunStart start, const exec::RunnerConnections& connections);
  [[nodiscard]] std::vector<NamedTensor> state_of_scaling();
  [[nodiscard]] Batch with_scale(Batch batch);
  [[nodiscard]] bool verifies() const;
  double run_rows(const Batch& rows);
  void say_captures();
  exec::StepResult run_parts(const Batch& rows);
  // The micro-batches that have rows.
  [[nodiscard]] std::vector<Batch> micro_batches(const Batch& rows) const;
  [[nodiscard]] std::optional<std::uint64_t> series_of_losses() const;
  void compare_losses();
  void tell_batch(const Batch& batch);
  void compare_batches();
  void read_notes();
  StepSummary read_note();

  JoinedJob& job_;
  const Captured& captured_;
  const StepPlan& plan_;
  std::int64_t first_step_;
  bool verifies_next_ = false;  // verify_next()
  ShapeCache shapes_;
  std::shared_ptr<exec::Runner> runner_;  // a JobLoss may ask it for as long as it lives
  std::exception_ptr failure_;            // why there is none
  std::uint32_t generation_ = 0;          // of its exchange
  std::uint64_t bytes_before_ = 0;        // sent under earlier plans
  program::Trace final_trace_;
  std::map<std::string, std::map<std::string, double>> options_;  // of update rules, as set last
  StepReport report_;
  std::shared_ptr<const exec::StepSums> sums_;  // of the last step
  // JobMemory::compare_loss(): as what, nothing for not at all; and of which steps not yet.
  std::optional<std::uint64_t> loss_series_;
  std::deque<std::shared_ptr<const exec::StepSums>> uncompared_;
  bool said_other_loss_ = false;
  std::deque<std::shared_ptr<const exec::StepSums>> told_batches_;  // not compared yet
  bool said_other_batch_ = false;
  bool said_captures_ = false;
  std::vector<torch::Tensor> outputs_;  // of the last step
  std::deque<StepSummary> before_;      // of earlier plans' steps, which nobody has been told of
  std::deque<std::int64_t> untold_;     // steps whose notes were not read yet
  StepSummary summary_;
};

// Rows [begin, end) of a batch that a part of it has: program::part_rows(), but for single ones
// that the step cannot do with.
std::pair<std::int64_t, std::int64_t> part_rows(const Captured& captured,
                                                const program::Program& program, std::int64_t batch,
                                                std::uint32_t part);
// Which part of a batch a rank computes. Throws Error(kUsage) for one that only serves.
std::uint32_t replica_of(const program::Program& program, program::Rank rank);
// Whether no rank only serves.
bool all_compute(const program::Program& program);

}  // namespace autodist::job
