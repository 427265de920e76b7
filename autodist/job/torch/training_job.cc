#include "autodist/job/torch/training_job.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/job_ended.h"
#include "autodist/base/text.h"
#include "autodist/capture/export.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/make_collectives.h"
#include "autodist/exec/start.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/job/torch/counted_trials.h"
#include "autodist/job/torch/plan_replay.h"
#include "autodist/job/torch/session_state.h"
#include "autodist/program/loads.h"

namespace autodist::job {
namespace {

std::size_t next_number() {
  static std::atomic<std::size_t> jobs{0};
  return jobs++;
}

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

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl() ||
         (a.numel() > 0 && a.data_ptr() == b.data_ptr() && a.sizes() == b.sizes());
}

// Adds what is not there yet; a name means one tensor in all steps.
void unite(const std::vector<NamedTensor>& more, const std::string& step,
           std::vector<NamedTensor>& all) {
  for (const NamedTensor& each : more) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const NamedTensor& other) { return other.name == each.name; });
    if (found == all.end()) {
      all.push_back(each);
    } else if (!is_same(found->tensor, each.tensor)) {
      fail(
          ErrorCode::kUsage,
          "distribute: step '{}' has another '{}' than a step before it. Give the steps one model, "
          "or tensors names that say whose they are.",
          step, each.name);
    }
  }
}

// What belongs to a step, without its prefix.
std::vector<NamedTensor> with_prefix(const std::vector<NamedTensor>& tensors,
                                     const std::string& prefix) {
  std::vector<NamedTensor> own;
  for (const NamedTensor& each : tensors) {
    if (each.name.rfind(prefix, 0) != 0) continue;
    own.push_back({each.name.substr(prefix.size()), each.tensor});
  }
  return own;
}

// A step that trains a variable of several takes its values from this rank's tensors, which must
// hold all of them before any rank contributes.
void check_shareable(const std::string& step, const program::Program& program, ir::VariableId id) {
  const std::string& variable = program.graph->variable(id).name;
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::kInfeasible, "step '{}': '{}' is trained by other steps, too, and {}", step,
         variable, why);
  };
  const program::Exchange exchange = program.exchange(id);
  if (!lag_of(exchange)) refuse("is asynchronous here; use sync=true");
  if (!keeps_whole_copies(exchange)) {
    refuse("is asked for before each step here; use local_proxy_variable=true or results=pushed");
  }
  for (const program::SliceId slice : program.plan(id).slices) {
    if (!program.computes(program.slice(slice).owner)) {
      refuse("lies at a node that only serves; use one that computes");
    }
  }
}

}  // namespace

TrainingJob::TrainingJob(std::unique_ptr<JoinedJob> job, std::vector<NamedStep> steps)
    : job_(std::move(job)), number_(next_number()) {
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
    prepare(std::move(steps));
  } catch (const Error& error) {
    const std::string end = job_->end_of_lost(error.what());
    if (end.empty()) throw;
    throw Error(error.code(), error.what() + end);
  }
}

void TrainingJob::prepare(std::vector<NamedStep> steps) {
  for (NamedStep& step : steps) {
    const auto index = static_cast<std::uint32_t>(steps_.size());
    steps_.push_back(std::make_unique<JobStep>(*job_, std::move(step), index));
  }
  unite_models();
  find_shared();
  if (is_chief() && !job_->options().initial_weights.empty()) {
    put_weights(job_->options().initial_weights, model_, warn());
  }
  exec::broadcast_initial(job_->transport(), initial_tensors(), job_->options().join_limit);
  note_values();
  connect_library();
}

// Where a plan all-reduces by it, once. By all ranks at the same point.
void TrainingJob::connect_library() {
  const bool is_used = std::any_of(steps_.begin(), steps_.end(), [](const auto& step) {
    return !step->program().collectives.empty();
  });
  if (!is_used || collectives_) return;
  collectives_ = comm::make_collectives(job_->transport(), job_->own_address(),
                                        capture::device_of(steps_.front()->declared()).str(),
                                        job_->options().join_limit);
}

// Without finish() the runners' destructors tell the peers that this rank leaves early, unless the
// chief has ended the job; they go before what they use.
TrainingJob::~TrainingJob() {
  try {
    if (has_ended()) finish();
  } catch (const std::exception&) {
    // Whoever wanted to know has called finish().
  }
  steps_.clear();
}

// By the chief, and this rank has not come to it yet.
bool TrainingJob::has_ended() const {
  return started_ && !finished_ && std::any_of(steps_.begin(), steps_.end(), [](const auto& step) {
           return step->has_runner() && step->runner().calls().has_ended();
         });
}

void TrainingJob::unite_models() {
  for (const auto& step : steps_) {
    unite(step->declared().parameters, step->name(), model_.parameters);
    unite(step->declared().buffers, step->name(), model_.buffers);
  }
}

