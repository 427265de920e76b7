// Checkpoints of a job: who saves when, what is copied, and who writes it.

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/job/torch/session_state.h"
#include "autodist/job/torch/training_job.h"

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

}  // namespace

// The optimizers' state lies with the owners, whose threads give it to the chief; what differs
// between replicas only their own code can give.
bool TrainingJob::owners_hold_everything() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) {
    const program::Program& program = step->program();
    const bool apart = program.replica_count() > 1 && replicas_differ(program);
    return program.lag() && !program.is_placed() && !apart;
  });
}

void TrainingJob::save(const std::string& directory, SaveUntil until) {
  start();
  save_what_is_due();
  const bool saved = is_gathered() && !saved_in_.empty();
  const bool there = std::find(saved_in_.begin(), saved_in_.end(), directory) != saved_in_.end();
  if (saved && there && said_due_) return;
  if (saved && there) {
    fail(ErrorCode::kUsage,
         "save: {}: step {} was saved there already; once between two steps. Run a step first, or "
         "name another folder.",
         directory, steps_done());
  }
  const auto call = enter_call(current(), exec::Call::kSave);
  if (!is_gathered() && !comes_to_save(directory)) return;
  const std::string failure = save_into({directory}, !owners_hold_everything(), until);
  if (!failure.empty()) throw Error(ErrorCode::kCheckpoint, failure);
}

// Whether this rank saves now; else the chief alone wants to, and needs the others.
bool TrainingJob::comes_to_save(const std::string& directory) {
  exec::Calls& calls = current().calls();
  const std::uint64_t step = current().steps_done();
  if (!is_chief()) {
    calls.come_to_save(step);
    return true;
  }
  if (owners_hold_everything()) {
    calls.save_alone(step);
    return true;
  }
  // Nobody passes step + staleness before the chief contributes again.
  const JobStep& only = *steps_.front();
  const bool by_steps = steps_.size() == 1 && only.trains() && only.program().lag();
  const std::uint64_t due = by_steps ? step + 2 + *only.program().lag() : exec::kAtTheEnd;
  if (calls.meet_to_save(step, {due, directory})) return true;
  if (!said_due_) {
    job_->say(fmt::format(
        "rank 0 alone called save() at step {}. The checkpoint needs all ranks, "
        "which write it {}.",
        step,
        by_steps ? fmt::format("after step {}, and name it by that", due) : "when the job ends"));
  }
  said_due_ = true;
  return false;
}

// What the chief asked for by itself some steps ago.
void TrainingJob::save_what_is_due() {
  if (steps_.size() > 1) return;  // then in finish()
  std::vector<std::string> directories;
  for (exec::DueSave& due : current().calls().take_due(current().steps_done())) {
    directories.push_back(std::move(due.directory));
  }
  if (directories.empty()) return;
  said_due_ = true;
  const auto call = enter_call(current(), exec::Call::kSave);
  const std::string failure = save_into(directories, /*with_the_others=*/true);
  if (failure.empty()) return;
  late_ = directories;
  if (!is_chief()) return;
  job_->say(fmt::format("no checkpoint of step {}: {}; the job goes on, and tries again at its end",
                        steps_done(), without_dot(failure)));
}

// What the chief says of a work that it has done alone: at whoever calls it for the same kind of
// work. The chief may have done others that this rank had no part in.
std::string TrainingJob::outcome(const char* of, const std::string& failure) {
  const std::string head = std::string(of) + ":";
  while (true) {
    const std::string said = current().outcome(head + failure);
    if (said.rfind(head, 0) == 0) return said.substr(head.size());
  }
}

// Returns why the chief could not write it, at all ranks that come here; else nothing.
std::string TrainingJob::save_into(const std::vector<std::string>& directories,
                                   bool with_the_others, SaveUntil until) {
  finish_writing();  // one at a time: each takes the memory of the model and its state
  if (snapshots_) snapshots_->finish_writing();
  gather_once(with_the_others);
  const bool beside = until == SaveUntil::kCopied;
  SaveFailure own;
  if (is_chief()) {
    own = failure_of([&] {  // where there is no thread for it, too
      copy_own();
      for (const std::string& directory : directories) hold(directory);
      if (beside) write_beside(directories);
    });
    if (own.text.empty() && !beside) own = write(*gathered_, directories);
  }
  const std::string failure = outcome("save", own.text);
  if (!failure.empty()) return failure;
  saved_in_.insert(saved_in_.end(), directories.begin(), directories.end());
  if (!beside) {
    newest_.emplace(directories.front(), steps_done());
    writing_.reset();
  } else if (!is_chief()) {
    newest_.reset();  // the chief alone knows when it is written, and which are removed then
  }
  late_.clear();
  return "";
}

