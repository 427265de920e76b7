#include "autodist/job/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace autodist::job {
namespace {

// A machine that restarts its network, or answers too late once, is not lost.
constexpr int kFailedStarts = 2;

bool has(const std::vector<std::string>& list, const std::string& address) {
  return std::find(list.begin(), list.end(), address) != list.end();
}

}  // namespace

Membership::Membership(cluster::Cluster cluster, bool cpu_only,
                       std::optional<std::uint32_t> min_ranks)
    : all_(std::move(cluster)), cpu_only_(cpu_only), members_{all_, {}} {
  ranks_ = ranks_of(members_);
  min_ranks_ = min_ranks.value_or(ranks_);
}

std::size_t Membership::ranks_of(const cluster::Members& members) const {
  return cluster::ranks_of(members.cluster, cpu_only_).size();
}

cluster::Members Membership::without_also(const std::string& address) const {
  std::vector<std::string> lost = lost_;
  lost.push_back(address);
  return cluster::without(all_, lost);
}

bool Membership::no_other_could_be_used() const {
  const std::size_t others = cluster().nodes.size() - 1;
  return others > 1 && failed_starts_.size() == others;
}

Membership::AfterFailedStart Membership::note_failed_start(
    const std::vector<std::string>& unusable) {
  std::map<std::string, int> failed;
  for (const cluster::Node& node : cluster().nodes) {
    if (has(unusable, node.address) && !node.chief) {
      failed[node.address] = failed_starts_[node.address] + 1;
    }
  }
  failed_starts_ = std::move(failed);
  AfterFailedStart after;
  if (no_other_could_be_used()) return after;
  for (const auto& [address, starts] : std::map(failed_starts_)) {
    cluster::Members left = without_also(address);
    const std::size_t ranks = ranks_of(left);
    if (ranks < min_ranks_) continue;
    if (starts < kFailedStarts) {
      after.second_look |= looked_at_twice_.insert(address).second;
      continue;
    }
    const auto spare = left.stand_ins.find(address);
    const std::string why =
        fmt::format("{} could not be used at {} starts in a row", address, kFailedStarts);
    after.changes.push_back(
        spare != left.stand_ins.end()
            ? fmt::format("{}: {}, a spare, takes its place", why, spare->second)
            : fmt::format("{}: the job goes on without it, with {} of {} ranks", why, ranks,
                          ranks_));
    lost_.push_back(address);
    members_ = std::move(left);
    failed_starts_.erase(address);
  }
  return after;
}

std::string Membership::hint() const {
  if (failed_starts_.empty()) return "";
  if (no_other_could_be_used()) {
    return "no other machine could be used: look at the network of this one";
  }
  for (const auto& [address, starts] : failed_starts_) {
    const cluster::Members left = without_also(address);
    const std::size_t ranks = ranks_of(left);
    if (ranks >= min_ranks_) continue;
    const auto spare = left.stand_ins.find(address);
    if (spare != left.stand_ins.end()) {
      return fmt::format(
          "with {}, a spare, in the place of {} the job has {} ranks: "
          "--min-ranks {} allows that",
          spare->second, address, ranks, ranks);
    }
    return fmt::format(
        "--min-ranks {} lets the job go on without {}; a node with `spare: true` in "
        "the cluster file takes a lost one's place",
        ranks, address);
  }
  return "";
}

}  // namespace autodist::job