void TrainingJob::find_shared() {
  const auto trains = [](const JobStep& step, const torch::Tensor& tensor) {
    for (std::size_t i = 0; i < step.graph().variables.size(); ++i) {
      const bool is_trained = step.graph().variables[i].gradient.has_value();
      if (is_trained && is_same(step.bindings().variables[i], tensor)) return true;
    }
    return false;
  };
  for (const auto& step : steps_) {
    std::vector<ir::VariableId>& shared = shared_.emplace_back();
    for (std::size_t i = 0; i < step->graph().variables.size(); ++i) {
      if (!step->graph().variables[i].gradient) continue;
      const torch::Tensor& own = step->bindings().variables[i];
      const bool too = std::any_of(steps_.begin(), steps_.end(), [&](const auto& other) {
        return other != step && trains(*other, own);
      });
      if (!too) continue;
      check_shareable(step->name(), step->program(), ir::VariableId(i));
      shared.emplace_back(i);
    }
  }
}

void TrainingJob::check_shared(std::size_t index, const program::Program& program) const {
  for (const ir::VariableId each : shared_[index]) {
    check_shareable(steps_[index]->name(), program, each);
  }
}

// Those of all steps, each once.
std::vector<NamedTensor> TrainingJob::initial_tensors() const {
  std::vector<NamedTensor> all;
  for (const auto& step : steps_) {
    for (const NamedTensor& each : exec::initial_tensors(step->graph(), step->bindings())) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const NamedTensor& other) {
        return is_same(other.tensor, each.tensor);
      });
      if (!known) all.push_back(each);
    }
  }
  return all;
}

bool TrainingJob::only_serves() const {
  return std::none_of(steps_.begin(), steps_.end(), [this](const auto& step) {
    return step->program().computes(program::Rank(job_->rank()));
  });
}

void TrainingJob::start() {
  if (broken_) std::rethrow_exception(broken_);
  if (!started_) begin();
  if (!only_serves()) return;
  finish();
  throw JobEnded(fmt::format("rank {} only serves: the job has ended", job_->rank()));
}

// A standby becomes the job here, and what it was started with is what the job remembers.
void TrainingJob::await_turn() {
  if (!job_->await_turn()) return;
  for (const auto& step : steps_) step->remember_plan();
}

// When the first step is due: a checkpoint is loaded before, while the transport is still free for
// agreements. All at once, for the peers' exchanges expect a sign of life.
void TrainingJob::begin() {
  await_turn();
  started_ = true;
  comm::Transport& transport = job_->transport();
  const auto count = static_cast<std::uint16_t>(steps_.size());
  if (count > 1) channels_ = std::make_unique<comm::Channels>(transport, count);
  try {
    for (std::uint16_t i = 0; i < count; ++i) steps_[i]->start(connections_of(i));
  } catch (const std::exception& error) {  // of what this rank alone was to load, say
    broken_ = std::current_exception();
    try {
      leave(error.what());
    } catch (const std::exception&) {  // what went wrong before is what counts
    }
    throw;
  }
  const std::string& plans = job_->options().plans_file;
  if (!plans.empty()) {
    sequence_ = std::make_unique<PlanReplay>(
        is_chief() ? history_of(*job_, plans) : strategy::StrategyHistory{}, steps_done());
  } else if (auto rivals = steps_.front()->take_rivals();
             rivals && all_compute(steps_.front()->program())) {
    sequence_ = std::make_unique<CountedTrials>(*job_, std::move(*rivals), steps_done());
    if (job_->memory() != nullptr) job_->memory()->note_trials(true);
  }
  keep_history();
}

RunConnections TrainingJob::connections_of(std::size_t index) {
  comm::Transport& own =
      channels_ ? channels_->at(static_cast<std::uint16_t>(index)) : job_->transport();
  return {&own, collectives_.get()};
}

JobStep& TrainingJob::turn(std::size_t index) {
  start();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (i != index) steps_[i]->runner().forget_changes(shared_[i]);
  }
  save_what_is_due();
  if (current_ == index) return *steps_[index];
  if (current_) {
    steps_[*current_]->runner().synchronize();
    if (!shared_[index].empty()) steps_[index]->runner().reload(shared_[index]);
    steps_[*current_]->runner().calls().set_away(true);
    steps_[index]->runner().calls().set_away(false);
  }
  current_ = index;
  return *steps_[index];
}

JobStep& TrainingJob::turn_to_step(std::size_t index) {
  JobStep& step = turn(index);
  if (sequence_ && sequence_->is_due(steps_done())) meet_for_plan();
  gathered_.reset();  // its memory is the step's
  if (job_->memory() != nullptr) job_->memory()->note_steps(number_, steps_done());
  return step;
}

