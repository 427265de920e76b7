// A plan under way at this rank: steps are run, until the run ends. Another one may begin where it
// ended, with another plan for what was captured.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autodist/exec/runner.h"
#include "autodist/job/torch/shape_cache.h"
#include "autodist/job/torch/step_plan.h"

namespace autodist::job {

// Where a run begins.
struct RunStart {
  std::int64_t step = 0;              // steps that were done before
  std::vector<NamedTensor> state;     // of the update rules, and of loss scaling
  std::vector<NamedTensor> owed;      // by compression
  std::vector<std::uint64_t> values;  // digests of the variables as all ranks have them
  std::uint32_t generation = 0;       // of its exchange
};

// What a run talks through. All outlive it.
struct RunConnections {
  comm::Transport* transport = nullptr;      // the step's own
  comm::Collectives* collectives = nullptr;  // where the Program has library all-reduces
};

class StepRun {
 public:
  // All but `start` outlive it.
  StepRun(JoinedJob& job, const Captured& captured, const StepPlan& plan, RunStart start,
          const RunConnections& connections);
  ~StepRun();
  StepRun(const StepRun&) = delete;
  StepRun& operator=(const StepRun&) = delete;

  [[nodiscard]] exec::Runner& runner() { return *runner_; }
  [[nodiscard]] std::int64_t step() const {  // of the next run()
    return static_cast<std::int64_t>(runner_->steps_done());
  }
  [[nodiscard]] std::uint64_t bytes_sent() const { return runner_->counters().payload_bytes_sent; }
  // What a checkpoint keeps of it beside the variables, at the chief: the state of the update
  // rules, and of loss scaling.
  std::vector<NamedTensor> state();

  // What Session says of them. REQUIRES: between two steps, no other step of the job still changes
  // variables.
  double run(const Batch& batch);
  double run_local(const Batch& rows);
  std::map<std::string, torch::Tensor> run_and_fetch(const Batch& batch,
                                                     const std::vector<std::string>& names);
  std::vector<double> sum_over_ranks(const std::vector<double>& values);
  [[nodiscard]] const StepReport& last() const { return report_; }
  [[nodiscard]] const std::vector<torch::Tensor>& outputs() const { return outputs_; }
  ir::LossScale loss_scale();
  void gather_trace() { final_trace_ = runner_->gather_trace(); }
  [[nodiscard]] const program::Trace& final_trace() const { return final_trace_; }
  // Of the last step.
  [[nodiscard]] JobLoss job_number(std::size_t number) const;
  void set_options(const std::map<std::string, std::map<std::string, double>>& options);
  StepSummary summarise(bool stop, bool save);
  std::vector<StepSummary> remaining_summaries();
  StepSummary last_summary();

 private:
  [[nodiscard]] const JobOptions& job_options() const { return job_.options(); }
  [[nodiscard]] const ir::Graph& graph() const { return *captured_.graph; }
  [[nodiscard]] const program::Program& program() const { return *plan_.program; }
  [[nodiscard]] exec::RunnerOptions runner_options(RunStart& start) const;
  void load(const RunStart& start);
  [[nodiscard]] Batch with_scale(Batch batch);
  [[nodiscard]] bool verifies() const;
  double run_rows(const Batch& rows);
  exec::StepResult run_parts(const Batch& rows);
  // Those with rows.
  [[nodiscard]] std::vector<Batch> micro_batches(const Batch& rows) const;
  [[nodiscard]] exec::Calls::Scope begin(exec::Call call);
  void read_notes();

  JoinedJob& job_;
  const Captured& captured_;
  const StepPlan& plan_;
  std::int64_t first_step_;
  ShapeCache shapes_;
  std::shared_ptr<exec::Runner> runner_;  // a JobLoss may ask it for as long as it lives
  program::Trace final_trace_;
  StepReport report_;
  std::shared_ptr<const exec::StepSums> sums_;  // of the last step
  std::vector<torch::Tensor> outputs_;          // of the last step
  std::deque<std::int64_t> untold_;             // steps whose notes were not read yet
  StepSummary summary_;
};

// Which part of a batch a rank computes. REQUIRES: it does not only serve.
std::uint32_t replica_of(const program::Program& program, program::Rank rank);

}  // namespace autodist::job
