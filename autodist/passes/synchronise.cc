// Shards -> slices with owners, or library collectives.
//
// PS: the destination owns all slices of the shard and updates. Direct all-reduce: the variables of
// a group, one behind the other, are spread evenly over the replicas as owners (a reduce-scatter
// and an all-gather), and every rank updates. Both cut at shards and at the largest slice.

#include <algorithm>
#include <map>
#include <tuple>

#include "autodist/base/error.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

using strategy::AllReduceAlgorithm;
using strategy::AllReduceSynchronizer;
using strategy::PsSynchronizer;

// A group's share of one owner, and the library's buffer, hold one dtype.
using GroupKey = std::tuple<std::int32_t, DType>;

class Synchroniser {
 public:
  explicit Synchroniser(State& state) : state_(state) {
    const Bytes wanted = state.strategy.slice_bytes;
    slice_bytes_ = wanted.value > 0 ? wanted : state.options.slice_bytes;
  }

  void run() {
    for (const ShardPlan& plan : state_.shard_plans) {
      const ir::Shard& shard = state_.program.shard(plan.shard);
      if (!is_trained(state_.graph, shard.variable)) continue;
      if (const auto* ps = std::get_if<PsSynchronizer>(&plan.synchronizer)) {
        add_ps(plan.shard, *ps);
      } else {
        add_all_reduce(plan.shard, std::get<AllReduceSynchronizer>(plan.synchronizer));
      }
    }
    for (const auto& [key, shards] : direct_) spread(shards);
    for (auto& [key, collective] : library_) {
      state_.program.collectives.push_back(std::move(collective));
    }
  }

 private:
  DType dtype_of(ir::VariableId variable) const {
    return state_.graph.value(state_.graph.variable(variable).value).type.dtype;
  }

  [[noreturn]] void refuse(const ir::Shard& shard, const std::string& what) const {
    fail(ErrorCode::kInfeasible,
         "{}: '{}' asks for {}; this version trains synchronously and uncompressed", state_.where,
         shard.name, what);
  }

  // One replica that owns the whole variable itself has nobody to talk to.
  bool is_alone_with(ir::VariableId variable) const {
    if (state_.replicas.size() > 1) return false;
    return std::all_of(
        state_.shard_plans.begin(), state_.shard_plans.end(), [&](const ShardPlan& plan) {
          const auto* ps = std::get_if<PsSynchronizer>(&plan.synchronizer);
          return state_.program.shard(plan.shard).variable != variable || ps == nullptr ||
                 rank_on(state_, ps->reduction_destination) == state_.replicas.front();
        });
  }

  void add_ps(ir::ShardId id, const PsSynchronizer& ps) {
    const ir::Shard& shard = state_.program.shard(id);
    if (!ps.sync) refuse(shard, "sync=false");
    if (ps.staleness > 0) refuse(shard, fmt::format("staleness={}", ps.staleness));
    const ir::Rank owner = rank_on(state_, ps.reduction_destination);
    if (!is_alone_with(shard.variable)) {
      add_slices({id, 0, shard.elements}, owner, ir::UpdateAt::kOwner);
    }
  }

  void add_all_reduce(ir::ShardId id, const AllReduceSynchronizer& all_reduce) {
    const ir::Shard& shard = state_.program.shard(id);
    if (all_reduce.compressor != strategy::Compressor::kNone) refuse(shard, "a compressor");
    if (state_.replicas.size() == 1) return;
    const GroupKey key{all_reduce.group, dtype_of(shard.variable)};
    if (all_reduce.algorithm != AllReduceAlgorithm::kLibrary) {
      direct_[key].push_back(id);
      return;
    }
    // A library takes whole variables: a partitioned one goes with the group of its first shard.
    if (shard.begin != 0) return;
    ir::Collective& collective = library_[key];
    collective.variables.push_back(shard.variable);
    collective.dtype = dtype_of(shard.variable);
    collective.members = state_.replicas;
    static constexpr const char* kSpecs[] = {"AUTO", "NCCL", "RING"};
    collective.spec = kSpecs[static_cast<int>(all_reduce.spec)];
  }

  // Owner r's part of the group is the r-th of equal parts of its elements.
  void spread(const std::vector<ir::ShardId>& shards) {
    std::int64_t total = 0;
    for (ir::ShardId id : shards) total += state_.program.shard(id).elements;
    const auto owners = static_cast<std::int64_t>(state_.replicas.size());
    std::int64_t before = 0;  // elements of the group ahead of this shard
    for (ir::ShardId id : shards) {
      const std::int64_t elements = state_.program.shard(id).elements;
      for (std::int64_t r = 0; r < owners; ++r) {
        const auto [begin, end] = strategy::shard_rows(total, owners, r);
        const ir::Piece piece{id, std::max(begin - before, std::int64_t{0}),
                              std::min(end - before, elements)};
        if (piece.begin < piece.end) {
          add_slices(piece, state_.replicas[static_cast<std::size_t>(r)], ir::UpdateAt::kEveryRank);
        }
      }
      before += elements;
    }
  }

  void add_slices(const ir::Piece& piece, ir::Rank owner, ir::UpdateAt update_at) {
    const ir::VariableId variable = state_.program.shard(piece.shard).variable;
    const DType dtype = dtype_of(variable);
    const std::int64_t elements = piece.end - piece.begin;
    const std::int64_t most =
        std::max<std::int64_t>(slice_bytes_.value / static_cast<std::int64_t>(size_of(dtype)), 1);
    const std::int64_t count = (elements + most - 1) / most;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto [begin, end] = strategy::shard_rows(elements, count, i);
      ir::Slice slice;
      slice.pieces = {{piece.shard, piece.begin + begin, piece.begin + end}};
      slice.dtype = dtype;
      slice.owner = owner;
      slice.needed = state_.needed[variable.value];
      slice.members = state_.replicas;
      slice.update_at = update_at;
      state_.program.slices.push_back(std::move(slice));
    }
  }

  State& state_;
  Bytes slice_bytes_;
  std::map<GroupKey, std::vector<ir::ShardId>> direct_;
  std::map<GroupKey, ir::Collective> library_;
};

void set_clips(State& state) {
  for (std::size_t clip = 0; clip < state.graph.clips.size(); ++clip) {
    for (ir::VariableId variable : state.graph.clips[clip].variables) {
      if (is_trained(state.graph, variable)) {
        state.program.variables[variable.value].clip = ir::ClipId(clip);
      }
    }
  }
}

}  // namespace

void synchronise(State& state) {
  set_clips(state);
  Synchroniser(state).run();
}

}  // namespace autodist::passes
