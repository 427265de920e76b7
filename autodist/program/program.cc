#include "autodist/program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/even_part.h"
#include "autodist/program/loads.h"

namespace autodist::program {

bool operator==(const RankInfo&, const RankInfo&) = default;
bool operator==(const Shard&, const Shard&) = default;
bool operator==(const Piece&, const Piece&) = default;
bool operator==(const Slice&, const Slice&) = default;
bool operator==(const Collective&, const Collective&) = default;
bool operator==(const StageTransfer&, const StageTransfer&) = default;
bool operator==(const VariablePlan&, const VariablePlan&) = default;

namespace {

auto fields(const Gate& gate) { return std::tie(gate.variable); }
auto fields(const Compute& compute) { return std::tie(compute.op, compute.micro_batch); }
auto fields(const Contribute& contribute) {
  return std::tie(contribute.variable, contribute.gradient, contribute.micro_batch);
}
auto fields(const KeepFactors& keep) { return std::tie(keep.variable, keep.left, keep.right); }
auto fields(const Release& release) { return std::tie(release.variable); }
auto fields(const AllReduce& all_reduce) { return std::tie(all_reduce.collective); }
auto fields(const Update& update) { return std::tie(update.variable); }
auto fields(const Norm& norm) { return std::tie(norm.clip); }
auto fields(const AgreeFinite& agree) { return std::tie(agree.scaling); }
auto fields(const StepBarrier&) { return std::tuple<>(); }
auto fields(const Send& send) { return std::tie(send.transfer); }
auto fields(const Receive& receive) { return std::tie(receive.transfer); }
auto fields(const Fetch& fetch) { return std::tie(fetch.variable, fetch.rows); }

}  // namespace

bool operator==(const Instruction& a, const Instruction& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& left) {
        return fields(left) == fields(std::get<std::decay_t<decltype(left)>>(b));
      },
      a);
}

bool operator==(const Stream&, const Stream&) = default;
bool operator==(const Role&, const Role&) = default;

std::int64_t element_count(const Slice& slice) {
  std::int64_t count = 0;
  for (const Piece& piece : slice.pieces) count += piece.end - piece.begin;
  return count;
}

bool combines(const Slice& slice, Rank rank) {
  if (!goes_to_all(slice.exchange)) return slice.owner == rank;
  return std::binary_search(slice.members.begin(), slice.members.end(), rank);
}

Bytes bytes_of(const Slice& slice) {
  return Bytes(element_count(slice) * static_cast<std::int64_t>(size_of(slice.dtype)));
}

std::uint32_t Program::replica_count() const {
  return static_cast<std::uint32_t>(std::count_if(
      ranks.begin(), ranks.end(), [](const RankInfo& rank) { return rank.replica.has_value(); }));
}

std::string name_of(const StageTransfer& transfer) {
  const std::string what =
      transfer.value ? fmt::format("%{}", transfer.value->value) : "the generator";
  return fmt::format("{} of stage {}", what, transfer.from);
}

std::vector<Rank> Program::computing_ranks() const {
  std::vector<Rank> computing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (computes(Rank(i))) computing.emplace_back(i);
  }
  return computing;
}

Rank Program::stage_mate(Rank rank, std::uint32_t stage) const {
  const std::uint32_t wanted = batch_part(rank) * stages + stage;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].replica == wanted) return Rank(i);
  }
  AD_CHECK(false) << "no rank computes stage " << stage;
  return rank;
}

Exchange Program::exchange(ir::VariableId id) const {
  const VariablePlan& plan = this->plan(id);
  if (!plan.slices.empty()) return slice(plan.slices.front()).exchange;
  if (plan.collective) return collectives[plan.collective->value].exchange;
  return Alone{};
}

std::optional<std::uint32_t> Program::lag() const {
  std::uint32_t most = 0;
  for (const Slice& each : slices) {
    const std::optional<std::uint32_t> lag = lag_of(each.exchange);
    if (!lag) return std::nullopt;
    most = std::max(most, *lag);
  }
  return most;
}

std::uint32_t Program::open_steps() const {
  std::uint32_t most = 1;
  for (const Slice& each : slices) most = std::max(most, program::open_steps(each.exchange));
  return most;
}

bool Program::keeps_whole_copies() const {
  return std::all_of(slices.begin(), slices.end(),
                     [](const Slice& each) { return program::keeps_whole_copies(each.exchange); });
}

std::optional<ir::LossScaling> loss_scaling_of(const Program& program) {
  for (const Role& role : program.roles) {
    for (const Stream& stream : role.streams) {
      for (const Instruction& instruction : stream.instructions) {
        if (const auto* agree = std::get_if<AgreeFinite>(&instruction)) return agree->scaling;
      }
    }
  }
  return std::nullopt;
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
  return even_part(batch, index, count);
}

std::pair<std::int64_t, std::int64_t> part_rows(const Program& program, std::int64_t batch,
                                                std::uint32_t part) {
  const std::vector<std::int64_t>& shares = program.batch_shares;
  if (shares.empty()) return replica_rows(batch, part, program.batch_parts());
  AD_CHECK(part < shares.size()) << "part " << part << " of " << shares.size();
  const auto sum_of = [&](std::size_t count) {
    return std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(count),
                           std::int64_t{0});
  };
  const std::int64_t all = sum_of(shares.size());
  // batch * sum / all, without its overflow.
  const auto begin_of = [&](std::size_t count) {
    return batch / all * sum_of(count) + batch % all * sum_of(count) / all;
  };
  return {begin_of(part), begin_of(part + 1)};
}

}  // namespace autodist::program
