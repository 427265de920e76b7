// Checkpoints of a job: who saves when, who writes them, what a job goes on from, and the snapshots
// in between. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/checkpoint_folder.h"
#include "autodist/job/torch/gathered_state.h"
#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/session_state.h"
#include "autodist/job/torch/snapshots.h"

namespace autodist::job {

// Why a checkpoint could not be saved, and whether that ends the job; no text where it is saved.
struct SaveFailure {
  std::string text;
  bool job_ends = false;
};

class Checkpoints {
 public:
  // Job and steps outlive this.
  Checkpoints(JoinedJob& job, JobSteps& steps) : job_(job), steps_(steps), state_(job, steps) {}

  // What Session says of them. save() and snapshot() REQUIRE that the steps have started, and that
  // save_what_is_due() was called after the last one.
  void keep(const std::string& name, Kept what) { state_.keep(name, std::move(what)); }
  void save(const std::string& directory, SaveUntil until);
  void load(const std::string& directory);
  void resume(const std::string& directory);
  // All ranks alike know when one is due.
  [[nodiscard]] bool snapshot_is_due();
  void snapshot();

  // When a call of the session begins, by all ranks: what the chief asked for by itself some steps
  // ago.
  void save_what_is_due();
  // The next step begins, or all ranks are through with the job: what was gathered has served.
  void release() { state_.release(); }
  // A step goes on under another plan: what was gathered is of the one before.
  void forget_gathered();
  // Afterwards no thread writes a checkpoint; what could not be written is still there.
  void finish_writing();
  // When all ranks have come to the end, `in_order` or not: what is due by then, and what could not
  // be written before. At the chief why the checkpoint of a step could not be written, if so.
  struct Missing {
    std::int64_t step = 0;
    std::string failure;
  };
  Missing save_at_the_end(bool in_order);
  // The job has ended in order: it begins anew where it is started again.
  void forget_snapshots();
  // This rank is through with the job, whose folders are free from here on.
  void close() { held_.clear(); }

  // "The newest checkpoint is …", to end a message with; empty where this rank knows of none, and
  // where who supervises the job goes on by itself.
  [[nodiscard]] std::string where_to_go_on() const;

 private:
  [[nodiscard]] Warn warn() const {
    return [this](const std::string& line) { job_.say(line); };
  }
  [[nodiscard]] bool comes_to_save(const std::string& directory);
  [[nodiscard]] bool is_saved() const { return state_.is_gathered() && !saved_in_.empty(); }
  std::string save_into(const std::vector<std::string>& directories, bool with_the_others,
                        SaveUntil until = SaveUntil::kWritten);
  std::string save_due_at_the_end(bool with_the_others);
  void gather(bool with_the_others);
  SaveFailure write(StateCopy& state, const std::vector<std::string>& directories);
  void write_beside(std::shared_ptr<StateCopy> state, const std::vector<std::string>& directories);
  std::int64_t write_snapshot(Seconds begin);
  void hold(const std::string& directory);

  std::optional<LoadedState> newest_state(const std::string& from);
  // By all ranks alike; `at_chief` reads.
  void load_state(const std::string& directory,
                  const std::function<std::optional<LoadedState>()>& at_chief);

  JoinedJob& job_;
  JobSteps& steps_;
  GatheredState state_;
  std::vector<std::string> saved_in_;  // directories, of what is gathered
  bool said_due_ = false;
  std::vector<std::string> late_;  // directories, of checkpoints that were due and not written
  // The newest checkpoint that was saved or loaded: its folder, and its step.
  std::optional<std::pair<std::string, std::int64_t>> newest_;
  std::deque<std::pair<std::string, CheckpointFolder>> held_;  // at the chief
  // At the chief: a checkpoint that a thread writes, or that it could not write.
  struct Writing {
    std::shared_ptr<StateCopy> state;
    std::vector<std::string> directories;
    std::shared_future<std::string> failure;  // empty: it is written
  };
  std::optional<Writing> writing_;
  std::unique_ptr<Snapshots> snapshots_;  // since resume()
  std::uint32_t snapshot_words_ = 0;      // that the chief has said about them
};

}  // namespace autodist::job
