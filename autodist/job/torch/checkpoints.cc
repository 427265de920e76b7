#include "autodist/job/torch/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/comm/agreement.h"
#include "autodist/exec/start.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/job/control_group.h"

namespace autodist::job {
namespace {

template <class Work>
SaveFailure failure_of(Work work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return {"no memory for it"};
  } catch (const Error& error) {
    return {error.what(), error.code() == ErrorCode::kPeersLost};
  } catch (const std::exception& error) {
    return {error.what()};
  }
  return {};
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

// Of the states of a step's rules those that none of its rules takes, but for loss scaling's.
std::vector<std::string> left_out(const std::vector<NamedTensor>& states, const ir::Graph& graph,
                                  const exec::UserRules* user_rules) {
  std::set<std::string> taken;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    if (!graph.variable(id).gradient) continue;
    for (const std::string& array : exec::arrays_of(program::State::kRule, id, graph, user_rules)) {
      taken.insert(exec::name_of_state(graph.variable(id), array));
    }
  }
  std::vector<std::string> names;
  for (const NamedTensor& each : states) {
    const bool is_rules = each.name.rfind("loss_scaling.", 0) != 0;
    if (is_rules && taken.count(each.name) == 0) names.push_back(each.name);
  }
  return names;
}

// Asynchronous variables have no step between which ranks could meet without waiting for each
// other.
bool have_steps_in_common(const JobSteps& steps) {
  return std::all_of(steps.all().begin(), steps.all().end(),
                     [](const auto& step) { return step->program().lag().has_value(); });
}

}  // namespace

void Checkpoints::save(const std::string& directory, SaveUntil until) {
  const bool there = std::find(saved_in_.begin(), saved_in_.end(), directory) != saved_in_.end();
  if (is_saved() && there && said_due_) return;
  const auto call = enter_call(steps_.runner(), exec::Call::kSave);
  if (!state_.is_gathered() && !comes_to_save(directory)) return;
  const std::string failure = save_into({directory}, !state_.owners_hold_everything(), until);
  if (!failure.empty()) throw Error(ErrorCode::kCheckpoint, failure);
}

// Whether this rank saves now; else the chief alone wants to, and needs the others.
bool Checkpoints::comes_to_save(const std::string& directory) {
  exec::Calls& calls = steps_.runner().calls();
  const std::uint64_t step = steps_.runner().steps_done();
  if (!job_.is_chief()) {
    calls.come_to_save(step);
    return true;
  }
  if (state_.owners_hold_everything()) {
    calls.save_alone(step);
    return true;
  }
  // Nobody passes step + staleness before the chief contributes again.
  const JobStep& only = steps_.front();
  const bool by_steps = steps_.size() == 1 && only.trains() && only.program().lag();
  const std::uint64_t due = by_steps ? step + 2 + *only.program().lag() : exec::kAtTheEnd;
  if (calls.meet_to_save(step, {due, directory})) return true;
  if (!said_due_) {
    job_.say(fmt::format(
        "rank 0 alone called save() at step {}. The checkpoint needs all ranks, "
        "which write it {}.",
        step,
        by_steps ? fmt::format("after step {}, and name it by that", due) : "when the job ends"));
  }
  said_due_ = true;
  return false;
}

void Checkpoints::save_what_is_due() {
  if (steps_.size() > 1) return;  // then at the end
  std::vector<std::string> directories;
  for (exec::DueSave& due : steps_.runner().calls().take_due(steps_.runner().steps_done())) {
    directories.push_back(std::move(due.directory));
  }
  if (directories.empty()) return;
  said_due_ = true;
  const auto call = enter_call(steps_.runner(), exec::Call::kSave);
  const std::string failure = save_into(directories, /*with_the_others=*/true);
  if (failure.empty()) return;
  late_ = directories;
  if (!job_.is_chief()) return;
  job_.say(fmt::format("no checkpoint of step {}: {}; the job goes on, and tries again at its end",
                       steps_.done(), without_dot(failure)));
}

