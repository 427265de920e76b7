// Who owns what. Parameter servers are named by the strategy; a direct all-reduce spreads each
// group evenly over its members, so that every one of them sends and receives the same.

#include <algorithm>
#include <map>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/pass.h"
#include "autodist/passes/slice_table.h"
#include "autodist/passes/synchronizer_kind.h"
#include "autodist/program/route.h"

namespace autodist::passes {
namespace {

// A block of rows is one slice: few messages per step, and a checkpoint moves no more than this
// (and its optimizer state) at a time.
constexpr std::int64_t kRowBlockBytes = 32 << 20;

class Synchroniser {
 public:
  explicit Synchroniser(State& state) : state_(state), program_(state.program) {
    for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
      if (program_.ranks[i].replica) members_.emplace_back(i);
    }
  }

  void run() {
    set_clips();
    name_ranks();
    find_locals();
    using Group = std::tuple<std::int32_t, DType, program::UpdateAt, program::Route>;
    std::map<Group, std::vector<program::ShardId>> direct;
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      const ir::VariableId variable = program_.shards[i].variable;
      if (!state_.graph().variable(variable).gradient || local_[variable.value]) continue;
      const strategy::Synchronizer& synchronizer = *state_.synchronizers[i];
      if (ir::trained_by_rows(state_.graph().variable(variable))) {
        add_rows(program::ShardId(i), synchronizer);
        continue;
      }
      switch (kind_of(synchronizer)) {
        case SynchronizerKind::kParameterServer:
          add_slices({program::ShardId(i), 0, program_.shards[i].elements},
                     destination(synchronizer), program::UpdateAt::kOwner);
          break;
        case SynchronizerKind::kDirect:
          if (sends_factors(program::ShardId(i))) {
            add_factors(program::ShardId(i));
            break;
          }
          direct[{all_reduce(i).group, dtype_of(program::ShardId(i)), all_reduce(i).update_at,
                  route_of(synchronizer)}]
              .emplace_back(i);
          break;
        case SynchronizerKind::kLibrary:
          add_to_collective(program::ShardId(i));
          break;
      }
    }
    for (const auto& [group, shards] : direct) {
      spread(shards, std::get<DType>(group), std::get<program::UpdateAt>(group));
    }
    name_slices(program_);
  }

 private:
  DType dtype_of(program::ShardId id) const {
    const ir::Variable& variable = state_.graph().variable(program_.shard(id).variable);
    return state_.graph().value(variable.value).type.dtype;
  }
  const strategy::AllReduceSynchronizer& all_reduce(std::size_t shard) const {
    return std::get<strategy::AllReduceSynchronizer>(*state_.synchronizers[shard]);
  }

  // Who computes with the variable: of a placed graph one stage of every replica.
  std::vector<program::Rank> members_of(ir::VariableId variable) const {
    if (!program_.is_placed()) return members_;
    std::vector<program::Rank> members;
    for (const program::Rank rank : members_) {
      if (program_.stage(rank) == state_.stage_of_variable[variable.value]) members.push_back(rank);
    }
    return members;
  }

  // What a stage has is updated there: nobody else has room for it.
  void check_owner(ir::VariableId variable, program::Rank owner,
                   const std::vector<program::Rank>& members) const {
    if (!program_.is_placed() || std::binary_search(members.begin(), members.end(), owner)) return;
    fail(ErrorCode::kInfeasible,
         "{}: '{}' goes to the server at {}, and is placed on {}. Use that.", state_.where,
         state_.graph().variable(variable).name, program_.ranks[owner.value].device,
         program_.ranks[members.front().value].device);
  }

  void set_clips() {
    const auto& clips = state_.graph().clips;
    for (std::size_t i = 0; i < clips.size(); ++i) {
      for (ir::VariableId variable : clips[i].variables) {
        if (!state_.graph().variable(variable).gradient) continue;
        program_.variables[variable.value].clip = program::ClipId(i);
      }
    }
  }

