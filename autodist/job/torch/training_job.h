// A job at this rank, from its first step to its last: what each call of a session does, and in
// which order, which is the same at all ranks. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/job/torch/checkpoints.h"
#include "autodist/job/torch/evaluation.h"
#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/plan_change.h"

namespace autodist::job {

class TrainingJob {
 public:
  // Captures and plans all steps and agrees on them; every rank starts from the chief's values.
  // Throws Error(kUsage) for names of steps that are empty, doubled or hold a slash, and for
  // tensors whose names do not agree; Error(kInfeasible) where several steps train a variable in a
  // way that does not let them.
  TrainingJob(std::unique_ptr<JoinedJob> job, std::vector<NamedStep> steps);
  ~TrainingJob();
  TrainingJob(const TrainingJob&) = delete;
  TrainingJob& operator=(const TrainingJob&) = delete;

  [[nodiscard]] const JoinedJob& joined() const { return *job_; }
  [[nodiscard]] JobStep& step(std::size_t index) { return steps_.at(index); }
  // The step, which may run from here on. By all ranks in the same order.
  JobStep& turn(std::size_t index);
  JobStep& turn_to_step(std::size_t index);  // which runs at once

  // What Session says of them.
  void synchronize();  // of all variables, which may be written to then
  void settle(const torch::Tensor& parameter);
  std::vector<torch::Tensor> evaluate(std::size_t index, const Batch& batch, Statistics statistics);
  void prepare_evaluation(Statistics statistics);
  void begin_evaluation(Statistics statistics);
  void end_evaluation() { statistics_.end(); }
  void keep(const std::string& name, Kept what) { checkpoints_.keep(name, std::move(what)); }
  void save(const std::string& directory, SaveUntil until);
  void export_torchscript(std::size_t index, const std::string& path);
  void snapshot();
  void load(const std::string& directory);
  void resume(const std::string& directory);
  PlanChange change_plan(std::size_t index, planning::StrategyRequest request,
                         const std::optional<strategy::Strategy>& given);
  void finish();
  void leave(const std::string& reason);
  void wish_for_the_end();
  [[nodiscard]] std::optional<std::uint32_t> who_wishes_for_the_end() const;

  // Of all steps together.
  [[nodiscard]] std::int64_t steps_done() const { return steps_.done(); }
  // Checkpoints::where_to_go_on().
  [[nodiscard]] std::string where_to_go_on() const { return checkpoints_.where_to_go_on(); }

 private:
  // Throws JobEnded at a rank that only serves, when the job is over.
  void start();
  void start_and_save_what_is_due();
  void await_turn();
  void begin();
  // Of a rank that only serves.
  void serve();
  void make_newest();
  [[nodiscard]] bool has_ended() const;
  void go_on_under_another_plan(JobStep& step);

  std::unique_ptr<JoinedJob> job_;
  JobSteps steps_;
  Checkpoints checkpoints_;
  PlanChanges plans_;
  EvaluatedStatistics statistics_;
  bool finished_ = false;
  bool left_ = false;                            // and told the others why
  int exceptions_ = std::uncaught_exceptions();  // more of them in the end: one ends the loop
  std::exception_ptr broken_;                    // why its steps could not start
  bool wished_for_the_end_ = false;              // by this rank
};

}  // namespace autodist::job
