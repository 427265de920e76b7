#include "autodist/job/torch/training_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/job_ended.h"
#include "autodist/capture/bindings.h"
#include "autodist/capture/export.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/exchange.h"

namespace autodist::job {
namespace {

void check_names(const std::vector<NamedStep>& steps) {
  std::set<std::string> names;
  for (const NamedStep& step : steps) {
    if (step.name.empty() || step.name.find('/') != std::string::npos) {
      fail(ErrorCode::kUsage, "distribute: a step is named '{}'; a name without '/' expected",
           step.name);
    }
    if (!names.insert(step.name).second) {
      fail(ErrorCode::kUsage, "distribute: two steps are named '{}'. Name each differently.",
           step.name);
    }
  }
}

}  // namespace

TrainingJob::TrainingJob(std::unique_ptr<JoinedJob> job, std::vector<NamedStep> steps)
    : job_(std::move(job)),
      steps_(*job_),
      checkpoints_(*job_, steps_),
      plans_(*job_, steps_, [this](JobStep& step) { go_on_under_another_plan(step); }),
      statistics_(*job_, steps_) {
  if (job_->options().accumulate < 1) {
    fail(ErrorCode::kUsage, "JobOptions: accumulate={}, 1 or more micro-batches expected",
         job_->options().accumulate);
  }
  if (steps.size() != 1 || !steps.front().name.empty()) check_names(steps);
  if (steps.empty()) fail(ErrorCode::kUsage, "distribute: no step. Give one at least.");
  const JobOptions& options = job_->options();
  if (steps.size() > 1 && !(options.plans_file.empty() && options.write_plans.empty())) {
    fail(ErrorCode::kUsage, "plans: a history of plans is of one step, and this job has {}",
         steps.size());
  }
  if (!options.plans_file.empty() && !options.strategy_file.empty()) {
    fail(ErrorCode::kUsage, "plans: beside a strategy's file; one of {} and {} expected",
         options.plans_file, options.strategy_file);
  }
  if (options.search.any_trials && options.write_plans.empty()) {
    fail(ErrorCode::kUsage,
         "trials of any plans are chosen by the clock, so that nothing repeats them but their "
         "history; a file to write it to (write_plans) expected");
  }
  try {
    steps_.prepare(std::move(steps));
  } catch (const Error& error) {
    const std::string end = job_->end_of_lost(error.what());
    if (end.empty()) throw;
    throw Error(error.code(), error.what() + end);
  }
}

// Where an exception ends the program's loop the peers are told so. The runners go before what they
// use.
TrainingJob::~TrainingJob() {
  const bool unwinds = std::uncaught_exceptions() > exceptions_;
  const bool trains = steps_.have_started();
  try {
    if (unwinds && trains && !has_ended()) leave(comm::kThrew);
    if (trains && !left_) finish();
  } catch (const std::exception& error) {
    // Whoever wants to handle it calls finish().
    if (!unwinds && !broken_) job_->say(error.what());
  }
  steps_.clear();
}

// By the chief, and this rank has not come to it yet.
bool TrainingJob::has_ended() const {
  return !finished_ && std::any_of(steps_.all().begin(), steps_.all().end(), [](const auto& step) {
    return step->has_runner() && step->runner().calls().has_ended();
  });
}

void TrainingJob::start() {
  if (broken_) std::rethrow_exception(broken_);
  if (!steps_.have_started()) begin();
  if (!steps_.only_serve()) return;
  finish();
  throw JobEnded(fmt::format("rank {} only serves: the job has ended", job_->rank()));
}

// Before values are loaded, or got from the chief. A standby becomes the job here, and what it was
// started with is what the job remembers.
void TrainingJob::await_turn() {
  for (const auto& step : steps_.all()) step->take_new_storage();
  if (!job_->await_turn()) return;
  for (const auto& step : steps_.all()) step->remember_plan();
}

// When the first step is due: a checkpoint is loaded before, while the transport is still free for
// agreements.
void TrainingJob::begin() {
  await_turn();
  try {
    steps_.start();
  } catch (const std::exception& error) {  // of what this rank alone was to load, say
    broken_ = std::current_exception();
    try {
      leave(error.what());
    } catch (const std::exception&) {  // what went wrong before is what counts
    }
    throw;
  }
  plans_.begin();
}

void TrainingJob::go_on_under_another_plan(JobStep& step) {
  if (wished_for_the_end_) step.runner().calls().wish_for_the_end();
  checkpoints_.forget_gathered();
}

// At every call of the session that other ranks make, too.
void TrainingJob::start_and_save_what_is_due() {
  start();
  checkpoints_.save_what_is_due();
}

JobStep& TrainingJob::turn(std::size_t index) {
  start_and_save_what_is_due();
  return steps_.take_turn(index);
}

JobStep& TrainingJob::turn_to_step(std::size_t index) {
  JobStep& step = turn(index);
  plans_.meet_where_due();
  checkpoints_.release();
  if (job_->memory() != nullptr) job_->memory()->note_steps(job_->number(), steps_done());
  return step;
}

void TrainingJob::make_newest() {
  start_and_save_what_is_due();
  steps_.runner().synchronize();
}

void TrainingJob::synchronize() {
  make_newest();
  for (const auto& step : steps_.all()) step->runner().open_to_changes();
}

// Before the first step there is nothing to wait for, and what is written is found when it begins.
void TrainingJob::settle(const torch::Tensor& parameter) {
  if (!steps_.have_started() || finished_ || broken_) return;
  for (const auto& step : steps_.all()) {
    const std::vector<torch::Tensor>& model = step->bindings().of_model;
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (model[i].unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl()) {
        step->runner().settle(ir::VariableId(i));
      }
    }
  }
}