void TrainingJob::gather_once(bool with_the_others) {
  if (is_gathered()) return;
  gathered_at_ = steps_done();
  gathered_ = std::make_shared<StateCopy>(gather_all(with_the_others));
  saved_in_.clear();
}

// At the chief: what the program may change between two calls. REQUIRES: no thread writes what is
// gathered.
void TrainingJob::copy_own() {
  if (!gathered_) {
    fail(ErrorCode::kUsage, "save: the step after {} has begun; run one to its end first",
         steps_done());
  }
  gathered_->checkpoint.model = copy_model(model_);
  gathered_->checkpoint.kept = kept_state();
}

Bytes TrainingJob::state_bytes() const {
  Bytes bytes;
  for (const auto& step : steps_) {
    bytes += exec::bytes_of_state(step->program(), &job_->options().user_rules);
  }
  for (const NamedTensor& each : model_.buffers) {
    bytes += Bytes(static_cast<std::int64_t>(each.tensor.nbytes()));
  }
  return bytes;
}

// By all ranks alike, which know when one is due.
void TrainingJob::snapshot() {
  if (finished_ || !snapshots_ || !has_steps_in_common()) return;
  if (!snapshots_->is_due(steps_done())) return;
  start();
  save_what_is_due();
  const Seconds begin = job_->clock().now();
  exec::Runner& runner = current();
  const auto call = begin_call(runner, exec::Call::kSnapshot);
  const auto of_chief = [&](std::int64_t said) {
    constexpr std::uint32_t kIds = 1024;  // more than are on their way at a time
    const std::uint32_t id = snapshot_words_++ % kIds;
    return std::stoll(runner.of_chief({exec::Topic::kSnapshot, id}, std::to_string(said)));
  };
  constexpr std::int64_t kNow = -1;
  std::int64_t due = kNow;
  if (is_chief()) {
    const bool is_saving = writing_ && writing_->failure.wait_for(std::chrono::seconds(0)) !=
                                           std::future_status::ready;
    due = snapshots_->put_off(steps_done(), is_saving, state_bytes()).value_or(kNow);
  }
  due = of_chief(due);
  if (due == kNow) {
    gather_once(!owners_hold_everything());
    if (is_chief()) due = write_snapshot(begin);
    due = of_chief(due);
    // A save() after the same step finds what the program changes in between.
    gathered_.reset();
    gathered_at_.reset();
  }
  snapshots_->follow(due);
}

std::int64_t TrainingJob::write_snapshot(Seconds begin) {
  try {
    copy_own();
    return snapshots_->write(gathered_, begin);
  } catch (const Error& error) {
    return snapshots_->fail_at(steps_done(), error.what());
  } catch (const std::bad_alloc&) {
    return snapshots_->fail_at(steps_done(), "no memory for it");
  }
}

// From any thread.
SaveFailure TrainingJob::write(StateCopy& state, const std::vector<std::string>& directories) {
  return failure_of([&] {
    const exec::Checkpoint& checkpoint = state.whole();
    exec::RealFileSystem files;
    // Before any is removed: who starts the job again must find the one that it knows of.
    const auto note = [&] {
      if (job_->memory() != nullptr) job_->memory()->note_saved(checkpoint.step);
    };
    for (const std::string& directory : directories) {
      exec::write_checkpoint(files, directory, checkpoint, exec::kKeptCheckpoints, note);
    }
  });
}

// Of what is gathered, while the job goes on.
void TrainingJob::write_beside(const std::vector<std::string>& directories) {
  auto work = [this, state = gathered_, directories] {
    const SaveFailure failure = write(*state, directories);
    if (!failure.text.empty()) {
      job_->say(fmt::format("no checkpoint of step {}: {}{}", state->checkpoint.step,
                            without_dot(failure.text),
                            failure.job_ends ? "" : "; the training goes on"));
    }
    return failure.text;
  };
  writing_ = {gathered_, directories, std::async(std::launch::async, std::move(work)).share()};
}

