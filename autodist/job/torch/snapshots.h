// Snapshots of a job, from which it goes on after a loss: checkpoints in the memory of who
// supervises it (job/job_memory.h), or, where memory has no room, in the folder of its checkpoints.
// Private to the session.
//
// All ranks know after which step the next one is due; the chief alone says so, and writes.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "autodist/base/clock.h"
#include "autodist/base/units.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/snapshot_schedule.h"
#include "autodist/job/torch/session_state.h"

namespace autodist::job {

class Snapshots {
 public:
  // What LoadedState says of where it was read, where that was in memory.
  static constexpr const char* kFrom = "the job's memory";

  // `memory` is the chief's, where snapshots are to be taken; it and the clock outlive this. The
  // jobs of a process are told apart by their order (`number`) and by their models. `free` is
  // free_memory().
  Snapshots(JobMemory* memory, std::size_t number, const TrainingStep& model, const Clock& clock,
            Warn warn, std::function<Bytes()> free);

  // Decides the folder of the job's snapshots on a disk: `asked` (JobOptions::snapshot_folder), or
  // else the one that the job resumes from: `resumed`, or the folder of the step-N that it is. ""
  // is none. The process that supervises the job learns it, and writes the snapshot in memory there
  // when the job is given up. Snapshots for which memory has no room go there, too, unless the job
  // resumes from a step-N, as no later one is looked for then. At the chief, before the first
  // snapshot. Throws Error(kEnvironment).
  void choose_folder(const std::string& resumed, const std::optional<std::string>& asked);
  // The job's state of its former life, where that is newer than the step `saved`. At the chief.
  // Throws as load_at_chief() does.
  std::optional<LoadedState> newer_than(std::int64_t saved, const JobSteps& steps);

  // Whether there are any, which the chief says to all ranks.
  [[nodiscard]] bool are_taken() const { return are_taken_; }
  void follow(bool are_taken) { are_taken_ = are_taken; }
  // And after how many steps the next one is due. The first ones are counted from the first call.
  [[nodiscard]] bool is_due(std::int64_t step);
  void follow(std::int64_t due) { due_ = due; }

  // At the chief, where one is due: what it says of the next one where this one is not taken, as
  // something is being written (`is_saving`: a checkpoint), or as there is no room for a state of
  // that size, which is told.
  std::optional<std::int64_t> put_off(std::int64_t step, bool is_saving, Bytes size);
  // Of the one that was not put off: the folder that it goes to; "" where it goes into memory.
  [[nodiscard]] const std::string& goes_to() const { return goes_to_; }
  // A thread writes it while the steps go on, which it has held since `begin`. Returns after how
  // many steps the next one is due. REQUIRES: it was not put off.
  std::int64_t write(std::shared_ptr<StateCopy> state, Seconds begin);
  // As write(), where it cannot be written: the user is told why, once.
  std::int64_t fail_at(std::int64_t step, const std::string& why);
  // Until the one that is under way is written: what it reads may be changed then.
  void finish_writing();
  // The job is over after so many steps, and begins anew where it is started again. Snapshots in a
  // folder that another job holds stay there.
  void forget(std::int64_t step);

 private:
  struct Written {
    Seconds took;
    std::string failure;
  };
  // Why it has no room; "" where it has.
  [[nodiscard]] std::string lacks_in_memory(Bytes size, Bytes free) const;
  [[nodiscard]] std::string lacks_in_folder(Bytes size, Bytes free) const;
  Written write_to(const std::string& folder, StateCopy& state) const;
  void tell_what_a_loss_costs();

  JobMemory* memory_;
  const Clock& clock_;
  Warn warn_;
  std::function<Bytes()> free_;
  std::string prefix_;  // of the names of this job's files in memory
  bool are_taken_;
  std::string folder_;               // of those for which memory has no room; "" for none
  std::string goes_to_;              // folder_, or nothing
  Bytes size_;                       // of the last one
  std::optional<std::int64_t> due_;  // steps
  std::optional<SnapshotSchedule> schedule_;
  Seconds begun_;  // the schedule
  std::future<Written> writing_;
  Written last_;
  bool told_ = false;                 // that there is none, and nobody has taken one since
  bool told_folder_ = false;          // that they go there
  std::optional<Seconds> told_cost_;  // of a loss
};

}  // namespace autodist::job