// Returns why the chief could not write it, at all ranks that come here; else nothing.
std::string Checkpoints::save_into(const std::vector<std::string>& directories,
                                   bool with_the_others, SaveUntil until) {
  finish_writing();  // one at a time: each takes the memory of the model and its state
  if (snapshots_) snapshots_->finish_writing();
  gather(with_the_others);
  const bool beside = until == SaveUntil::kCopied;
  SaveFailure own;
  if (job_.is_chief()) {
    std::shared_ptr<StateCopy> copy;
    own = failure_of([&] {  // where there is no thread for it, too
      copy = state_.copy();
      for (const std::string& directory : directories) hold(directory);
      if (beside) write_beside(copy, directories);
    });
    if (own.text.empty() && !beside) own = write(*copy, directories);
  }
  const std::string failure = steps_.outcome("save", own.text);
  if (!failure.empty()) return failure;
  saved_in_.insert(saved_in_.end(), directories.begin(), directories.end());
  if (!beside) {
    newest_.emplace(directories.front(), steps_.done());
    writing_.reset();
  } else if (!job_.is_chief()) {
    newest_.reset();  // the chief alone knows when it is written, and which are removed then
  }
  late_.clear();
  return "";
}

void Checkpoints::gather(bool with_the_others) {
  if (state_.gather(with_the_others)) saved_in_.clear();
}

void Checkpoints::forget_gathered() {
  state_.forget();
  saved_in_.clear();
}

bool Checkpoints::snapshot_is_due() {
  if (!snapshots_ || !have_steps_in_common(steps_)) return false;
  return snapshots_->is_due(steps_.done());
}

void Checkpoints::snapshot() {
  const Seconds begin = job_.clock().now();
  exec::Runner& runner = steps_.runner();
  const auto call = begin_call(runner, exec::Call::kSnapshot);
  const auto of_chief = [&](std::int64_t said) {
    constexpr std::uint32_t kIds = 1024;  // more than are on their way at a time
    const std::uint32_t id = snapshot_words_++ % kIds;
    return std::stoll(runner.of_chief({exec::Topic::kSnapshot, id}, std::to_string(said)));
  };
  constexpr std::int64_t kNow = -1;
  std::int64_t due = kNow;
  if (job_.is_chief()) {
    const bool is_saving = writing_ && writing_->failure.wait_for(std::chrono::seconds(0)) !=
                                           std::future_status::ready;
    due = snapshots_->put_off(steps_.done(), is_saving, state_.bytes()).value_or(kNow);
  }
  due = of_chief(due);
  if (due == kNow) {
    gather(!state_.owners_hold_everything());
    if (job_.is_chief()) due = write_snapshot(begin);
    due = of_chief(due);
    // A save() after the same step finds what the program changes in between.
    state_.forget();
  }
  snapshots_->follow(due);
}

std::int64_t Checkpoints::write_snapshot(Seconds begin) {
  try {
    if (!snapshots_->goes_to().empty()) hold(snapshots_->goes_to());
    return snapshots_->write(state_.copy(), begin);
  } catch (const Error& error) {
    return snapshots_->fail_at(steps_.done(), error.what());
  } catch (const std::bad_alloc&) {
    return snapshots_->fail_at(steps_.done(), "no memory for it");
  }
}

// From any thread.
SaveFailure Checkpoints::write(StateCopy& state, const std::vector<std::string>& directories) {
  return failure_of([&] {
    const exec::Checkpoint& checkpoint = state.whole();
    RealFileSystem files;
    // Before any is removed: who starts the job again must find the one that it knows of.
    const auto note = [&] {
      if (job_.memory() != nullptr) job_.memory()->note_saved(checkpoint.step);
    };
    for (const std::string& directory : directories) {
      exec::write_checkpoint(files, directory, checkpoint, exec::kKeptCheckpoints, note);
    }
  });
}

