// Snapshots of a job: checkpoints in the memory of who supervises it (job/job_memory.h), from which
// it goes on after a loss. Private to the session.
//
// All ranks know after which step the next one is due; the chief alone says so, and writes.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/snapshot_schedule.h"
#include "autodist/job/torch/session_state.h"

namespace autodist::job {

class Snapshots {
 public:
  // What LoadedState says of where it was read.
  static constexpr const char* kFrom = "the job's memory";

  // `memory` is the chief's, where snapshots are to be taken; it and the clock outlive this. The
  // jobs of a process are told apart by their order (`number`) and by their models.
  Snapshots(JobMemory* memory, std::size_t number, const TrainingStep& model, const Clock& clock,
            Warn warn);

  // A checkpoint, or a folder of them: where what is in memory belongs if the job is given up. ""
  // for none. At the chief. Throws Error(kEnvironment).
  void resumes_from(const std::string& directory);
  // The job's state of its former life, where that is newer than the step `saved`. At the chief.
  // Throws as load_at_chief() does.
  std::optional<LoadedState> newer_than(std::int64_t saved, const TrainingStep& model,
                                        const std::vector<const JobStep*>& steps);

  // Whether there are any, which the chief says to all ranks.
  [[nodiscard]] bool are_taken() const { return are_taken_; }
  void follow(bool are_taken) { are_taken_ = are_taken; }
  // And after how many steps the next one is due. The first ones are counted from the first call.
  [[nodiscard]] bool is_due(std::int64_t step);
  void follow(std::int64_t due) { due_ = due; }

  // At the chief, where one is due: what it says of the next one where this one is not taken, as
  // something is being written (`is_saving`: a checkpoint), or as there is no memory for a state
  // of that size, which is told.
  std::optional<std::int64_t> put_off(std::int64_t step, bool is_saving, Bytes size);
  // A thread writes it while the steps go on, which it has held since `begin`. Returns after how
  // many steps the next one is due. REQUIRES: it was not put off.
  std::int64_t write(std::shared_ptr<StateCopy> state, Seconds begin);
  // As write(), where it cannot be written: the user is told why, once.
  std::int64_t fail_at(std::int64_t step, const std::string& why);
  // Until the one that is under way is written: what it reads may be changed then.
  void finish_writing();
  // The job is over, and begins anew where it is started again.
  void forget();

 private:
  struct Written {
    Seconds took;
    std::string failure;
  };
  Written write_to_memory(StateCopy& state) const;
  void tell_what_a_loss_costs();

  JobMemory* memory_;
  const Clock& clock_;
  Warn warn_;
  std::string job_;  // what its files' names begin with
  bool are_taken_;
  std::optional<std::int64_t> due_;  // steps
  std::optional<SnapshotSchedule> schedule_;
  std::future<Written> writing_;
  Written last_;
  bool told_ = false;  // that there is none, and nobody has taken one since
  bool told_cost_ = false;
};

}  // namespace autodist::job
