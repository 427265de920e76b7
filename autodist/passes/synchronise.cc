// Who owns what. Parameter servers are named by the strategy; a direct all-reduce spreads each
// group evenly over its members, so that every one of them sends and receives the same.

#include <algorithm>
#include <map>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/even_part.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/exchange_choice.h"
#include "autodist/passes/pass.h"
#include "autodist/passes/slice_table.h"
#include "autodist/program/loads.h"
#include "autodist/program/route.h"

namespace autodist::passes {
namespace {

class ExchangePlanner {
 public:
  explicit ExchangePlanner(State& state)
      : state_(state), program_(state.program), members_(program_.computing_ranks()) {}

  void run() {
    set_clips();
    name_ranks();
    find_locals();
    using Group = std::tuple<std::int32_t, DType, program::UpdateAt, program::Route>;
    std::map<Group, std::vector<Part>> direct;
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      const ir::VariableId variable = program_.shards[i].variable;
      if (!state_.graph().variable(variable).gradient || local_[variable.value]) continue;
      const program::ShardId shard(i);
      const program::Exchange exchange = exchange_of(*state_.synchronizers[i], facts_of(shard));
      if (const auto* library = std::get_if<program::Library>(&exchange)) {
        add_to_collective(shard, *library);
        continue;
      }
      const auto& slices = std::get<program::Slices>(exchange);
      const auto* dense = std::get_if<program::Dense>(&slices.payload);
      if (std::holds_alternative<program::Rows>(slices.payload)) {
        add_rows(shard, slices);
      } else if (dense == nullptr) {
        add_factors(shard, slices);
      } else if (server_of(shard) != nullptr) {
        add_slices({shard, 0, program_.shards[i].elements}, destination(shard), slices);
      } else {
        const auto update_at = std::get<program::Versions>(slices.order).update_at;
        direct[{all_reduce(i).group, dtype_of(shard), update_at, dense->route}].push_back(
            {shard, slices});
      }
    }
    for (const auto& [group, parts] : direct) spread(parts, std::get<DType>(group));
    name_slices(program_);
  }

 private:
  struct Part {
    program::ShardId shard;
    program::Slices exchange;
  };

  DType dtype_of(program::ShardId id) const {
    const ir::Variable& variable = state_.graph().variable(program_.shard(id).variable);
    return state_.graph().value(variable.value).type.dtype;
  }
  const strategy::AllReduceSynchronizer& all_reduce(std::size_t shard) const {
    return std::get<strategy::AllReduceSynchronizer>(*state_.synchronizers[shard]);
  }
  // Null of an all-reduce.
  const strategy::PsSynchronizer* server_of(program::ShardId shard) const {
    return std::get_if<strategy::PsSynchronizer>(state_.synchronizers[shard.value]);
  }

