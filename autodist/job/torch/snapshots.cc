#include "autodist/job/torch/snapshots.h"

#include <fmt/ranges.h>
#include <sys/resource.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <utility>

#include "autodist/base/checkpoint_folder.h"
#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/base/step_folders.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/job/control_group.h"

namespace autodist::job {
namespace {

// A checkpoint's folder as the files of a snapshot, which has no folders: a file goes by the last
// part of its path. What is written counts when the snapshot ends.
class SnapshotFiles final : public FileSystem {
 public:
  SnapshotFiles(JobMemory& memory, std::string prefix)
      : memory_(memory), prefix_(std::move(prefix)) {}

  void write_synced(const std::string& path, const std::vector<std::string_view>& pieces) override {
    memory_.add_to_snapshot(name_of(path), pieces);
  }
  std::string read(const std::string& path) override {
    if (auto bytes = memory_.from_snapshot(name_of(path))) return *std::move(bytes);
    fail(ErrorCode::kCheckpoint, "{}: is not in the snapshot. Resume from a checkpoint.", path);
  }
  bool exists(const std::string& path) override {
    return memory_.from_snapshot(name_of(path)).has_value();
  }
  void make_folder(const std::string& /*path*/) override {}
  void sync_folder(const std::string& /*path*/) override {}
  void rename(const std::string& /*from*/, const std::string& /*to*/) override {}
  void remove_all(const std::string& /*path*/) override {}
  std::vector<std::string> list(const std::string& /*folder*/) override { return {}; }

 private:
  [[nodiscard]] std::string name_of(const std::string& path) const {
    return prefix_ + path.substr(path.rfind('/') + 1);
  }

