// Which machines a job that is started again goes on with. No clock, process or socket.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autodist/cluster/members.h"

namespace autodist::job {

class Membership {
 public:
  // With fewer ranks than `min_ranks` the job does not go on; nothing: than it began with.
  Membership(cluster::Cluster cluster, bool cpu_only, std::optional<std::uint32_t> min_ranks);

  struct AfterFailedStart {
    std::vector<std::string> changes;  // for people, a line each; empty: the same machines
    bool second_look = false;          // a machine has its last chance at the next start
  };
  // All ranks were started and did not come to train; these machines (addresses) could not be used.
  // One for which that is so at two starts in a row has its place taken by a spare, or is left out
  // (cluster::without). Where no other machine could be used, it is this one that has no network:
  // nothing changes.
  AfterFailedStart note_failed_start(const std::vector<std::string>& unusable);
  // The job trains: who could not be used before is there again.
  void note_training() {
    failed_starts_.clear();
    looked_at_twice_.clear();
  }

  [[nodiscard]] const std::vector<std::string>& lost() const { return lost_; }
  [[nodiscard]] bool cpu_only() const { return cpu_only_; }
  // Of the next start.
  [[nodiscard]] const cluster::Cluster& cluster() const { return members_.cluster; }
  // What would let the job go on without the machines that were missing last; empty: nothing would.
  [[nodiscard]] std::string hint() const;

 private:
  [[nodiscard]] std::size_t ranks_of(const cluster::Members& members) const;
  [[nodiscard]] cluster::Members without_also(const std::string& address) const;
  [[nodiscard]] bool no_other_could_be_used() const;

  cluster::Cluster all_;
  bool cpu_only_;
  std::size_t ranks_;  // at the beginning
  std::size_t min_ranks_;
  std::vector<std::string> lost_;
  cluster::Members members_;
  std::map<std::string, int> failed_starts_;  // in a row, by address
  std::set<std::string> looked_at_twice_;     // since the job has trained
};

}  // namespace autodist::job
