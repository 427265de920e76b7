// A job at this rank: its steps, whose turn it is, and what they have in common. Private to the
// session.
//
// Steps share variables through the model's own tensors. A step begins its turn when all that the
// step before it changed has arrived at this rank; then it reads those tensors as they are. Where
// several steps train one variable, each takes its values from the tensors when its turn begins.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/comm/channels.h"
#include "autodist/comm/collectives.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/exec/checkpoint_folder.h"
#include "autodist/job/torch/job_step.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/plan_sequence.h"
#include "autodist/job/torch/session_state.h"
#include "autodist/job/torch/snapshots.h"

namespace autodist::job {

// Why a checkpoint could not be saved, and whether that ends the job; no text where it is saved.
struct SaveFailure {
  std::string text;
  bool job_ends = false;
};

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
  [[nodiscard]] JobStep& step(std::size_t index) { return *steps_[index]; }
  // The step, which may run from here on. By all ranks in the same order.
  JobStep& turn(std::size_t index);
  JobStep& turn_to_step(std::size_t index);  // which runs at once

  // What Session says of them.
  void synchronize();  // of all variables, which may be written to then
  void settle(const torch::Tensor& parameter);
  std::vector<torch::Tensor> evaluate(std::size_t index, const Batch& batch, Statistics statistics);
  void prepare_evaluation(Statistics statistics);
  void begin_evaluation(Statistics statistics);
  void end_evaluation();
  void keep(const std::string& name, Kept what);
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
  [[nodiscard]] std::int64_t steps_done() const;
  // "The newest checkpoint is …", to end a message with; empty where this rank knows of none, and
  // where who supervises the job goes on by itself.
  [[nodiscard]] std::string where_to_go_on() const;

 private:
  [[nodiscard]] bool is_chief() const { return job_->is_chief(); }
  [[nodiscard]] Warn warn() const {
    return [this](const std::string& line) { job_->say(line); };
  }
  void prepare(std::vector<NamedStep> steps);
  // Throws JobEnded at a rank that only serves, when the job is over.
  void start();
  void await_turn();
  void begin();
  // Of a rank that only serves (`role: server`): it has no steps, and owns what it owns.
  [[nodiscard]] bool only_serves() const;
  void serve();
  void make_newest();
  [[nodiscard]] bool has_ended() const;
  void note_values();
  void unite_models();
  void connect_library();
  void find_shared();
  void check_shared(std::size_t index, const program::Program& program) const;
  [[nodiscard]] std::vector<NamedTensor> initial_tensors() const;
  // Whose turn it is, or would be.
  [[nodiscard]] exec::Runner& current() { return steps_[current_.value_or(0)]->runner(); }
  [[nodiscard]] std::vector<NamedTensor> buffers_written() const;
  [[nodiscard]] bool owners_hold_everything() const;
  [[nodiscard]] bool comes_to_save(const std::string& directory);
  void save_what_is_due();
  std::string outcome(const char* of, const std::string& failure);
  std::string save_into(const std::vector<std::string>& directories, bool with_the_others,
                        SaveUntil until = SaveUntil::kWritten);
  std::string save_at_the_end(bool with_the_others);
  // By all ranks alike; `at_chief` reads.
  void load_state(const std::string& directory,
                  const std::function<std::optional<LoadedState>()>& at_chief);
  [[nodiscard]] std::vector<const JobStep*> all_steps() const;
  [[nodiscard]] bool is_gathered() const { return gathered_at_ == steps_done(); }
  void gather_once(bool with_the_others);
  void copy_own();
  [[nodiscard]] bool has_steps_in_common() const;
  [[nodiscard]] Bytes state_bytes() const;
  std::int64_t write_snapshot(Seconds begin);
  StateCopy gather_all(bool with_the_others);
  [[nodiscard]] std::vector<exec::TensorData> kept_state() const;
  SaveFailure write(StateCopy& state, const std::vector<std::string>& directories);
  void write_beside(const std::vector<std::string>& directories);
  void finish_writing();
  void hold(const std::string& directory);
  [[nodiscard]] std::string strategy_of_chief(std::size_t index,
                                              const planning::StrategyRequest& request,
                                              const std::optional<strategy::Strategy>& given);
  void agree_to_change(std::size_t index, const program::Program& next);
  [[nodiscard]] RunConnections connections_of(std::size_t index);
  struct PreparedChange {
    StepPlan next;
    program::Transition moves;
  };
  PreparedChange prepare_change(std::size_t index, exec::Call call,
                                const planning::StrategyRequest& request,
                                const std::optional<strategy::Strategy>& given,
                                const std::string& name);
  void check_library(const JobStep& step) const;
  PlanChange go_on_under(std::size_t index, PreparedChange change);
  void meet_for_plan();
  void end_sequence();
  void drop_sequence();
  PlanSequence::Decision decide_together();
  void keep_history();

  std::unique_ptr<JoinedJob> job_;
  std::size_t number_;                        // of the jobs of this process, from 0
  std::unique_ptr<comm::Channels> channels_;  // where there are several steps
  std::unique_ptr<comm::Collectives> collectives_;
  std::vector<std::unique_ptr<JobStep>> steps_;
  TrainingStep model_;                               // of all steps: parameters and buffers
  std::vector<std::vector<ir::VariableId>> shared_;  // by step: those that others train, too
  std::optional<std::size_t> current_;               // whose turn it is
  bool started_ = false;
  bool finished_ = false;
  bool left_ = false;          // and told the others why
  std::exception_ptr broken_;  // why its steps could not start
  // What is saved of a step is gathered once; the chief keeps it until the next step begins, so
  // that save() may be called for another directory, and tried again where it could not be written.
  std::optional<std::int64_t> gathered_at_;  // steps done
  std::shared_ptr<StateCopy> gathered_;
  std::vector<std::string> saved_in_;  // directories, then
  bool said_due_ = false;
  std::vector<std::string> late_;  // directories, of checkpoints that were due and not written
  std::map<std::string, Kept> kept_;
  std::map<std::string, std::string> unclaimed_;  // states that were loaded, and nobody keeps yet
  // The newest checkpoint that was saved or loaded: its folder, and its step.
  std::optional<std::pair<std::string, std::int64_t>> newest_;
  std::deque<std::pair<std::string, exec::CheckpointFolder>> held_;  // at the chief
  // At the chief: a checkpoint that a thread writes, or that it could not write.
  struct Writing {
    std::shared_ptr<StateCopy> state;
    std::vector<std::string> directories;
    std::shared_future<std::string> failure;  // empty: it is written
  };
  std::optional<Writing> writing_;
  std::unique_ptr<Snapshots> snapshots_;    // since resume()
  std::uint32_t snapshot_words_ = 0;        // that the chief has said about them
  std::unique_ptr<PlanSequence> sequence_;  // of plans, where there are several
  strategy::StrategyHistory history_;       // at the chief, where it is kept
  std::uint32_t plan_changes_ = 0;          // asked for so far
  bool wished_for_the_end_ = false;         // by this rank
  // Of an evaluation: the buffers that steps write, by whose they are, and this rank's meanwhile.
  std::map<Statistics, std::vector<torch::Tensor>> statistics_;
  std::int64_t statistics_at_ = -1;  // steps done
  std::vector<torch::Tensor> own_statistics_;
};

}  // namespace autodist::job