// Afterwards no thread writes; what could not be written is still there.
void TrainingJob::finish_writing() {
  if (!writing_ || !writing_->failure.get().empty()) return;
  newest_.emplace(writing_->directories.front(), writing_->state->checkpoint.step);
  writing_.reset();
}

// Without the others, the chief has what the owners hold: all start from its statistics then.
std::string TrainingJob::save_at_the_end(bool with_the_others) {
  std::vector<std::string> directories = late_;
  for (const auto& step : steps_) {
    for (exec::DueSave& due : step->runner().calls().take_due(exec::kAtTheEnd)) {
      directories.push_back(std::move(due.directory));
    }
  }
  std::sort(directories.begin(), directories.end());
  directories.erase(std::unique(directories.begin(), directories.end()), directories.end());
  const bool saved = is_gathered() && !saved_in_.empty();
  if (directories.empty() || saved || (!with_the_others && !is_chief())) return "";
  return save_into(directories, with_the_others);
}

StateCopy TrainingJob::gather_all(bool with_the_others) {
  if (with_the_others) make_newest();
  StateCopy state;
  for (const auto& step : steps_) {
    step->runner().synchronize();
    if (with_the_others) gather(*step, state.checkpoint);
  }
  if (!is_chief()) return state;
  state.checkpoint.step = steps_done();
  std::vector<std::string> digests;
  std::vector<std::string> optimizers;
  for (const auto& step : steps_) {
    if (!step->name().empty()) state.checkpoint.steps[step->name()] = step->step();
    digests.push_back(to_string(program::digest_of(step->program())));
    optimizers.push_back(step->prefix() + step->optimizer());
    state.optimizers.emplace_back(step->prefix(), step->run().state());
  }
  state.checkpoint.program_digest = fmt::format("{}", fmt::join(digests, " "));
  state.checkpoint.optimizer = fmt::format("{}", fmt::join(optimizers, "; "));
  return state;
}

void TrainingJob::keep(const std::string& name, Kept what) {
  const bool is_name = !name.empty() && name != "__metadata__";  // safetensors' own
  if (!is_name || kept_.count(name) > 0) {
    fail(ErrorCode::kUsage, "keep: '{}' {}, another name expected", name,
         is_name ? "is kept already" : "is no name");
  }
  const auto loaded = unclaimed_.find(name);
  if (loaded != unclaimed_.end()) {
    what.restore(loaded->second);
    unclaimed_.erase(loaded);
  }
  kept_.emplace(name, std::move(what));
}

std::vector<exec::TensorData> TrainingJob::kept_state() const {
  std::map<std::string, std::string> all = unclaimed_;
  for (const auto& [name, each] : kept_) {
    try {
      all[name] = each.state();
    } catch (const Error& error) {
      fail(error.code(), "keep: '{}': {}", name, error.what());
    }
  }
  std::vector<exec::TensorData> state;
  for (auto& [name, bytes] : all) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    state.push_back({name, DType::kUInt8, {size}, std::move(bytes)});
  }
  return state;
}

// Until the job ends, or has saved into many others since.
void TrainingJob::hold(const std::string& directory) {
  constexpr std::size_t kMostHeld = 16;
  const auto held = std::any_of(held_.begin(), held_.end(),
                                [&](const auto& each) { return each.first == directory; });
  if (held) return;
  held_.emplace_back(directory, exec::CheckpointFolder("save:", directory));
  if (held_.size() > kMostHeld) held_.pop_front();
}

std::string TrainingJob::where_to_go_on() const {
  auto newest = newest_;
  if (writing_ && writing_->failure.get().empty()) {
    newest.emplace(writing_->directories.front(), writing_->state->checkpoint.step);
  }
  if (!newest || job_->memory() != nullptr) return "";
  const auto& [directory, step] = *newest;
  const auto& command = job_->options().resume_command;
  return fmt::format("The newest checkpoint is {}. To go on from it: {}",
                     exec::folder_of(directory, step),
                     command ? command(directory) : "load() it before the first step.");
}

}  // namespace autodist::job
