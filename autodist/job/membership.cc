#include "autodist/job/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

std::vector<std::string> Membership::note_failed_start(const std::vector<std::string>& unusable) {
  std::map<std::string, int> failed;
  for (const cluster::Node& node : members_.cluster.nodes) {
    if (has(unusable, node.address) && !node.chief) {
      failed[node.address] = failed_starts_[node.address] + 1;
    }
  }
  failed_starts_ = std::move(failed);
  std::vector<std::string> lines;
  for (const auto& [address, starts] : std::map(failed_starts_)) {
    if (starts < kFailedStarts) continue;
    std::vector<std::string> lost = lost_;
    lost.push_back(address);
    cluster::Members left = cluster::without(all_, lost);
    const std::size_t ranks = ranks_of(left);
    if (ranks < min_ranks_) continue;
    const auto spare = left.stand_ins.find(address);
    const std::string why =
        fmt::format("{} could not be used at {} starts in a row", address, kFailedStarts);
    if (spare != left.stand_ins.end()) {
      lines.push_back(fmt::format("{}: {}, a spare, takes its place", why, spare->second));
    } else {
      lines.push_back(
          fmt::format("{}: the job goes on without it, with {} of {} ranks", why, ranks, ranks_));
    }
    lost_ = std::move(lost);
    members_ = std::move(left);
    failed_starts_.erase(address);
  }
  return lines;
}

std::string Membership::hint() const {
  if (failed_starts_.empty()) return "";
  std::vector<std::string> lost = lost_;
  std::vector<std::string> addresses;
  for (const auto& [address, starts] : failed_starts_) {
    lost.push_back(address);
    addresses.push_back(address);
  }
  const std::size_t ranks = ranks_of(cluster::without(all_, lost));
  return fmt::format(
      "--min-ranks {} lets the job go on without {}; a node with `spare: true` in "
      "the cluster file takes a lost one's place",
      ranks, fmt::join(addresses, ", "));
}

}  // namespace autodist::job
