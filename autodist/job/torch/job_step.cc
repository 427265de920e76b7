#include "autodist/job/torch/job_step.h"

#include "autodist/base/error.h"
#include "autodist/exec/tensor_watch.h"

namespace autodist::job {

JobStep::JobStep(JoinedJob& job, NamedStep step, std::uint32_t index)
    : job_(job),
      captured_(capture_step(job, std::move(step), index)),
      plan_(plan_step(job, captured_)) {
  start_.generation = 1 + plan_.trials;
}

std::string JobStep::optimizer() const {
  return trains() ? ir::to_string(*captured_.named.optimizer) : "none";
}

void JobStep::resume(std::int64_t step, std::vector<NamedTensor> state,
                     std::vector<NamedTensor> owed) {
  start_.step = step;
  start_.state = state_of(std::move(state), std::move(owed));
}

void JobStep::note_values() {
  start_.values.clear();
  for (const torch::Tensor& tensor : bindings().variables) {
    start_.values.push_back(exec::digest_of_values(tensor));
  }
}

void JobStep::start(const exec::RunnerConnections& connections) {
  RunStart start = std::move(start_);
  start_ = {start.step, {}, {}, start.generation};
  run_ = std::make_unique<StepRun>(job_, captured_, plan_, std::move(start), connections);
}

StepPlan JobStep::plan_with(strategy::Strategy strategy, std::string name) const {
  StepPlan plan;
  plan.name = std::move(name);
  plan.passes = plan_.passes;
  plan.links = plan_.links;
  plan.library = plan_.library;
  plan.chosen_by = "the plan that was changed to";
  plan.program = std::make_shared<const program::Program>(
      passes::rewrite(captured_.graph, strategy, job_.cluster(), plan.passes, plan.chosen_by));
  plan.strategy = std::move(strategy);
  return plan;
}

void JobStep::change_plan(StepPlan next, const program::Transition& transition,
                          const std::function<exec::RunnerConnections()>& connections) {
  RunStart start = run_->end_plan(transition);
  plan_ = std::move(next);
  start_.generation = start.generation;
  run_->begin_plan(std::move(start), connections);
}

void JobStep::remember_plan() { keep_plan(job_, captured_, plan_.strategy); }

std::int64_t JobStep::step() const { return run_ ? run_->step() : start_.step; }

std::uint32_t JobStep::replica() const { return replica_of(program(), program::Rank(job_.rank())); }

std::pair<std::int64_t, std::int64_t> JobStep::rows_of(std::int64_t batch) const {
  if (!program().computes(program::Rank(job_.rank()))) return {0, 0};
  return part_rows(captured_, program(), batch, replica());
}

const StepReport& JobStep::last() const {
  static const StepReport kNone;
  return run_ ? run_->last() : kNone;
}

const std::vector<torch::Tensor>& JobStep::outputs() const {
  static const std::vector<torch::Tensor> kNone;
  return run_ ? run_->outputs() : kNone;
}

const program::Trace& JobStep::final_trace() const {
  static const program::Trace kNone;
  return run_ ? run_->final_trace() : kNone;
}

JobLoss JobStep::job_number(std::size_t number) const {
  if (!run_) fail(ErrorCode::kUsage, kNoStepYet);
  return run_->job_number(number);
}

}  // namespace autodist::job
