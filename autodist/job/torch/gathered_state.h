// A job's state between two steps, gathered at the chief: what checkpoints and snapshots are made
// of. Private to the session.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/job/torch/job_steps.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/session_state.h"

namespace autodist::job {

class GatheredState {
 public:
  GatheredState(JoinedJob& job, JobSteps& steps) : job_(job), steps_(steps) {}

  // What the program keeps beside the model (Session::keep), and what a checkpoint had of that, as
  // safetensors. Throws Error(kUsage) for a name that is empty or is kept already.
  void keep(const std::string& name, Kept what);
  void restore_kept(const std::string& safetensors, const std::string& where);

  // Whether the owners hold everything that a checkpoint has beside the chief's own, so that the
  // chief needs no other rank's code for it.
  [[nodiscard]] bool owners_hold_everything() const;
  [[nodiscard]] Bytes bytes() const;

  // What is saved of a step is gathered once; the chief keeps it until the next step begins, so
  // that it may be written into another directory, and tried again where it could not be written.
  // By all ranks, or, not `with_the_others`, at least by the chief. Whether it was not there yet.
  bool gather(bool with_the_others);
  [[nodiscard]] bool is_gathered() const { return gathered_at_ == steps_.done(); }
  // At the chief: with a copy of what the program may change between two calls, too. REQUIRES: no
  // thread reads what is gathered. Throws Error(kUsage) where the next step has begun, and what
  // Kept::state throws.
  std::shared_ptr<StateCopy> copy();
  // The next step begins: its memory is that step's.
  void release() { gathered_.reset(); }
  // As if it had not been gathered.
  void forget();

 private:
  [[nodiscard]] StateCopy gather_all(bool with_the_others);
  [[nodiscard]] std::vector<exec::TensorData> kept_state() const;

  JoinedJob& job_;
  JobSteps& steps_;
  std::map<std::string, Kept> kept_;
  std::map<std::string, std::string> unclaimed_;  // states that were loaded, and nobody keeps yet
  std::optional<std::int64_t> gathered_at_;       // steps done
  std::shared_ptr<StateCopy> gathered_;
};

}  // namespace autodist::job