  ExchangeFacts facts_of(program::ShardId id) const {
    const program::Shard& shard = program_.shard(id);
    ExchangeFacts facts =
        passes::facts_of(state_.graph(), shard.variable, static_cast<std::int64_t>(members_.size()),
                         state_.options.micro_batches, batch_of(state_.options, state_.graph()));
    if (program_.is_placed()) facts.fetchable = false;
    if (ir::element_count(state_.graph(), shard.variable) != shard.elements) {
      facts.factors_pay = false;
    }
    return facts;
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

  // REQUIRES: a parameter server has it.
  program::Rank destination(program::ShardId shard) const {
    const std::string& device = server_of(shard)->reduction_destination;
    const auto exact = rank_of_device_.find(device);
    if (exact != rank_of_device_.end()) return exact->second;
    const std::string node = cluster::address_of(device);
    const auto lowest = lowest_rank_.find(node);
    AD_CHECK(lowest != lowest_rank_.end()) << "no rank for " << device;
    return lowest->second;
  }

  // What all slices of a shard have in common.
  program::Slice slice_of(program::ShardId id, program::Rank owner,
                          const program::Slices& exchange) const {
    const ir::VariableId variable = program_.shard(id).variable;
    program::Slice slice;
    slice.dtype = dtype_of(id);
    slice.owner = owner;
    slice.needed = state_.needed[variable.value];
    slice.members = members_of(variable);
    slice.exchange = exchange;
    check_owner(variable, owner, slice.members);
    return slice;
  }

  void add_factors(program::ShardId id, const program::Slices& exchange) {
    const program::Rank owner = members_[factor_slices_++ % members_.size()];
    program::Slice slice = slice_of(id, owner, exchange);
    slice.pieces = {{id, 0, program_.shard(id).elements}};
    program_.slices.push_back(std::move(slice));
  }

  // Rows go to one block per owner: a parameter server, a member for all, or every member for its
  // part.
  void add_rows(program::ShardId shard, const program::Slices& exchange) {
    if (server_of(shard) != nullptr) {
      return add_row_blocks(shard, 0, rows_of(shard), destination(shard), exchange);
    }
    const auto count = static_cast<std::uint32_t>(members_.size());
    if (goes_to_all(exchange)) {
      const program::Rank owner = members_[all_reduce(shard.value).group % count];
      return add_row_blocks(shard, 0, rows_of(shard), owner, exchange);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto [begin, end] = even_part(rows_of(shard), i, count);
      if (begin < end) add_row_blocks(shard, begin, end, members_[i], exchange);
    }
  }

  [[nodiscard]] std::int64_t rows_of(program::ShardId id) const {
    return program_.shard(id).end - program_.shard(id).begin;
  }

  void add_row_blocks(program::ShardId id, std::int64_t begin, std::int64_t end,
                      program::Rank owner, const program::Slices& exchange) {
    const std::int64_t width = program_.shard(id).elements / std::max<std::int64_t>(1, rows_of(id));
    const auto row_bytes =
        std::max<std::int64_t>(1, width * static_cast<std::int64_t>(size_of(dtype_of(id))));
    const std::int64_t most = std::max<std::int64_t>(1, program::kRowBlockBytes / row_bytes);
    program::Slice slice = slice_of(id, owner, exchange);
    for (const program::Piece& block : cut({id, begin, end}, most)) {
      slice.pieces = {{id, block.begin * width, block.end * width}};
      program_.slices.push_back(slice);
    }
  }

  // Local: the only replica would send all of it to itself.
  void find_locals() {
    local_.assign(program_.variables.size(), members_.size() == 1);
    if (members_.size() != 1) return;  // a stage is never alone
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      const program::ShardId shard(i);
      if (server_of(shard) != nullptr && destination(shard) != members_.front()) {
        local_[program_.shards[i].variable.value] = false;
      }
    }
  }

  void add_slices(const program::Piece& range, program::Rank owner,
                  const program::Slices& exchange) {
    program::Slice slice = slice_of(range.shard, owner, exchange);
    auto& dense = std::get<program::Dense>(slice.exchange.payload);
    dense.route = program::effective_route(program_, slice, dense.route);
    const auto size = static_cast<std::int64_t>(size_of(slice.dtype));
    const std::int64_t most = std::max<std::int64_t>(1, state_.slice_limit().value / size);
    for (const program::Piece& piece : cut(range, most)) {
      slice.pieces = {piece};
      program_.slices.push_back(slice);
    }
  }

  // The shards, one after another, in as many contiguous parts as there are members. Whose part is
  // one element larger goes round, so that all groups of a dtype together are even, too.
  void spread(const std::vector<Part>& parts, DType dtype) {
    std::int64_t total = 0;
    for (const Part& part : parts) total += program_.shard(part.shard).elements;
    const auto count = static_cast<std::int64_t>(members_.size());
    const std::int64_t larger = total % count;
    std::int64_t& first_larger = first_larger_[dtype];
    const auto part_of = [&](std::int64_t i) {
      return total / count + ((i - first_larger + count) % count < larger ? 1 : 0);
    };
    std::int64_t member = 0;
    std::int64_t room = part_of(0);
    for (const auto& [shard, exchange] : parts) {
      std::int64_t begin = 0;
      do {
        while (room == 0 && member + 1 < count) room = part_of(++member);
        const std::int64_t end = std::min(begin + room, program_.shard(shard).elements);
        add_slices({shard, begin, end}, members_[static_cast<std::size_t>(member)], exchange);
        room -= end - begin;
        begin = end;
      } while (begin < program_.shard(shard).elements);
    }
    first_larger = (first_larger + larger) % count;
  }

  // A library reduces whole gradients: a partitioned variable goes with the group of its first
  // shard.
  void add_to_collective(program::ShardId shard, const program::Library& library) {
    const ir::VariableId variable = program_.shard(shard).variable;
    if (program_.plan(variable).collective) return;
    const auto& synchronizer = all_reduce(shard.value);
    const auto key = std::make_tuple(synchronizer.group, dtype_of(shard), synchronizer.spec,
                                     program::to_string(library.codec));
    const auto [found, is_new] = collectives_.emplace(key, program_.collectives.size());
    if (is_new) {
      program_.collectives.push_back(
          {{}, dtype_of(shard), members_, spec_name(synchronizer.spec), library});
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

void synchronise(State& state) { ExchangePlanner(state).run(); }

}  // namespace autodist::passes
