// Snapshots of a job: checkpoints in the memory of who supervises it (job/job_memory.h), from which
// it goes on after a loss. Private to the session.
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
#include "autodist/job/job_memory.h"
#include "autodist/job/snapshot_schedule.h"
#include "autodist/job/torch/session_state.h"

namespace autodist::job {

class Snapshots {
 public:
  // What LoadedState says of where it was read.
  static constexpr const char* kFrom = "the job's memory";

  // `memory` is the chief's, others have none; it and the clock outlive this. The jobs of a process
  // are told apart by their order.
  Snapshots(JobMemory* memory, const Clock& clock, Warn warn);

  // The job's state of its former life, where none of its checkpoints on a disk is newer. At the
  // chief. Throws as load_at_chief() does.
  std::optional<LoadedState> former(const TrainingStep& model,
                                    const std::vector<const JobStep*>& steps);

  // What the chief says to all ranks of the next one, and what they do then: after how many steps
  // it is due; the first ones are counted from the first place where one might be.
  [[nodiscard]] std::string next() const;
  void follow(const std::string& said);
  bool is_due(std::int64_t step);

  // At the chief.
  [[nodiscard]] bool is_writing() const;
  std::string put_off(std::int64_t step) const;
  // A thread writes it while the steps go on. The steps have been held since `begin`. Returns what
  // the chief says of the next one. REQUIRES: !is_writing().
  std::string write(std::shared_ptr<StateCopy> state, Seconds begin);
  // There are none any more, and the reason is told.
  std::string give_up(const std::string& why);
  // Until the one that is under way is written: what it reads may be changed then.
  void finish_writing();

 private:
  struct Written {
    Seconds took;
    std::string failure;
  };
  Written write_to_memory(StateCopy& state) const;

  JobMemory* memory_;
  const Clock& clock_;
  Warn warn_;
  std::string job_;  // what its files' names begin with
  bool are_taken_;
  std::optional<std::int64_t> due_;  // steps
  std::optional<SnapshotSchedule> schedule_;
  std::future<Written> writing_;
  Written last_;
};

}  // namespace autodist::job
