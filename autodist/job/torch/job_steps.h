// The steps of a job at this rank, what they have in common, and whose turn it is. Private to the
// session.
//
// Steps share variables through the model's own tensors. A step begins its turn when all that the
// step before it changed has arrived at this rank; then it reads those tensors as they are. Where
// several steps train one variable, each takes its values from the tensors when its turn begins.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/comm/channels.h"
#include "autodist/comm/collectives.h"
#include "autodist/job/torch/job_step.h"
#include "autodist/job/torch/joined_job.h"

namespace autodist::job {

class JobSteps {
 public:
  explicit JobSteps(JoinedJob& job) : job_(job) {}

  // Captures and plans all steps, which every rank does at the same point and agrees on; every rank
  // has the chief's values then. Once. Throws Error(kUsage) for tensors whose names do not agree;
  // Error(kInfeasible) where several steps train a variable in a way that does not let them.
  void prepare(std::vector<NamedStep> steps);
  // Before the first step. All start at once, for the peers' exchanges expect a sign of life.
  void start();
  [[nodiscard]] bool have_started() const { return started_; }  // also where that threw
  // Destroys them, and keeps what they use: a runner that has not finished tells the peers so.
  void clear() { all_.clear(); }

  [[nodiscard]] const std::vector<std::unique_ptr<JobStep>>& all() const { return all_; }
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] JobStep& at(std::size_t index) const { return *all_[index]; }
  [[nodiscard]] JobStep& front() const { return *all_.front(); }
  // Parameters and buffers of all of them.
  [[nodiscard]] const TrainingStep& model() const { return model_; }
  // Variables, buffers and what else a job begins with, of all of them, each once.
  [[nodiscard]] std::vector<NamedTensor> initial_tensors() const;
  [[nodiscard]] std::int64_t done() const;  // of all together
  // Whether this rank has a part in none of them (`role: server`): it owns what it owns.
  [[nodiscard]] bool only_serve() const;
  // As JobStep::note_values(), of all.
  void note_values();

  // Whose turn it is; the first one before any had its turn.
  [[nodiscard]] JobStep& current() const { return *all_[turn_.value_or(0)]; }
  [[nodiscard]] exec::Runner& runner() const { return current().runner(); }
  // By all ranks in the same order. REQUIRES: started.
  JobStep& take_turn(std::size_t index);
  // What the chief says of a work that it has done alone, at whoever calls this for the same kind
  // of work: why it failed, or nothing. `failure` is the chief's word. REQUIRES: started.
  std::string outcome(const char* of, const std::string& failure);

  // Of another Program for one of them: throws Error(kInfeasible) where it does not let the others
  // train the variables that they share with it.
  void check_shared(std::size_t index, const program::Program& program) const;
  // What a run of the step talks through.
  [[nodiscard]] exec::RunnerConnections connections_of(std::size_t index);
  [[nodiscard]] bool have_library() const { return collectives_ != nullptr; }
  // Connects the library where a plan all-reduces by it, once. By all ranks at the same point.
  void connect_library();
  void close_library() { collectives_.reset(); }

 private:
  void unite_models();
  void find_shared();

  JoinedJob& job_;
  std::unique_ptr<comm::Channels> channels_;  // where there are several steps
  std::unique_ptr<comm::Collectives> collectives_;
  std::vector<std::unique_ptr<JobStep>> all_;
  TrainingStep model_;
  std::vector<std::vector<ir::VariableId>> shared_;  // by step: those that others train, too
  std::optional<std::size_t> turn_;
  bool started_ = false;
};

}  // namespace autodist::job
