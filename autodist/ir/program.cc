#include "autodist/ir/program.h"

#include <algorithm>
#include <tuple>

#include "autodist/base/check.h"

namespace autodist::ir {

bool operator==(const RankInfo& a, const RankInfo& b) {
  return std::tie(a.node, a.device, a.replica) == std::tie(b.node, b.device, b.replica);
}

bool operator==(const Shard& a, const Shard& b) {
  return std::tie(a.variable, a.name, a.axis, a.begin, a.end, a.elements) ==
         std::tie(b.variable, b.name, b.axis, b.begin, b.end, b.elements);
}

bool operator==(const Piece& a, const Piece& b) {
  return std::tie(a.shard, a.begin, a.end) == std::tie(b.shard, b.begin, b.end);
}

bool operator==(const Slice& a, const Slice& b) {
  return std::tie(a.pieces, a.dtype, a.owner, a.needed, a.members, a.update_at) ==
         std::tie(b.pieces, b.dtype, b.owner, b.needed, b.members, b.update_at);
}

std::int64_t element_count(const Slice& slice) {
  std::int64_t count = 0;
  for (const Piece& piece : slice.pieces) count += piece.end - piece.begin;
  return count;
}

Bytes bytes_of(const Slice& slice) {
  return Bytes(element_count(slice) * static_cast<std::int64_t>(size_of(slice.dtype)));
}

std::uint32_t Program::replica_count() const {
  return static_cast<std::uint32_t>(std::count_if(
      ranks.begin(), ranks.end(), [](const RankInfo& rank) { return rank.replica.has_value(); }));
}

const Role& role_of(const Program& program, Rank rank) {
  for (const Role& role : program.roles) {
    if (std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end()) return role;
  }
  AD_CHECK(false) << "rank " << rank << " has no role";
  return program.roles.front();
}

std::pair<std::int64_t, std::int64_t> replica_rows(std::int64_t batch, std::uint32_t index,
                                                   std::uint32_t count) {
  const std::int64_t share = batch / count;
  const std::int64_t larger = batch % count;
  const auto begin_of = [&](std::int64_t i) { return i * share + std::min(i, larger); };
  return {begin_of(index), begin_of(std::int64_t{index} + 1)};
}

}  // namespace autodist::ir
