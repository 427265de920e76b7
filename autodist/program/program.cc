#include "autodist/program/program.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "autodist/base/check.h"

namespace autodist::program {

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
  return std::tie(a.pieces, a.dtype, a.owner, a.needed, a.members, a.update_at, a.staleness,
                  a.synchronous, a.compression, a.rows, a.route, a.sufficient_factors) ==
         std::tie(b.pieces, b.dtype, b.owner, b.needed, b.members, b.update_at, b.staleness,
                  b.synchronous, b.compression, b.rows, b.route, b.sufficient_factors);
}

bool operator==(const Collective& a, const Collective& b) {
  return std::tie(a.variables, a.dtype, a.members, a.spec, a.compression) ==
         std::tie(b.variables, b.dtype, b.members, b.spec, b.compression);
}

bool operator==(const Transfer& a, const Transfer& b) {
  return std::tie(a.value, a.micro_batch, a.from, a.to) ==
         std::tie(b.value, b.micro_batch, b.from, b.to);
}

bool operator==(const VariablePlan& a, const VariablePlan& b) {
  return std::tie(a.slices, a.collective, a.clip) == std::tie(b.slices, b.collective, b.clip);
}

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

bool operator==(const Stream& a, const Stream& b) {
  return std::tie(a.kind, a.instructions) == std::tie(b.kind, b.instructions);
}

bool operator==(const Role& a, const Role& b) {
  return std::tie(a.ranks, a.streams) == std::tie(b.ranks, b.streams);
}

std::int64_t element_count(const Slice& slice) {
  std::int64_t count = 0;
  for (const Piece& piece : slice.pieces) count += piece.end - piece.begin;
  return count;
}

bool combined_by_all(const Slice& slice) {
  return slice.rows == RowTransfer::kGather || slice.sufficient_factors;
}

bool combines(const Slice& slice, Rank rank) {
  if (!combined_by_all(slice)) return slice.owner == rank;
  return std::binary_search(slice.members.begin(), slice.members.end(), rank);
}

Bytes bytes_of(const Slice& slice) {
  return Bytes(element_count(slice) * static_cast<std::int64_t>(size_of(slice.dtype)));
}

Bytes contribution_bytes(const Slice& slice) {
  return Bytes(contribution_bytes(slice.compression, slice.dtype, element_count(slice)));
}

Bytes result_bytes(const Slice& slice) {
  if (slice.update_at == UpdateAt::kOwner) return bytes_of(slice);
  if (slice.compression.codec != Codec::kTopK) return contribution_bytes(slice);
  const auto members = static_cast<std::int64_t>(slice.members.size());
  return Bytes(std::min(bytes_of(slice).value, contribution_bytes(slice).value * members));
}

std::int64_t element_count(const ir::Graph& graph, const Collective& collective) {
  std::int64_t count = 1;
  for (const ir::VariableId id : collective.variables) {
    const MatrixShape shape = matrix_of(ir::shape_of(graph, id));
    const auto rank = factor_rank(collective.compression, shape);
    count += rank ? (shape.rows + shape.columns) * *rank : element_count(graph, id);
  }
  return count;
}

std::uint32_t Program::replica_count() const {
  return static_cast<std::uint32_t>(std::count_if(
      ranks.begin(), ranks.end(), [](const RankInfo& rank) { return rank.replica.has_value(); }));
}

std::string name_of(const Transfer& transfer) {
  const std::string what =
      transfer.value ? "%" + std::to_string(transfer.value->value) : "the generator";
  return what + " of stage " + std::to_string(transfer.from);
}

Rank Program::stage_mate(Rank rank, std::uint32_t stage) const {
  const std::uint32_t wanted = batch_part(rank) * stages + stage;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].replica == wanted) return Rank(i);
  }
  AD_CHECK(false) << "no rank computes stage " << stage;
  return rank;
}

std::uint32_t Program::staleness(ir::VariableId id) const {
  const std::vector<SliceId>& slices = plan(id).slices;
  return slices.empty() ? 0 : slice(slices.front()).staleness;
}

bool Program::synchronous(ir::VariableId id) const {
  const auto& slices = plan(id).slices;
  return slices.empty() || slice(slices.front()).synchronous;
}

RowTransfer Program::rows(ir::VariableId id) const {
  const auto& slices = plan(id).slices;
  return slices.empty() ? RowTransfer::kNone : slice(slices.front()).rows;
}

bool Program::travels_as_factors(ir::VariableId id) const {
  const auto& slices = plan(id).slices;
  return !slices.empty() && slice(slices.front()).sufficient_factors;
}

bool Program::fetches_rows() const {
  return std::any_of(slices.begin(), slices.end(),
                     [](const Slice& each) { return each.rows == RowTransfer::kFetch; });
}

bool Program::synchronous() const {
  return std::all_of(slices.begin(), slices.end(),
                     [](const Slice& each) { return each.synchronous; });
}

std::uint32_t Program::staleness() const {
  std::uint32_t most = 0;
  for (const Slice& each : slices) most = std::max(most, each.staleness);
  return most;
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
  const std::int64_t share = batch / count;
  const std::int64_t larger = batch % count;
  const auto begin_of = [&](std::int64_t i) { return i * share + std::min(i, larger); };
  return {begin_of(index), begin_of(std::int64_t{index} + 1)};
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
