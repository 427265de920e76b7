// Faults on purpose: what `autodist chaos` does to the ranks of a job, and how the job came back.
// At the process that supervises the job, which knows when it trains.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/file.h"
#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/job/job_memory.h"

namespace autodist::app {

struct FaultPlan {
  double every = 30;       // seconds of training before each, in the mean: half to one and a half
  std::uint32_t most = 0;  // 0: without end
  std::uint64_t seed = 0;  // of whom, and when
  bool stops = false;      // some are ranks that are halted, and neither work nor end
  double cut = 0;          // some are machines that are cut off for so many seconds; 0: none
  std::string log;         // a file of JSON, a line per fault; empty: none

  friend bool operator==(const FaultPlan&, const FaultPlan&);
};

// The plan as one word of a command line.
std::string to_text(const FaultPlan& plan);
// The plan that to_text() has written. Throws Error(kUsage) for another text.
FaultPlan parse_fault_plan(const std::string& text);

// A rank of this process's job, on this machine or elsewhere.
struct RankAt {
  std::uint32_t rank = 0;
  std::string node;  // empty: here
  int pid = 0;       // here: the process, or its group as a negative number
  std::string mark;  // elsewhere: a condition of the script that looks for its processes
};

// The ranks that run now, by number: those that were this standby, or (0) never one. This process
// has started all of them, or their chief.
std::vector<RankAt> running_ranks(const cluster::Cluster& cluster, bool cpu_only,
                                  std::uint32_t standby);

class Faults {
 public:
  // `machines` are those that the job has now. Throws Error(kUsage) where the log cannot be
  // written, and as check_partitions() does.
  Faults(FaultPlan plan, std::function<cluster::Cluster()> machines, bool cpu_only);

  // Often, while a generation runs, which was this standby; `lost`: the job has not trained since a
  // loss. Harms a rank when it is time.
  void look(const job::JobMemory::Progress& progress, bool lost, std::uint32_t standby);
  // The job trains again, with so many steps to be done once more.
  void note_training_again(std::int64_t steps_again);
  // At the job's end: says how often it came back, how fast, and what it cost.
  void summarise() const;

 private:
  // What each fault does is taken in turn.
  enum class Kind { kKill, kHalt, kCut };
  [[nodiscard]] Kind next_kind() const;
  void harm_one(std::uint32_t standby);
  void cut(const std::string& address, const cluster::Cluster& cluster);
  // REQUIRES: there is one.
  const RankAt& drawn(const std::vector<RankAt>& ranks);
  void look_at_cut(const job::JobMemory::Progress& progress, bool training);

  FaultPlan plan_;
  std::function<cluster::Cluster()> machines_;
  bool cpu_only_;
  std::mt19937_64 random_;
  std::optional<AppendedFile> log_;
  SteadyClock clock_;
  std::optional<Seconds> due_;     // while it trains
  std::optional<Seconds> harmed_;  // until it trains again
  std::string what_;               // was done then
  // While a machine is cut off, and until it is known what came of it: when it is there again, and
  // how far the job was then.
  std::optional<Seconds> whole_again_;
  std::optional<std::int64_t> done_when_whole_;
  bool trained_ = false;
  std::uint32_t faults_ = 0;
  std::vector<Seconds> times_;  // from a fault until it trained again
  std::int64_t steps_again_ = 0;
};

}  // namespace autodist::app