void TrainingJob::make_newest() {
  start();
  save_what_is_due();
  current().synchronize();
}

void TrainingJob::note_values() {
  for (const auto& step : steps_) step->note_values();
}

void TrainingJob::synchronize() {
  make_newest();
  for (const auto& step : steps_) step->runner().open_to_changes();
}

// Before the first step there is nothing to wait for, and what is written is found when it begins.
void TrainingJob::settle(const torch::Tensor& parameter) {
  if (!started_ || finished_ || broken_) return;
  for (const auto& step : steps_) {
    const std::vector<torch::Tensor>& model = step->bindings().of_model;
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (model[i].unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl()) {
        step->runner().settle(ir::VariableId(i));
      }
    }
  }
}

std::int64_t TrainingJob::steps_done() const {
  std::int64_t done = 0;
  for (const auto& step : steps_) done += step->step();
  return done;
}

void TrainingJob::export_torchscript(std::size_t index, const std::string& path) {
  start();
  const auto call = current().meets_to_synchronize() ? begin_call(current(), exec::Call::kExport)
                                                     : enter_call(current(), exec::Call::kExport);
  make_newest();
  std::string failure;  // its code, and its words
  try {
    if (is_chief()) capture::export_torchscript(steps_[index]->declared(), path);
  } catch (const Error& error) {
    failure = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {  // of the model's own code
    outcome("export", fmt::format("{} {}", static_cast<int>(ErrorCode::kUsage), error.what()));
    throw;
  }
  failure = outcome("export", failure);
  if (failure.empty()) return;
  throw Error(static_cast<ErrorCode>(std::stoi(failure)), failure.substr(failure.find(' ') + 1));
}

std::vector<const JobStep*> TrainingJob::all_steps() const {
  std::vector<const JobStep*> steps;
  for (const auto& step : steps_) steps.push_back(step.get());
  return steps;
}

void TrainingJob::load(const std::string& directory) {
  await_turn();
  load_state(directory, [&] {
    exec::RealFileSystem files;
    return load_at_chief(files, directory, model_, all_steps(), warn());
  });
}

// Asynchronous variables have no step between which ranks could meet without waiting for each
// other.
bool TrainingJob::has_steps_in_common() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const auto& step) { return step->program().lag().has_value(); });
}

// Snapshots are for who comes back here and goes on from them.
void TrainingJob::resume(const std::string& directory) {
  await_turn();
  const std::string& newer = job_->checkpoint();  // than when a standby was started
  const std::string& from = newer.empty() ? directory : newer;
  if (!snapshots_) {
    JobMemory* const memory = job_->options().snapshots ? job_->memory() : nullptr;
    snapshots_ = std::make_unique<Snapshots>(memory, number_, model_, job_->clock(), warn());
  }
  if (is_chief()) snapshots_->resumes_from(from);
  load_state(from, [&]() -> std::optional<LoadedState> {
    exec::RealFileSystem files;
    const bool has_saved = !from.empty() && exec::has_checkpoint(files, from);
    const auto saved = has_saved ? exec::newest_checkpoint(files, from) : std::nullopt;
    if (auto state = snapshots_->newer_than(saved.value_or(-1), model_, all_steps())) return state;
    if (!has_saved && !newer.empty()) {
      fail(ErrorCode::kCheckpoint,
           "{}: the checkpoint from which a standby goes on is gone. Resume from another one.",
           newer);
    }
    if (!has_saved) return std::nullopt;
    try {
      return load_at_chief(files, from, model_, all_steps(), warn());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCheckpoint) throw;
      auto state = snapshots_->newer_than(-1, model_, all_steps());
      if (!state) throw;
      job_->say(fmt::format("{}: what is in memory takes its place", without_dot(error.what())));
      return state;
    }
  });
  snapshots_->follow(job_->chief_says("snapshots", snapshots_->are_taken()));
}

