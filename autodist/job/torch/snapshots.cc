#include "autodist/job/torch/snapshots.h"

#include <fmt/ranges.h>
#include <sys/resource.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <utility>

#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/job/control_group.h"

namespace autodist::job {
namespace {

// A checkpoint's folder as the files of a snapshot, which has no folders: a file goes by the last
// part of its path. What is written counts when the snapshot ends.
class SnapshotFiles final : public exec::FileSystem {
 public:
  SnapshotFiles(JobMemory& memory, std::string job) : memory_(memory), job_(std::move(job)) {}

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
    return job_ + path.substr(path.rfind('/') + 1);
  }

  JobMemory& memory_;
  std::string job_;
};

// Names and sizes, so that a program that leaves out what it is through with does not go on from
// another job's.
std::string name_of_job(std::size_t number, const TrainingStep& model) {
  std::string text;
  for (const auto* tensors : {&model.parameters, &model.buffers}) {
    for (const NamedTensor& each : *tensors) {
      text += fmt::format("{} {}\n", each.name, fmt::join(each.tensor.sizes(), " "));
    }
  }
  return fmt::format("{}-{}/", number, to_string(digest_of(text)));
}

// Each has a slot, and while one is written there is what it is written from.
Bytes needed(Bytes state, bool is_first) { return Bytes{state.value * (is_first ? 3 : 1)}; }

bool limits_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

Snapshots::Snapshots(JobMemory* memory, std::size_t number, const TrainingStep& model,
                     const Clock& clock, Warn warn)
    : memory_(memory),
      clock_(clock),
      warn_(std::move(warn)),
      job_(name_of_job(number, model)),
      are_taken_(memory != nullptr) {
  if (!are_taken_ || !limits_files()) return;
  warn_(
      "no snapshots in memory: files may not grow as they like here (ulimit -f); unlimited "
      "expected");
  are_taken_ = false;
}

void Snapshots::resumes_from(const std::string& directory) {
  if (memory_ == nullptr || directory.empty()) return;
  namespace fs = std::filesystem;
  fs::path path = fs::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "ckpt/"
  if (path.filename().string().rfind("step-", 0) == 0) path = path.parent_path();
  memory_->note_folder(job_, path.string());
}

std::optional<LoadedState> Snapshots::newer_than(std::int64_t saved, const TrainingStep& model,
                                                 const std::vector<const JobStep*>& steps) {
  if (memory_ == nullptr || memory_->progress().kept <= saved) return std::nullopt;
  SnapshotFiles files(*memory_, job_);
  if (!exec::newest_checkpoint(files, kFrom)) return std::nullopt;  // another job's
  return load_at_chief(files, kFrom, model, steps, warn_);
}

bool Snapshots::is_due(std::int64_t step) {
  if (!are_taken_) return false;
  if (!due_) {
    due_ = step + SnapshotSchedule::kFirst;
    schedule_.emplace(step, clock_.now());
  }
  return step >= *due_;
}

std::optional<std::int64_t> Snapshots::put_off(std::int64_t step, bool is_saving, Bytes size) {
  const bool is_writing =
      writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  if (is_saving || is_writing) return schedule_->soon(step);
  finish_writing();
  if (!last_.failure.empty()) return fail_at(step, std::exchange(last_.failure, ""));
  const Bytes takes = needed(size, memory_->progress().kept < 0);
  const Bytes free = free_memory();
  // What the training itself still takes is not known, and is left as much again.
  if (takes.value <= free.value / 2) return std::nullopt;
  return fail_at(step, fmt::format("it takes {}, and of the {} that are free at most half is taken",
                                   to_string(takes), to_string(free)));
}

std::int64_t Snapshots::fail_at(std::int64_t step, const std::string& why) {
  if (!std::exchange(told_, true)) {
    warn_(fmt::format("no snapshot in memory at step {}: {}; it is tried again now and then", step,
                      why));
  }
  return schedule_->much_later(step);
}

std::int64_t Snapshots::write(std::shared_ptr<StateCopy> state, Seconds begin) {
  const std::int64_t step = state->checkpoint.step;
  // What is written goes at once; a future keeps its function until somebody asks for the outcome.
  auto work = [this, state = std::move(state)]() mutable {
    const Written written = write_to_memory(*state);
    state.reset();
    return written;
  };
  writing_ = std::async(std::launch::async, std::move(work));
  told_ = false;
  const std::int64_t due = schedule_->taken(step, begin, clock_.now(), last_.took);
  tell_what_a_loss_costs();
  return due;
}

// Once, where it is much; from the second one on, when it is known what writing takes.
void Snapshots::tell_what_a_loss_costs() {
  constexpr Seconds kMuch{10};
  if (last_.took == Seconds{0} || schedule_->apart() < kMuch || told_cost_) return;
  told_cost_ = true;
  warn_(fmt::format(
      "snapshots in memory come every {} steps here, about {} apart, as more would slow the "
      "training: a lost rank can cost that much of it, or what was done since the last checkpoint "
      "where that is less",
      schedule_->steps_apart(), to_string(schedule_->apart())));
}

Snapshots::Written Snapshots::write_to_memory(StateCopy& state) const {
  Written written;
  const Seconds begin = clock_.now();
  try {
    SnapshotFiles files(*memory_, job_);
    memory_->begin_snapshot();
    exec::write_checkpoint(files, kFrom, state.whole(), exec::kKeptCheckpoints,
                           [&] { memory_->end_snapshot(state.checkpoint.step); });
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

void Snapshots::forget() {
  finish_writing();
  if (memory_ != nullptr) memory_->forget_snapshot();
}

}  // namespace autodist::job
