#include "autodist/job/torch/snapshots.h"

#include <atomic>
#include <chrono>
#include <utility>

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
    fail(ErrorCode::kCheckpoint, "{}: is not there", path);
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

std::string next_job() {
  static std::atomic<int> jobs{0};
  return std::to_string(jobs++) + "/";
}

}  // namespace

Snapshots::Snapshots(JobMemory* memory, const Clock& clock, Warn warn)
    : memory_(memory),
      clock_(clock),
      warn_(std::move(warn)),
      job_(next_job()),
      are_taken_(memory != nullptr) {}

std::optional<LoadedState> Snapshots::former(const TrainingStep& model,
                                             const std::vector<const JobStep*>& steps) {
  if (memory_ == nullptr) return std::nullopt;
  const JobMemory::Progress progress = memory_->progress();
  SnapshotFiles files(*memory_, job_);
  const std::string manifest = fmt::format("{}/manifest.json", kFrom);
  if (progress.kept < progress.saved || !files.exists(manifest)) return std::nullopt;
  return load_at_chief(files, kFrom, model, steps, warn_);
}

std::string Snapshots::next() const {
  if (!are_taken_) return "never";
  return due_ ? std::to_string(*due_) : "";
}

void Snapshots::follow(const std::string& said) {
  are_taken_ = said != "never";
  due_ = are_taken_ && !said.empty() ? std::optional<std::int64_t>(std::stoll(said)) : std::nullopt;
}

bool Snapshots::is_due(std::int64_t step) {
  if (!are_taken_) return false;
  if (!due_) {
    due_ = step + SnapshotSchedule::kFirst;
    schedule_.emplace(step, clock_.now());
  }
  return step >= *due_;
}

bool Snapshots::is_writing() const {
  return writing_.valid() &&
         writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::string Snapshots::put_off(std::int64_t step) const {
  return std::to_string(schedule_->put_off(step));
}

std::string Snapshots::give_up(const std::string& why) {
  warn_(
      fmt::format("no further snapshots in memory: {}; after a loss the training goes on from "
                  "its newest checkpoint",
                  why));
  are_taken_ = false;
  return next();
}

// Two of them in memory, and the copy that one is written from. What the training itself still
// takes is not known, and is left as much again.
std::string Snapshots::write(std::shared_ptr<StateCopy> state, Seconds begin) {
  finish_writing();
  if (!last_.failure.empty()) return give_up(last_.failure);
  const bool is_first = memory_->progress().kept < 0;
  const Bytes size = state->size();
  const Bytes needed{size.value * (is_first ? 3 : 1)};
  const Bytes free = free_memory();
  if (needed.value > free.value / 2) {
    return give_up(fmt::format("they take {}, half of the {} that are free expected",
                               to_string(needed), to_string(free)));
  }
  const std::int64_t step = state->checkpoint.step;
  writing_ = std::async(std::launch::async,
                        [this, state = std::move(state)] { return write_to_memory(*state); });
  due_ = schedule_->taken(step, begin, clock_.now(), last_.took);
  return next();
}

Snapshots::Written Snapshots::write_to_memory(StateCopy& state) const {
  Written written;
  const Seconds begin = clock_.now();
  try {
    SnapshotFiles files(*memory_, job_);
    memory_->begin_snapshot();
    exec::write_checkpoint(files, kFrom, state.whole(), exec::kKeptCheckpoints,
                           [&] { memory_->end_snapshot(state.checkpoint.step); });
  } catch (const Error& error) {
    written.failure = error.what();
  }
  written.took = clock_.now() - begin;
  return written;
}

void Snapshots::finish_writing() {
  if (writing_.valid()) last_ = writing_.get();
}

}  // namespace autodist::job