void TrainingJob::load_state(const std::string& directory,
                             const std::function<std::optional<LoadedState>()>& at_chief) {
  if (started_) {
    fail(ErrorCode::kUsage, "load{}{}: the training is under way; load before the first step",
         directory.empty() ? "" : ": ", directory);
  }
  comm::Transport& transport = job_->transport();
  const Seconds limit = job_->options().join_limit;
  comm::meet(transport, "load()", steps_.front()->generation(), limit);
  // One reader: every rank starts from the same checkpoint, also when a newer one appears
  // meanwhile.
  LoadedState state;
  if (is_chief()) state = at_chief().value_or(LoadedState{});
  state.optimizer = job_->of_chief("checkpoint", state.optimizer);
  if (state.optimizer.empty()) return;
  const exec::Safetensors optimizer = exec::read_safetensors(state.optimizer, directory);
  const std::string& from = optimizer.metadata.at("from");
  exec::broadcast_initial(transport, initial_tensors(), limit);
  // The stages of a replica have one set of buffers, which its first rank saved.
  const program::Program& program = steps_.front()->program();
  const program::Rank self(job_->rank());
  const bool has_stage = program.is_placed() && program.computes(self);
  const program::Rank saved = has_stage ? program.stage_mate(self, 0) : self;
  const std::vector<NamedTensor> owed =
      put_replica(job_->of_chief("replicas", state.replicas), saved.value, model_, from);
  std::vector<NamedTensor> states;
  for (const exec::TensorData& each : optimizer.tensors) states.push_back(exec::to_tensor(each));
  for (const auto& step : steps_) {
    const std::string prefix = step->prefix();
    step->resume(std::stoll(optimizer.metadata.at("step" + step->name())),
                 with_prefix(states, prefix), with_prefix(owed, prefix));
  }
  if (from != Snapshots::kFrom) newest_.emplace(from, steps_done());
  note_values();
  state.kept = job_->of_chief("kept", state.kept);
  unclaimed_.clear();
  for (exec::TensorData& each : exec::read_safetensors(state.kept, from).tensors) {
    const auto keeper = kept_.find(each.name);
    if (keeper != kept_.end()) {
      keeper->second.restore(std::string(each.bytes));
    } else {
      unclaimed_[each.name] = std::string(each.bytes);
    }
  }
}

// In the exchanges of all steps: the chief may be in another one than this rank.
void TrainingJob::wish_for_the_end() {
  wished_for_the_end_ = true;
  for (const auto& step : steps_) {
    if (started_ && !finished_ && step->has_runner()) {
      step->runner().calls().wish_for_the_end();
    }
  }
}

std::optional<std::uint32_t> TrainingJob::who_wishes_for_the_end() const {
  for (const auto& step : steps_) {
    if (!started_ || finished_) break;
    if (!step->has_runner()) continue;
    if (const auto rank = step->runner().calls().who_wishes_for_the_end()) return rank;
  }
  return std::nullopt;
}

// Those that have begun to train are in an exchange; one that has not may still be waited for.
void TrainingJob::leave(const std::string& reason) {
  constexpr Seconds kUntilItIsSent{1};
  if (finished_ || left_ || has_ended()) return;
  left_ = true;
  for (const auto& step : steps_) {
    if (started_ && step->has_runner()) {
      step->runner().leave(reason);
    } else if (started_ || step == steps_.front()) {
      comm::leave(job_->transport(), step->generation(), reason);
    }
  }
  job_->transport().close(kUntilItIsSent);
  finish_writing();
}

void TrainingJob::finish() {
  if (finished_) return;
  if (broken_) std::rethrow_exception(broken_);
  if (!started_) begin();
  if (only_serves()) return serve();
  for (const auto& step : steps_) step->runner().come_to_finish();
  bool in_order = true;
  for (const auto& step : steps_) in_order = step->runner().all_finish() && in_order;
  // A signal has ended it, and it is not through.
  const bool was_stopped = is_chief() && who_wishes_for_the_end().has_value();
  std::string failure;
  std::int64_t missing = steps_done();
  {
    const auto call = enter_call(current(), exec::Call::kFinish);
    failure = save_at_the_end(in_order);
    finish_writing();
    // One that could not be written while the job went on is tried again; where the optimizers'
    // state has not come, that of now, if the chief needs nobody else's code for it.
    if (writing_ && failure.empty() && !writing_->state->has_come() && owners_hold_everything()) {
      const std::vector<std::string> directories = writing_->directories;
      writing_.reset();
      gathered_at_.reset();
      failure = save_into(directories, /*with_the_others=*/false);
    } else if (writing_ && failure.empty()) {
      missing = writing_->state->checkpoint.step;
      failure = write(*writing_->state, writing_->directories).text;
    }
    if (in_order && job_->options().trace_at_end) {
      for (const auto& step : steps_) {
        step->runner().synchronize();
        step->run().gather_trace();
      }
    }
  }
  for (const auto& step : steps_) step->runner().finish();
  finished_ = true;
  gathered_.reset();
  // All ranks have said goodbye, and so are through with their collectives; but a step that the
  // chief did not take part in may still wait in one until the chief closes its own.
  if (in_order || is_chief()) collectives_.reset();
  held_.clear();
  job_->end();
  if (is_chief() && !failure.empty()) {
    fail(ErrorCode::kCheckpoint, "no checkpoint of step {}: {}", missing, failure);
  }
  if (snapshots_ && in_order && !was_stopped) snapshots_->forget();
}

// Each step until the others are through with it: they end them one after the other.
void TrainingJob::serve() {
  for (const auto& step : steps_) {
    step->runner().serve([this] { job_->look_around(); });
    step->runner().finish();
  }
  finished_ = true;
  collectives_.reset();
  job_->end();
}

}  // namespace autodist::job