// Of what is gathered, while the job goes on.
void Checkpoints::write_beside(std::shared_ptr<StateCopy> state,
                               const std::vector<std::string>& directories) {
  auto work = [this, state, directories] {
    const SaveFailure failure = write(*state, directories);
    if (!failure.text.empty()) {
      job_.say(fmt::format("no checkpoint of step {}: {}{}", state->checkpoint.step,
                           without_dot(failure.text),
                           failure.job_ends ? "" : "; the training goes on"));
    }
    return failure.text;
  };
  writing_ = {std::move(state), directories,
              std::async(std::launch::async, std::move(work)).share()};
}

void Checkpoints::finish_writing() {
  if (!writing_ || !writing_->failure.get().empty()) return;
  newest_.emplace(writing_->directories.front(), writing_->state->checkpoint.step);
  writing_.reset();
}

// Without the others, the chief has what the owners hold: all start from its statistics then.
std::string Checkpoints::save_due_at_the_end(bool with_the_others) {
  std::vector<std::string> directories = late_;
  for (const auto& step : steps_.all()) {
    for (exec::DueSave& due : step->runner().calls().take_due(exec::kAtTheEnd)) {
      directories.push_back(std::move(due.directory));
    }
  }
  std::sort(directories.begin(), directories.end());
  directories.erase(std::unique(directories.begin(), directories.end()), directories.end());
  if (directories.empty() || is_saved() || (!with_the_others && !job_.is_chief())) return "";
  return save_into(directories, with_the_others);
}

// One that could not be written while the job went on is tried again; where the optimizers' state
// has not come, that of now, if the chief needs nobody else's code for it.
Checkpoints::Missing Checkpoints::save_at_the_end(bool in_order) {
  Missing missing{steps_.done(), save_due_at_the_end(in_order)};
  finish_writing();
  if (!writing_ || !missing.failure.empty()) return missing;
  if (!writing_->state->has_come() && state_.owners_hold_everything()) {
    const std::vector<std::string> directories = writing_->directories;
    writing_.reset();
    state_.forget();
    missing.failure = save_into(directories, /*with_the_others=*/false);
    return missing;
  }
  return {writing_->state->checkpoint.step, write(*writing_->state, writing_->directories).text};
}

void Checkpoints::forget_snapshots() {
  if (snapshots_) snapshots_->forget(steps_.done());
}

// Until the job ends, or has saved into many others since.
void Checkpoints::hold(const std::string& directory) {
  constexpr std::size_t kMostHeld = 16;
  const auto held = std::any_of(held_.begin(), held_.end(),
                                [&](const auto& each) { return each.first == directory; });
  if (held) return;
  held_.emplace_back(directory, CheckpointFolder("save:", directory));
  if (held_.size() > kMostHeld) held_.pop_front();
}

std::string Checkpoints::where_to_go_on() const {
  auto newest = newest_;
  if (writing_ && writing_->failure.get().empty()) {
    newest.emplace(writing_->directories.front(), writing_->state->checkpoint.step);
  }
  if (!newest || job_.memory() != nullptr) return "";
  const auto& [directory, step] = *newest;
  const auto& command = job_.options().resume_command;
  return fmt::format("The newest checkpoint is {}. To go on from it: {}",
                     exec::folder_of(directory, step),
                     command ? command(directory) : "load() it before the first step.");
}

void Checkpoints::load(const std::string& directory) {
  load_state(directory, [&] {
    RealFileSystem files;
    return load_at_chief(files, directory, steps_, warn());
  });
}

void Checkpoints::resume(const std::string& directory) {
  const std::string& newer = job_.checkpoint();  // than when a standby was started
  const std::string& from = newer.empty() ? directory : newer;
  if (!snapshots_) {
    JobMemory* const memory = job_.options().snapshots ? job_.memory() : nullptr;
    snapshots_ = std::make_unique<Snapshots>(memory, job_.number(), steps_.model(), job_.clock(),
                                             warn(), [] { return free_memory(); });
  }
  if (job_.is_chief()) snapshots_->choose_folder(from, job_.options().snapshot_folder);
  load_state(from, [&] { return newest_state(from); });
  snapshots_->follow(job_.chief_says("snapshots", snapshots_->are_taken()));
}

