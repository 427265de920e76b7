// One step of a job at this rank: captured, planned, agreed on with the other ranks, and run.
// Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/app/planning.h"
#include "autodist/app/torch/joined_job.h"
#include "autodist/app/torch/session.h"
#include "autodist/app/torch/shape_cache.h"
#include "autodist/capture/bindings.h"
#include "autodist/comm/collectives.h"
#include "autodist/comm/link_probe.h"
#include "autodist/exec/runner.h"
#include "autodist/passes/pipeline.h"

namespace autodist::app {

class JobStep {
 public:
  // Captures and plans; by all ranks at the same point. `index` counts the job's steps; the random
  // numbers of a later one are those of a job with a seed larger by as many.
  JobStep(JoinedJob& job, NamedStep step, std::uint32_t index);
  ~JobStep();
  JobStep(const JobStep&) = delete;
  JobStep& operator=(const JobStep&) = delete;

  // "" where a job has one step alone.
  [[nodiscard]] const std::string& name() const { return named_.name; }
  // Before what a checkpoint has of this step: "critic/"; nothing where the job has one step alone.
  [[nodiscard]] std::string prefix() const { return name().empty() ? "" : name() + "/"; }
  [[nodiscard]] const TrainingStep& declared() const { return named_.step; }
  [[nodiscard]] bool trains() const { return named_.optimizer.has_value(); }
  [[nodiscard]] std::string optimizer() const;
  [[nodiscard]] const ir::Graph& graph() const { return *graph_; }
  [[nodiscard]] const program::Program& program() const { return *program_; }
  [[nodiscard]] const strategy::Strategy& strategy() const { return strategy_; }
  [[nodiscard]] const capture::Bindings& bindings() const { return bindings_; }

  // From a checkpoint, before start(): steps done, the state of the update rules, and what
  // compression owed.
  void resume(std::int64_t step, std::vector<NamedTensor> state, std::vector<NamedTensor> owed);
  // What a checkpoint keeps of it beside the variables, at the chief: the state of the update
  // rules, and of loss scaling. REQUIRES: started.
  std::vector<NamedTensor> state();
  // Once, before the first step. `transport` is this step's own (comm/channels.h, where there are
  // several); both outlive the step.
  void start(comm::Transport& transport, comm::Collectives* collectives);
  // All ranks have got the same values of the variables: what is written to them from here on are
  // changes, which all make. Before start().
  void note_values();
  [[nodiscard]] exec::Runner& runner() { return *runner_; }
  // Of its exchange.
  [[nodiscard]] std::uint32_t generation() const { return 1 + trials_; }
  [[nodiscard]] std::int64_t step() const;  // of the next run
  [[nodiscard]] std::uint64_t bytes_sent() const;
  [[nodiscard]] std::uint32_t replica() const;
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t batch) const;

  // What Session says of them. REQUIRES: started; between two steps, no other step of the job still
  // changes variables.
  double run(const Batch& batch);
  double run_local(const Batch& rows);
  std::map<std::string, torch::Tensor> run_and_fetch(const Batch& batch,
                                                     const std::vector<std::string>& names);
  std::vector<double> sum_over_ranks(const std::vector<double>& values);
  [[nodiscard]] const StepReport& last() const { return report_; }
  [[nodiscard]] const std::vector<torch::Tensor>& outputs() const { return outputs_; }
  ir::LossScale loss_scale();
  // How the program was made of the strategy, and where that came from.
  [[nodiscard]] const passes::Options& pass_options() const { return pass_options_; }
  [[nodiscard]] const std::string& chosen_by() const { return chosen_by_; }
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
  void choose_strategy();
  strategy::Strategy build_together(const StrategyRequest& request,
                                    const std::optional<comm::LinkFigures>& links);
  [[nodiscard]] Batch with_scale(Batch batch);
  [[nodiscard]] bool verifies() const;
  double run_rows(const Batch& rows);
  exec::StepResult run_parts(const Batch& rows);
  // Those with rows.
  [[nodiscard]] std::vector<Batch> micro_batches(const Batch& rows) const;
  void check_placed() const;
  [[nodiscard]] exec::Calls::Scope begin(exec::Call call);
  void read_notes();

  JoinedJob& job_;
  NamedStep named_;
  std::optional<ir::LossScaling> scaling_;
  TrainingStep captured_;  // named_.step as it is captured
  std::uint32_t index_;
  std::uint32_t trials_ = 0;  // each a generation of the transport, before the training's
  std::shared_ptr<const ir::Graph> graph_;
  strategy::Strategy strategy_;
  std::shared_ptr<const program::Program> program_;
  capture::Bindings bindings_;
  std::unique_ptr<ShapeCache> shapes_;
  std::shared_ptr<exec::Runner> runner_;  // a JobLoss may ask it for as long as it lives
  passes::Options pass_options_;
  std::string chosen_by_;
  program::Trace final_trace_;
  StepReport report_;
  std::shared_ptr<const exec::StepSums> sums_;  // of the last step
  std::vector<std::uint64_t> initial_values_;   // digests, by variable
  std::vector<torch::Tensor> outputs_;          // of the last step
  std::int64_t first_step_ = 0;
  std::vector<NamedTensor> initial_state_;
  std::vector<NamedTensor> initial_owed_;
  std::map<std::string, double> initial_scale_;  // the state of loss scaling, by name
  std::deque<std::int64_t> untold_;              // steps whose notes were not read yet
  StepSummary summary_;
};

}  // namespace autodist::app