  // A rank goes by its device's name, also by that in the cluster file where it runs on a CPU
  // instead; a node's lowest rank by every other CPU of the node.
  void name_ranks() {
    const auto listed = cluster::ranks_of(state_.cluster, false);
    for (std::size_t i = 0; i < listed.size(); ++i) {
      rank_of_device_.emplace(cluster::device_name(state_.cluster, listed[i]), i);
    }
    for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
      rank_of_device_.emplace(program_.ranks[i].device, i);
      lowest_rank_.emplace(program_.ranks[i].node, i);
    }
  }

  program::Rank destination(const strategy::Synchronizer& synchronizer) const {
    const std::string& device =
        std::get<strategy::PsSynchronizer>(synchronizer).reduction_destination;
    const auto exact = rank_of_device_.find(device);
    if (exact != rank_of_device_.end()) return exact->second;
    const std::string node = device.substr(0, device.rfind(':', device.rfind(':') - 1));
    const auto lowest = lowest_rank_.find(node);
    AD_CHECK(lowest != lowest_rank_.end()) << "no rank for " << device;
    return lowest->second;
  }

  // A whole variable whose gradient is a product of two matrices that are worth sending.
  bool sends_factors(program::ShardId id) const {
    if (all_reduce(id.value).algorithm != strategy::AllReduceAlgorithm::kSufficientFactors ||
        state_.options.micro_batches != 1) {
      return false;
    }
    const ir::Graph& graph = state_.graph();
    const ir::VariableId variable = program_.shard(id).variable;
    return ir::element_count(graph, variable) == program_.shard(id).elements &&
           ir::factors_pay(graph, variable, static_cast<std::int64_t>(members_.size()));
  }

  void add_factors(program::ShardId id) {
    const program::Shard& shard = program_.shard(id);
    program::Slice slice;
    slice.pieces = {{id, 0, shard.elements}};
    slice.dtype = dtype_of(id);
    slice.owner = members_[factor_slices_++ % members_.size()];
    slice.needed = state_.needed[shard.variable.value];
    slice.members = members_;
    slice.update_at = program::UpdateAt::kEveryRank;
    slice.sufficient_factors = true;
    program_.slices.push_back(std::move(slice));
  }

  // A cast to 16 bits leaves what has 16 bits.
  program::Compression compression_of(program::ShardId shard, DType dtype) const {
    const program::Compression asked = strategy::compression_of(*state_.synchronizers[shard.value]);
    return asked.codec != program::Codec::kTopK && size_of(dtype) <= 2 ? program::Compression{}
                                                                       : asked;
  }

  // Rows go to one block per owner. A parameter server without local replication keeps them until
  // somebody needs them. Of an all-reduce each member sends r bytes of rows to every other one, or
  // every member owns a part and 2(n-1)/n r bytes travel, which is less from three members on.
  void add_rows(program::ShardId shard, const strategy::Synchronizer& synchronizer) {
    const ir::VariableId variable = program_.shard(shard).variable;
    const bool fetchable = state_.options.micro_batches == 1 && !program_.is_placed() &&
                           ir::rows_read(state_.graph(), variable).has_value();
    const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer);
    if (ps != nullptr) {
      const bool fetch = fetchable && !ps->local_replication;
      add_row_blocks(shard, 0, rows_of(shard), destination(synchronizer),
                     fetch ? program::RowTransfer::kFetch : program::RowTransfer::kReturn);
      return;
    }
    const auto count = static_cast<std::uint32_t>(members_.size());
    if (!fetchable || count <= 2) {
      const program::Rank owner = members_[all_reduce(shard.value).group % count];
      return add_row_blocks(shard, 0, rows_of(shard), owner, program::RowTransfer::kGather);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto [begin, end] = program::replica_rows(rows_of(shard), i, count);
      if (begin < end) add_row_blocks(shard, begin, end, members_[i], program::RowTransfer::kFetch);
    }
  }

  [[nodiscard]] std::int64_t rows_of(program::ShardId id) const {
    return program_.shard(id).end - program_.shard(id).begin;
  }

  void add_row_blocks(program::ShardId id, std::int64_t begin, std::int64_t end,
                      program::Rank owner, program::RowTransfer rows) {
    const std::int64_t width = program_.shard(id).elements / std::max<std::int64_t>(1, rows_of(id));
    const auto row_bytes =
        std::max<std::int64_t>(1, width * static_cast<std::int64_t>(size_of(dtype_of(id))));
    const std::int64_t most = std::max<std::int64_t>(1, kRowBlockBytes / row_bytes);
    for (const program::Piece& block : cut({id, begin, end}, most)) {
      add_row_block({id, block.begin * width, block.end * width}, owner, rows);
    }
  }

  void add_row_block(const program::Piece& piece, program::Rank owner, program::RowTransfer rows) {
    const program::ShardId id = piece.shard;
    program::Slice slice;
    slice.pieces = {piece};
    slice.dtype = dtype_of(id);
    slice.owner = owner;
    slice.needed = state_.needed[program_.shard(id).variable.value];
    slice.members = members_of(program_.shard(id).variable);
    check_owner(program_.shard(id).variable, owner, slice.members);
    if (const auto* ps = std::get_if<strategy::PsSynchronizer>(state_.synchronizers[id.value])) {
      slice.staleness = static_cast<std::uint32_t>(ps->staleness);
      slice.synchronous = ps->sync;
    }
    slice.rows = rows;
    program_.slices.push_back(std::move(slice));
  }

  // Local: the only replica would send all of it to itself.
  void find_locals() {
    local_.assign(program_.variables.size(), members_.size() == 1);
    if (members_.size() != 1) return;  // a stage is never alone
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      const strategy::Synchronizer& synchronizer = *state_.synchronizers[i];
      if (kind_of(synchronizer) == SynchronizerKind::kParameterServer &&
          destination(synchronizer) != members_.front()) {
        local_[program_.shards[i].variable.value] = false;
      }
    }
  }

  void add_slices(const program::Piece& range, program::Rank owner, program::UpdateAt update_at) {
    const auto* ps = std::get_if<strategy::PsSynchronizer>(state_.synchronizers[range.shard.value]);
    const std::uint32_t staleness = ps == nullptr ? 0 : static_cast<std::uint32_t>(ps->staleness);
    const bool synchronous = ps == nullptr || ps->sync;
    const DType dtype = dtype_of(range.shard);
    const Bytes limit = state_.slice_limit();
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    program::Slice slice;
    slice.dtype = dtype;
    slice.owner = owner;
    slice.needed = state_.needed[program_.shard(range.shard).variable.value];
    slice.members = members_of(program_.shard(range.shard).variable);
    check_owner(program_.shard(range.shard).variable, owner, slice.members);
    slice.update_at = update_at;
    slice.staleness = staleness;
    slice.synchronous = synchronous;
    slice.compression = compression_of(range.shard, dtype);
    slice.route = program::effective_route(program_, slice,
                                           route_of(*state_.synchronizers[range.shard.value]));
    for (const program::Piece& piece : cut(range, std::max<std::int64_t>(1, limit.value / size))) {
      slice.pieces = {piece};
      program_.slices.push_back(slice);
    }
  }

  // The shards, one after another, in as many contiguous parts as there are members. Whose part is
  // one element larger goes round, so that all groups of a dtype together are even, too.
  void spread(const std::vector<program::ShardId>& shards, DType dtype,
              program::UpdateAt update_at) {
    std::int64_t total = 0;
    for (program::ShardId shard : shards) total += program_.shard(shard).elements;
    const auto count = static_cast<std::int64_t>(members_.size());
    const std::int64_t larger = total % count;
    std::int64_t& first_larger = first_larger_[dtype];
    const auto part_of = [&](std::int64_t i) {
      return total / count + ((i - first_larger + count) % count < larger ? 1 : 0);
    };
    std::int64_t member = 0;
    std::int64_t room = part_of(0);
    for (program::ShardId shard : shards) {
      std::int64_t begin = 0;
      do {
        while (room == 0 && member + 1 < count) room = part_of(++member);
        const std::int64_t end = std::min(begin + room, program_.shard(shard).elements);
        add_slices({shard, begin, end}, members_[static_cast<std::size_t>(member)], update_at);
        room -= end - begin;
        begin = end;
      } while (begin < program_.shard(shard).elements);
    }
    first_larger = (first_larger + larger) % count;
  }

  // A library reduces whole gradients: a partitioned variable goes with the group of its first
  // shard.
  void add_to_collective(program::ShardId shard) {
    const ir::VariableId variable = program_.shard(shard).variable;
    if (program_.plan(variable).collective) return;
    const auto& synchronizer = all_reduce(shard.value);
    const program::Compression compression = strategy::compression_of(synchronizer);
    const auto key = std::make_tuple(synchronizer.group, dtype_of(shard), synchronizer.spec,
                                     program::to_string(compression));
    const auto [found, is_new] = collectives_.emplace(key, program_.collectives.size());
    if (is_new) {
      program_.collectives.push_back(
          {{}, dtype_of(shard), members_, spec_name(synchronizer.spec), compression});
    }
    program_.collectives[found->second.value].variables.push_back(variable);
    program_.variables[variable.value].collective = found->second;
  }

  static const char* spec_name(strategy::AllReduceSpec spec) {
    switch (spec) {
      case strategy::AllReduceSpec::kAuto:
        return "AUTO";
      case strategy::AllReduceSpec::kNccl:
        return "NCCL";
      case strategy::AllReduceSpec::kRing:
        return "RING";
    }
    return "";
  }

  State& state_;
  program::Program& program_;
  std::vector<program::Rank> members_;
  std::map<std::string, program::Rank> rank_of_device_;
  std::map<std::string, program::Rank> lowest_rank_;  // by address of the node
  std::vector<bool> local_;                           // by variable
  std::map<DType, std::int64_t> first_larger_;
  std::map<std::tuple<std::int32_t, DType, strategy::AllReduceSpec, std::string>,
           program::CollectiveId>
      collectives_;
  std::size_t factor_slices_ = 0;
};

}  // namespace

void synchronise(State& state) { Synchroniser(state).run(); }

}  // namespace autodist::passes