// Of a snapshot or a checkpoint; nothing where there is neither.
std::optional<LoadedState> Checkpoints::newest_state(const std::string& from) {
  RealFileSystem files;
  std::optional<LoadedState> state;
  try {
    const bool has_saved = !from.empty() && exec::has_checkpoint(files, from);
    const auto saved = has_saved ? exec::newest_checkpoint(files, from) : std::nullopt;
    state = snapshots_->newer_than(saved.value_or(-1), steps_);
    if (state) return state;
    if (!has_saved && !job_.checkpoint().empty()) {
      fail(ErrorCode::kCheckpoint,
           "{}: the checkpoint from which a standby goes on is gone. Resume from another one.",
           from);
    }
    if (!has_saved) return std::nullopt;
    state = load_at_chief(files, from, steps_, warn());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCheckpoint) throw;
    auto kept = snapshots_->newer_than(-1, steps_);
    if (!kept) throw;
    job_.say(fmt::format("{}: what is in memory takes its place", without_dot(error.what())));
    return kept;
  }
  // Where newer ones are damaged the one that was loaded may be older than what is in memory.
  if (auto kept = snapshots_->newer_than(state->step, steps_)) {
    job_.say(fmt::format("what is in memory, of step {}, takes the place of step {} in {}",
                         kept->step, state->step, from));
    return kept;
  }
  return state;
}

void Checkpoints::load_state(const std::string& directory,
                             const std::function<std::optional<LoadedState>()>& at_chief) {
  if (steps_.have_started()) {
    fail(ErrorCode::kUsage, "load{}{}: the training is under way; load before the first step",
         directory.empty() ? "" : ": ", directory);
  }
  comm::Transport& transport = job_.transport();
  const Seconds limit = job_.options().join_limit;
  comm::meet(transport, "load()", steps_.front().generation(), limit);
  // One reader: every rank starts from the same checkpoint, also when a newer one appears
  // meanwhile.
  LoadedState state;
  if (job_.is_chief()) state = at_chief().value_or(LoadedState{});
  state.optimizer = job_.of_chief("checkpoint", state.optimizer);
  if (state.optimizer.empty()) return;
  const exec::Safetensors optimizer = exec::read_safetensors(state.optimizer, directory);
  const std::string& from = optimizer.metadata.at("from");
  exec::broadcast_initial(transport, steps_.initial_tensors(), limit);
  // The stages of a replica have one set of buffers, which its first rank saved.
  const program::Program& program = steps_.front().program();
  const program::Rank self(job_.rank());
  const bool has_stage = program.is_placed() && program.computes(self);
  const program::Rank saved = has_stage ? program.stage_mate(self, 0) : self;
  const std::vector<NamedTensor> owed =
      put_replica(job_.of_chief("replicas", state.replicas), saved.value, steps_.model(), from);
  std::vector<NamedTensor> states;
  for (const exec::TensorData& each : optimizer.tensors) states.push_back(exec::to_tensor(each));
  for (const auto& step : steps_.all()) {
    const std::string prefix = step->prefix();
    const std::vector<NamedTensor> own = with_prefix(states, prefix);
    const auto unused = left_out(own, step->graph(), &job_.options().user_rules);
    if (job_.is_chief() && !unused.empty()) {
      job_.say(
          fmt::format("{}: {} of {} states of the optimizer that wrote it are left out, as "
                      "this one has none like '{}'",
                      from, unused.size(), own.size(), unused.front()));
    }
    step->resume(std::stoll(optimizer.metadata.at("step" + step->name())), own,
                 with_prefix(owed, prefix));
  }
  if (from != Snapshots::kFrom) newest_.emplace(from, steps_.done());
  steps_.note_values();
  state_.restore_kept(job_.of_chief("kept", state.kept), from);
}

}  // namespace autodist::job
