#include "autodist/sim/symmetry.h"

#include <algorithm>
#include <tuple>

namespace autodist::sim {
namespace {

auto figures(const NodeTable& node) {
  return std::make_tuple(node.bytes_per_s, node.latency, node.intra_bytes_per_s, node.cores,
                         node.ranks.size());
}

auto figures(const SliceTable& slice) {
  return std::tie(slice.needed, slice.contribution, slice.result, slice.asked, slice.fetched,
                  slice.sum_seconds, slice.sum_one, slice.update_seconds, slice.sums_all);
}

auto rules(const protocol::Job::Slice& slice) {
  return std::tie(slice.ring, slice.synchronous, slice.at_owner, slice.by_all, slice.route.table,
                  slice.variables, slice.clip_norms, slice.lamb_norms);
}

class Finder {
 public:
  Finder(std::size_t ranks, const CostModel& costs, const JobTables& tables)
      : costs_(costs), tables_(tables), ranks_(ranks) {
    by_owner_.resize(ranks_);
    for (std::size_t i = 0; i < tables.slices.size(); ++i) {
      by_owner_[tables.job.slices[i].owner.value].push_back(static_cast<std::uint32_t>(i));
    }
  }

  [[nodiscard]] bool turns_by(std::size_t shift) const {
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::size_t s = (r + shift) % ranks_;
      if (costs_.device_of_rank[r] != costs_.device_of_rank[s] ||
          tables_.role_of_rank[r] != tables_.role_of_rank[s] ||
          figures(tables_.nodes[tables_.node_of_rank[r]]) !=
              figures(tables_.nodes[tables_.node_of_rank[s]]) ||
          !same_slices(by_owner_[r], by_owner_[s], shift)) {
        return false;
      }
    }
    return std::all_of(
        tables_.collectives.begin(), tables_.collectives.end(), [&](const CollectiveTable& each) {
          // Message by message the parts of a ring must be equal, too.
          const auto n = static_cast<std::int64_t>(each.members->size());
          const bool equal_parts = each.bytes % n == 0 && each.second_bytes % n == 0;
          return turns(*each.members, *each.members, shift) && (equal_parts || !tables_.mixed);
        });
  }

  std::vector<std::vector<std::uint32_t>> take_owners() { return std::move(by_owner_); }

 private:
  // Whether `a`, turned by `shift`, is `b`.
  [[nodiscard]] bool turns(const std::vector<program::Rank>& a, const std::vector<program::Rank>& b,
                           std::size_t shift) const {
    if (a.size() != b.size()) return false;
    if (a.size() == ranks_) return true;
    std::vector<program::Rank> turned;
    for (program::Rank rank : a) turned.emplace_back((rank.value + shift) % ranks_);
    std::sort(turned.begin(), turned.end());
    return turned == b;
  }

  [[nodiscard]] bool same_slices(const std::vector<std::uint32_t>& a,
                                 const std::vector<std::uint32_t>& b, std::size_t shift) const {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const protocol::Job::Slice& one = tables_.job.slices[a[i]];
      const protocol::Job::Slice& other = tables_.job.slices[b[i]];
      if (figures(tables_.slices[a[i]]) != figures(tables_.slices[b[i]]) ||
          rules(one) != rules(other) || !turns(*one.members, *other.members, shift)) {
        return false;
      }
    }
    return true;
  }

  const CostModel& costs_;
  const JobTables& tables_;
  std::size_t ranks_;
  std::vector<std::vector<std::uint32_t>> by_owner_;
};

}  // namespace

Symmetry no_symmetry(const program::Program& program) {
  Symmetry symmetry;
  symmetry.ranks = static_cast<std::uint32_t>(program.ranks.size());
  symmetry.period = symmetry.ranks;
  return symmetry;
}

Symmetry find_symmetry(const program::Program& program, const CostModel& costs,
                       const JobTables& tables) {
  Symmetry symmetry = no_symmetry(program);
  if (costs.slowness || !tables.uplinks.rates().empty() || symmetry.ranks < 2) return symmetry;
  Finder finder(program.ranks.size(), costs, tables);
  const std::size_t per_node = protocol::ranks_per_node(program);
  if (per_node == 0) return symmetry;
  for (std::size_t shift = per_node; shift < symmetry.ranks; shift += per_node) {
    if (symmetry.ranks % shift != 0 || !finder.turns_by(shift)) continue;
    symmetry.period = static_cast<std::uint32_t>(shift);
    symmetry.ranks_per_node = static_cast<std::uint32_t>(per_node);
    symmetry.by_owner = finder.take_owners();
    symmetry.places.resize(tables.slices.size());
    for (std::uint32_t owner = 0; owner < symmetry.ranks; ++owner) {
      for (std::uint32_t i = 0; i < symmetry.by_owner[owner].size(); ++i) {
        symmetry.places[symmetry.by_owner[owner][i]] = {owner, i};
      }
    }
    break;
  }
  return symmetry;
}

}  // namespace autodist::sim