  JobMemory& memory_;
  std::string prefix_;
};

// Of the names of the job's files. Names and sizes of the model's tensors are part of it, so that a
// program that leaves out what it is through with does not go on from another job's.
std::string prefix_of_job(std::size_t number, const TrainingStep& model) {
  std::string text;
  for (const auto* tensors : {&model.parameters, &model.buffers}) {
    for (const NamedTensor& each : *tensors) {
      text += fmt::format("{} {}\n", each.name, fmt::join(each.tensor.sizes(), " "));
    }
  }
  return fmt::format("{}-{}/", number, to_string(digest_of(text)));
}

// What else is taken from it meanwhile is not known, and is left as much again. "" where it fits.
std::string lacking(Bytes takes, Bytes free) {
  if (takes.value <= free.value / 2) return "";
  return fmt::format("it takes {}, and of the {} that are free at most half is taken",
                     to_string(takes), to_string(free));
}

// On its disk; the folder itself may not be there yet.
Bytes free_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  fs::path path = fs::absolute(folder, unknown);
  while (!fs::exists(path, unknown) && path.has_relative_path()) path = path.parent_path();
  const fs::space_info space = fs::space(path, unknown);
  return Bytes{unknown ? 0 : static_cast<std::int64_t>(space.available)};
}

bool limits_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

Snapshots::Snapshots(JobMemory* memory, std::size_t number, const TrainingStep& model,
                     const Clock& clock, Warn warn, std::function<Bytes()> free)
    : memory_(memory),
      clock_(clock),
      warn_(std::move(warn)),
      free_(std::move(free)),
      prefix_(prefix_of_job(number, model)),
      are_taken_(memory != nullptr) {
  if (!are_taken_ || !limits_files()) return;
  warn_("no snapshots: files may not grow as they like here (ulimit -f); unlimited expected");
  are_taken_ = false;
}

void Snapshots::choose_folder(const std::string& resumed, const std::optional<std::string>& asked) {
  const std::string& named = asked ? *asked : resumed;
  if (memory_ == nullptr || named.empty()) return;
  namespace fs = std::filesystem;
  fs::path path = fs::absolute(named).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "ckpt/"
  const bool is_step = !asked && path.filename().string().rfind("step-", 0) == 0;
  if (is_step) path = path.parent_path();
  memory_->note_folder(prefix_, path.string());
  if (!is_step) folder_ = path.string();
}

std::optional<LoadedState> Snapshots::newer_than(std::int64_t saved, const JobSteps& steps) {
  if (memory_ == nullptr || memory_->progress().kept <= saved) return std::nullopt;
  SnapshotFiles files(*memory_, prefix_);
  if (!exec::newest_checkpoint(files, kFrom)) return std::nullopt;  // another job's
  return load_at_chief(files, kFrom, steps, warn_);
}

bool Snapshots::is_due(std::int64_t step) {
  if (!are_taken_) return false;
  if (!due_) {
    due_ = step + SnapshotSchedule::kFirst;
    begun_ = clock_.now();
    schedule_.emplace(step, begun_);
  }
  return step >= *due_;
}

std::optional<std::int64_t> Snapshots::put_off(std::int64_t step, bool is_saving, Bytes size) {
  const bool is_writing =
      writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (is_saving || is_writing) return schedule_->soon(step);
  finish_writing();
  if (!last_.failure.empty()) return fail_at(step, std::exchange(last_.failure, ""));
  size_ = size;
  const Bytes free = free_();
  const std::string lacks = lacks_in_memory(size, free);
  goes_to_ = lacks.empty() ? "" : folder_;
  if (lacks.empty()) return std::nullopt;
  if (folder_.empty()) {
    return fail_at(step, lacks +
                             ". A loss costs all that was done since the last checkpoint, or since "
                             "the beginning. With a folder (--save, in a program resume(FOLDER)) "
                             "snapshots go there");
  }
  RealFileSystem files;
  // A checkpoint of this step holds the same state.
  const bool has_checkpoint = has_step(files, folder_, step) && !is_snapshot(files, folder_, step);
  if (has_checkpoint) return schedule_->soon(step);
  const std::string lacks_there = lacks_in_folder(size, free);
  if (!lacks_there.empty()) return fail_at(step, lacks_there);
  if (!std::exchange(told_folder_, true)) {
    warn_(
        fmt::format("snapshots go to {}: in memory there is no room for one: {}", folder_, lacks));
  }
  return std::nullopt;
}

// Each has a slot, and while one is written there is what it is written from.
std::string Snapshots::lacks_in_memory(Bytes size, Bytes free) const {
  const bool is_first = memory_->progress().kept < 0;
  return lacking(Bytes{size.value * (is_first ? 3 : 1)}, free);
}

// What it is written from is in memory for as long.
std::string Snapshots::lacks_in_folder(Bytes size, Bytes free) const {
  const std::string lacks = lacking(size, free);
  if (!lacks.empty()) return "in memory " + lacks;
  const std::string lacks_there = lacking(size, free_in(folder_));
  return lacks_there.empty() ? "" : fmt::format("in {} {}", folder_, lacks_there);
}

std::int64_t Snapshots::fail_at(std::int64_t step, const std::string& why) {
  if (!std::exchange(told_, true)) {
    warn_(fmt::format("no snapshot at step {}: {}; it is tried again now and then", step, why));
  }
  return schedule_->much_later(step);
}

std::int64_t Snapshots::write(std::shared_ptr<StateCopy> state, Seconds begin) {
  const std::int64_t step = state->checkpoint.step;
  // What is written goes at once; a future keeps its function until somebody asks for the outcome.
  auto work = [this, state = std::move(state), folder = goes_to_]() mutable {
    const Written written = write_to(folder, *state);
    state.reset();
    return written;
  };
  writing_ = std::async(std::launch::async, std::move(work));
  told_ = false;
  const std::int64_t due = schedule_->taken(step, begin, clock_.now(), last_.took);
  tell_what_a_loss_costs();
  return due;
}

// From the second one on, when it is known what writing takes: once it is much, or when the
// training has lasted, so that a short one says nothing of it. Again where it has become much.
void Snapshots::tell_what_a_loss_costs() {
  constexpr Seconds kMuch{10};
  constexpr Seconds kLasting{60};
  if (last_.took == Seconds{0}) return;
  const Seconds cost = schedule_->apart() + last_.took;  // one that is being written does not count
  const bool is_much = cost >= kMuch && (!told_cost_ || cost > *told_cost_ * 2);
  const bool has_lasted = !told_cost_ && clock_.now() - begun_ >= kLasting;
  if (!is_much && !has_lasted) return;
  told_cost_ = cost;
  warn_(
      fmt::format("snapshots: {} in {}, every {} steps; a loss costs at most about {} of training",
                  to_string(size_), goes_to_.empty() ? "memory" : goes_to_,
                  schedule_->steps_apart(), to_string(cost)));
}

Snapshots::Written Snapshots::write_to(const std::string& folder, StateCopy& state) const {
  Written written;
  const Seconds begin = clock_.now();
  const std::int64_t step = state.checkpoint.step;
  try {
    if (folder.empty()) {
      SnapshotFiles files(*memory_, prefix_);
      memory_->begin_snapshot();
      exec::write_checkpoint(files, kFrom, state.whole(), exec::kKeptCheckpoints,
                             [&] { memory_->end_snapshot(step); });
    } else {
      RealFileSystem files;
      exec::write_snapshot(files, folder, state.whole(),
                           [&] { memory_->note_saved(step, /*is_snapshot=*/true); });
    }
  } catch (const std::exception& error) {  // no memory for what it takes on the way, too
    written.failure = error.what();
  }
  written.took = clock_.now() - begin;
  return written;
}

void Snapshots::finish_writing() {
  if (!writing_.valid()) return;
  last_ = writing_.get();
  if (!last_.failure.empty()) last_.took = Seconds{0};  // of a part
}

void Snapshots::forget(std::int64_t step) {
  finish_writing();
  if (memory_ == nullptr) return;
  memory_->forget_snapshot();
  RealFileSystem files;
  if (folder_.empty() || !files.exists(folder_)) return;
  std::optional<CheckpointFolder> held;
  try {
    held.emplace("snapshots:", folder_);
  } catch (const Error&) {  // another job writes there, and they may be that one's
    return;
  }
  try {
    remove_snapshots(files, folder_, step);
  } catch (const Error& error) {
    warn_(error.what());
  }
}

}  // namespace autodist::job
