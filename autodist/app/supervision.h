// What a process does that is no rank and starts a job's ranks again when they were lost: it asks
// the arbiter, says what happens, and keeps what the job remembers.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/app/faults.h"
#include "autodist/base/clock.h"
#include "autodist/base/units.h"
#include "autodist/comm/failure_detector.h"
#include "autodist/job/arbiter.h"
#include "autodist/job/job_memory.h"
#include "autodist/job/membership.h"

namespace autodist::app {

// Between two looks at what runs.
inline constexpr std::chrono::milliseconds kLook{20};

class Supervision {
 public:
  // `machines` reads the job's cluster; asked when a machine is missing. Throws
  // Error(kEnvironment).
  Supervision(std::uint32_t restarts, std::function<job::Membership()> machines)
      : arbiter_(restarts), machines_(std::move(machines)) {}

  // Ranks are harmed on purpose from now on. Throws as the constructor of Faults does.
  void add_faults(const FaultPlan& plan);
  // Says what came of them, where there were some.
  ~Supervision();

  job::JobMemory& memory() { return memory_; }
  // Machines of the cluster file that the next generation is without (job::lost_machines).
  [[nodiscard]] std::vector<std::string> lost() const;

  // To be called often while a generation runs. Says when it trains again, and when its chief falls
  // silent. `chief` is the chief's name, empty where it has ended. Where the chief has been silent
  // for too long, as a halted process is, returns the line to say: the caller ends that chief.
  [[nodiscard]] std::optional<std::string> look(const std::string& chief);

  // For Standby. Whether it is time to start one; the number of the one that is started now.
  [[nodiscard]] bool standby_is_due() const;
  std::uint32_t begin_standby();
  // Whether that one has the machines and the plan that the job has by now.
  [[nodiscard]] bool standby_fits() const;
  // Whether all of its ranks wait for their turn, and its chief says so now. Takes some
  // milliseconds.
  [[nodiscard]] bool standby_waits() const;
  // How it ended, before its turn.
  void note_standby_end(const std::string& how);

  // When a generation has ended: whether another one begins, which is said and waited for. The job
  // goes on from its snapshot, or from a checkpoint where `folder` holds a newer one of this job's;
  // empty: where it finds them is its own affair. `stop` ends the waiting: the job is over then.
  // `standby` is asked when it is known which machines there are: whether one can take over.
  bool goes_on(job::GenerationEnd end, const std::string& folder, const std::atomic<bool>& stop,
               const std::function<bool()>& standby);

  // For a job that is over: writes the snapshot in memory as a checkpoint into the folder that the
  // job has named (job::Snapshots::choose_folder), where it is newer than what was saved there, and
  // says so, or why it cannot.
  void save_snapshot();
  // The newest checkpoint that this job wrote there; nothing: it wrote none.
  [[nodiscard]] std::optional<std::string> checkpoint_in(const std::string& folder) const;

 private:
  void look_at_progress();
  void look_at_standby();
  [[nodiscard]] std::optional<std::string> silence_of(const std::string& chief);
  [[nodiscard]] std::string where_it_begins(const std::string& folder) const;
  job::Membership& membership();
  // How long to wait for machines that were missing.
  Seconds note_missing_machines(const job::JobMemory::Progress& progress);

  job::Arbiter arbiter_;
  std::function<job::Membership()> machines_;
  std::optional<job::Membership> membership_;  // since a machine was missing
  job::JobMemory memory_;
  SteadyClock clock_;
  std::optional<Seconds> lost_at_;  // until it trains again
  // The newest standby: its number, and what lost() and the number of plans were at its start.
  std::uint32_t standby_ = 0;
  std::vector<std::string> standby_lost_;
  std::int64_t standby_plans_ = 0;
  bool says_when_ready_ = false;
  int failed_standbys_ = 0;  // since one was ready
  Seconds next_standby_;
  std::optional<Faults> faults_;
  // Of the generation that runs:
  std::optional<comm::FailureDetector> chief_;  // since its chief was heard
  job::JobMemory::Heartbeats heartbeats_;       // as it was last heard
  Seconds heard_;
  Seconds looked_;
};

}  // namespace autodist::app