void TrainingJob::export_torchscript(std::size_t index, const std::string& path) {
  start();
  exec::Runner& runner = steps_.runner();
  const auto call = runner.meets_to_synchronize() ? begin_call(runner, exec::Call::kExport)
                                                  : enter_call(runner, exec::Call::kExport);
  make_newest();
  std::string failure;  // its code, and its words
  try {
    if (job_->is_chief()) capture::export_torchscript(steps_.at(index).declared(), path);
  } catch (const Error& error) {
    failure = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {  // of the model's own code
    steps_.outcome("export",
                   fmt::format("{} {}", static_cast<int>(ErrorCode::kUsage), error.what()));
    throw;
  }
  failure = steps_.outcome("export", failure);
  if (failure.empty()) return;
  throw Error(static_cast<ErrorCode>(std::stoi(failure)), failure.substr(failure.find(' ') + 1));
}

void TrainingJob::prepare_evaluation(Statistics statistics) {
  start_and_save_what_is_due();
  statistics_.prepare(statistics);
}

void TrainingJob::begin_evaluation(Statistics statistics) {
  start_and_save_what_is_due();
  statistics_.begin(statistics);
}

std::vector<torch::Tensor> TrainingJob::evaluate(std::size_t index, const Batch& batch,
                                                 Statistics statistics) {
  const TrainingStep& step = steps_.at(index).declared();
  if (!step.evaluate) {
    fail(ErrorCode::kUsage,
         "evaluate: the step '{}' has no evaluation function. Give it one where it is distributed.",
         step.name);
  }
  begin_evaluation(statistics);
  struct End {
    TrainingJob& job;
    ~End() { job.end_evaluation(); }
  } const end{*this};
  Batch there;
  const torch::Device device = capture::device_of(step);
  for (const torch::Tensor& each : batch) there.push_back(each.to(device));
  std::vector<torch::Tensor> outputs = evaluated_by(step, there);
  const bool came_from_host = !batch.empty() && batch.front().is_cpu();
  for (torch::Tensor& each : outputs) {
    if (came_from_host) each = each.cpu();
  }
  return outputs;
}

PlanChange TrainingJob::change_plan(std::size_t index, planning::StrategyRequest request,
                                    const std::optional<strategy::Strategy>& given) {
  turn(index);
  return plans_.change(index, std::move(request), given);
}

void TrainingJob::save(const std::string& directory, SaveUntil until) {
  start_and_save_what_is_due();
  checkpoints_.save(directory, until);
}

void TrainingJob::snapshot() {
  if (finished_ || !checkpoints_.snapshot_is_due()) return;
  start_and_save_what_is_due();
  checkpoints_.snapshot();
}

void TrainingJob::load(const std::string& directory) {
  await_turn();
  checkpoints_.load(directory);
}

void TrainingJob::resume(const std::string& directory) {
  await_turn();
  checkpoints_.resume(directory);
}

// In the exchanges of all steps: the chief may be in another one than this rank.
void TrainingJob::wish_for_the_end() {
  wished_for_the_end_ = true;
  for (const auto& step : steps_.all()) {
    if (!finished_ && step->has_runner()) step->runner().calls().wish_for_the_end();
  }
}

std::optional<std::uint32_t> TrainingJob::who_wishes_for_the_end() const {
  for (const auto& step : steps_.all()) {
    if (finished_ || !step->has_runner()) continue;
    if (const auto rank = step->runner().calls().who_wishes_for_the_end()) return rank;
  }
  return std::nullopt;
}

// Those that have begun to train are in an exchange; one that has not may still be waited for.
void TrainingJob::leave(const std::string& reason) {
  constexpr Seconds kUntilItIsSent{1};
  if (finished_ || left_ || has_ended()) return;
  left_ = true;
  if (reason.empty()) return;
  for (const auto& step : steps_.all()) {
    if (step->has_runner()) {
      step->runner().leave(reason);
    } else if (steps_.have_started() || step == steps_.all().front()) {
      comm::leave(job_->transport(), step->generation(), reason);
    }
  }
  job_->transport().close(kUntilItIsSent);
  checkpoints_.finish_writing();
}

void TrainingJob::finish() {
  if (finished_) return;
  if (broken_) std::rethrow_exception(broken_);
  if (!steps_.have_started()) begin();
  if (steps_.only_serve()) return serve();
  for (const auto& step : steps_.all()) step->runner().come_to_finish();
  bool in_order = true;
  for (const auto& step : steps_.all()) in_order = step->runner().all_finish() && in_order;
  // A signal has ended it, and it is not through.
  const bool is_chief = job_->is_chief();
  const bool was_stopped = is_chief && who_wishes_for_the_end().has_value();
  Checkpoints::Missing missing;
  {
    const auto call = enter_call(steps_.runner(), exec::Call::kFinish);
    missing = checkpoints_.save_at_the_end(in_order);
    if (in_order && job_->options().trace_at_end) {
      for (const auto& step : steps_.all()) {
        step->runner().synchronize();
        step->run().gather_trace();
      }
    }
  }
  for (const auto& step : steps_.all()) step->runner().finish();
  finished_ = true;
  // All ranks have said goodbye, and so are through with their collectives; but a step that the
  // chief did not take part in may still wait in one until the chief closes its own.
  if (in_order || is_chief) steps_.close_library();
  checkpoints_.release();
  job_->end();
  const bool lacks_one = is_chief && !missing.failure.empty();
  if (in_order && !was_stopped && !lacks_one) checkpoints_.forget_snapshots();
  checkpoints_.close();
  if (lacks_one) {
    fail(ErrorCode::kCheckpoint, "no checkpoint of step {}: {}", missing.step, missing.failure);
  }
}

// Each step until the others are through with it: they end them one after the other.
void TrainingJob::serve() {
  for (const auto& step : steps_.all()) {
    step->runner().serve([this] { job_->look_around(); });
    step->runner().finish();
  }
  finished_ = true;
  steps_.close_library();
  job_->end();
}

}  // namespace autodist::job
