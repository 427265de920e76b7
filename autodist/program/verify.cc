// Is this a Program? Tables first, then that slices cover what they synchronise, then each role's
// streams against the graph's order.

#include <algorithm>
#include <map>
#include <set>

#include "autodist/base/check.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/history.h"
#include "autodist/ir/rows.h"
#include "autodist/program/loads.h"
#include "autodist/program/placed_verify.h"
#include "autodist/program/program.h"

namespace autodist::program {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Whether the ranges cover [0, size) exactly once.
bool tile(Ranges ranges, std::int64_t size) {
  std::sort(ranges.begin(), ranges.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered || end < begin) return false;
    covered = end;
  }
  return covered == size;
}

class TableVerifier {
 public:
  explicit TableVerifier(const Program& program) : program_(program), graph_(*program.graph) {}

  void run() const {
    AD_CHECK(!program_.ranks.empty()) << "a program without ranks";
    AD_CHECK(program_.variables.size() == graph_.variables.size())
        << program_.variables.size() << " plans for " << graph_.variables.size() << " variables";
    check_shards();
    check_batch_shares();
    for (const Slice& slice : program_.slices) check(slice);
    for (const Collective& collective : program_.collectives) check(collective);
    check_plans();
    check_coverage();
  }

 private:
  const std::string& name(ir::VariableId id) const { return graph_.variable(id).name; }

  void check_members(const std::vector<Rank>& members, const std::string& of) const {
    AD_CHECK(!members.empty()) << of << " has no members";
    for (std::size_t i = 0; i < members.size(); ++i) {
      AD_CHECK(members[i].value < program_.ranks.size()) << of << " has member " << members[i];
      AD_CHECK(i == 0 || members[i - 1] < members[i]) << "members of " << of << " do not ascend";
    }
  }

  void check_batch_shares() const {
    const std::vector<std::int64_t>& shares = program_.batch_shares;
    AD_CHECK(shares.empty() || shares.size() == program_.batch_parts())
        << shares.size() << " shares of a batch in " << program_.batch_parts() << " parts";
    for (const std::int64_t share : shares) AD_CHECK(share >= 1) << "a share of " << share;
  }

  void check_shards() const {
    std::map<ir::VariableId, Ranges> parts;
    for (const Shard& shard : program_.shards) {
      AD_CHECK(shard.variable.value < graph_.variables.size()) << shard.name << " of no variable";
      const auto shape = ir::shape_of(graph_, shard.variable);
      const bool scalar = shape.empty() && shard.axis == 0;
      AD_CHECK(scalar || shard.axis < shape.size()) << shard.name << " on axis " << shard.axis;
      const std::int64_t rows = scalar ? 1 : shape[shard.axis];
      const std::int64_t expected =
          rows == 0 ? 0 : element_count(graph_, shard.variable) / rows * (shard.end - shard.begin);
      AD_CHECK(shard.elements == expected)
          << shard.name << " counts " << shard.elements << " elements, expected " << expected;
      parts[shard.variable].emplace_back(shard.begin, shard.end);
    }
    for (const auto& [variable, ranges] : parts) {
      const auto& first =
          *std::find_if(program_.shards.begin(), program_.shards.end(),
                        [id = variable](const Shard& shard) { return shard.variable == id; });
      const auto shape = ir::shape_of(graph_, variable);
      AD_CHECK(tile(ranges, shape.empty() ? 1 : shape[first.axis]))
          << "the shards of " << name(variable) << " do not tile it";
    }
  }

  void check(const Slice& slice) const {
    AD_CHECK(!slice.pieces.empty()) << "a slice without pieces";
    for (const Piece& piece : slice.pieces) {
      AD_CHECK(piece.shard.value < program_.shards.size()) << "a slice of shard " << piece.shard;
      const Shard& shard = program_.shard(piece.shard);
      AD_CHECK(0 <= piece.begin && piece.begin <= piece.end && piece.end <= shard.elements)
          << "[" << piece.begin << ", " << piece.end << ") of " << shard.name;
    }
    const std::string& first = program_.shard(slice.pieces.front().shard).name;
    AD_CHECK(slice.owner.value < program_.ranks.size()) << first << " owned by " << slice.owner;
    check_members(slice.members, "a slice of " + first);
    AD_CHECK(lag_of(slice.exchange).value_or(0) == 0 || makes_parameters(slice.exchange))
        << first << " is stale and updated at every rank";
    std::visit([&](const auto& payload) { check(payload, slice, first); }, slice.exchange.payload);
  }

  static void check(const Dense& dense, const Slice& slice, const std::string& name) {
    check(dense.up, name);
    check(dense.down, name);
    AD_CHECK(dense.down == Compression{} || !makes_parameters(slice.exchange))
        << name << " has parameters that come back compressed";
    AD_CHECK(dense.delivery == Delivery::kPushed ||
             (dense.route == Route::kDirect && makes_parameters(slice.exchange) &&
              slice.pieces.size() == 1))
        << name << " is asked for, and fused, passed on or updated at every rank";
    if (dense.route == Route::kDirect) return;
    const std::optional<std::uint32_t> lag = lag_of(slice.exchange);
    AD_CHECK(lag) << name << " travels asynchronously, and not directly";
    AD_CHECK(dense.route == Route::kProxies || (lag == 0 && dense.up == Compression{}))
        << name << " is stale or compressed, and added up on its way";
  }

  static void check(const Compression& compression, const std::string& name) {
    AD_CHECK(traits_of(compression.codec).unit != EncodedUnit::kGradient)
        << name << " has a slice of two factors";
    AD_CHECK(compression.codec != Codec::kTopK ||
             (compression.density > 0 && compression.density <= 1))
        << name << " has density " << compression.density;
  }

  void check(const Rows& rows, const Slice& slice, const std::string& name) const {
    const Shard& shard = program_.shard(slice.pieces.front().shard);
    AD_CHECK(slice.pieces.size() == 1 && makes_parameters(slice.exchange))
        << name << " travels by rows, fused or updated at every rank";
    AD_CHECK(ir::trained_by_rows(graph_.variable(shard.variable)) && shard.axis == 0)
        << name << " travels by rows, but is not trained by rows";
    const auto shape = ir::shape_of(graph_, shard.variable);
    const std::int64_t width = shape[0] == 0 ? 1 : element_count(graph_, shard.variable) / shape[0];
    const Piece& piece = slice.pieces.front();
    AD_CHECK(width == 0 || (piece.begin % width == 0 && piece.end % width == 0))
        << name << " travels by rows of " << width << " elements, cut at " << piece.begin;
    AD_CHECK(rows.transfer != RowTransfer::kGather ||
             (lag_of(slice.exchange) == std::uint32_t{0} && combines(slice, slice.owner)))
        << name << " is gathered, and stale, asynchronous or owned by no member";
  }

  void check(const Factors& /*factors*/, const Slice& slice, const std::string& name) const {
    const Piece& piece = slice.pieces.front();
    const Shard& shard = program_.shard(piece.shard);
    AD_CHECK(slice.pieces.size() == 1 && !makes_parameters(slice.exchange))
        << name << " travels as two factors, and fused or updated at an owner";
    AD_CHECK(piece.begin == 0 && piece.end == element_count(graph_, shard.variable))
        << name << " travels as two factors in part";
    AD_CHECK(ir::factors_of(graph_, shard.variable))
        << "the gradient of " << name << " is no product";
  }

  void check(const Collective& collective) const {
    const Compression& codec = collective.exchange.codec;
    AD_CHECK(codec.codec == Codec::kNone || (codec.codec == Codec::kPowerSgd && codec.rank > 0))
        << "a collective with compression " << to_string(codec);
    AD_CHECK(!collective.variables.empty()) << "a collective without variables";
    for (ir::VariableId variable : collective.variables) {
      AD_CHECK(variable.value < graph_.variables.size()) << "a collective of " << variable;
    }
    check_members(collective.members, "the collective of " + name(collective.variables.front()));
  }

  void check_plans() const {
    for (std::size_t i = 0; i < program_.variables.size(); ++i) {
      const VariablePlan& plan = program_.variables[i];
      const std::string& variable = name(ir::VariableId(i));
      AD_CHECK(plan.slices.empty() || !plan.collective)
          << variable << " has slices and a collective";
      for (SliceId slice : plan.slices) {
        AD_CHECK(slice.value < program_.slices.size()) << variable << " has slice " << slice;
        const Slices& part = program_.slice(slice).exchange;
        const Slices& first = program_.slice(plan.slices.front()).exchange;
        AD_CHECK(lag_of(part) == lag_of(first)) << variable << " has parts of two lags";
        AD_CHECK(part.payload == first.payload || (std::holds_alternative<Dense>(part.payload) &&
                                                   std::holds_alternative<Dense>(first.payload)))
            << variable << " has parts that travel in two ways";
        AD_CHECK(keeps_whole_copies(part) == keeps_whole_copies(first))
            << variable << " is asked for in part";
      }
      AD_CHECK(!plan.clip || lag_of(program_.exchange(ir::VariableId(i))) == 0)
          << variable << " is stale or asynchronous, and clipped by a norm";
      AD_CHECK(!plan.clip || plan.clip->value < graph_.clips.size())
          << variable << " waits for clip " << *plan.clip;
      if (!plan.collective) continue;
      AD_CHECK(plan.collective->value < program_.collectives.size())
          << variable << " has collective " << *plan.collective;
      const auto& variables = program_.collectives[plan.collective->value].variables;
      AD_CHECK(std::count(variables.begin(), variables.end(), ir::VariableId(i)) == 1)
          << variable << " is not in its collective " << *plan.collective;
    }
    for (std::size_t i = 0; i < program_.collectives.size(); ++i) {
      for (ir::VariableId variable : program_.collectives[i].variables) {
        AD_CHECK(program_.plan(variable).collective == CollectiveId(i))
            << name(variable) << " does not name its collective " << i;
      }
    }
  }

  // Every element of a synchronised variable is in exactly one slice, which the plan names.
  void check_coverage() const {
    std::vector<Ranges> covered(program_.shards.size());
    std::vector<std::set<SliceId>> slices_of(graph_.variables.size());
    for (std::size_t i = 0; i < program_.slices.size(); ++i) {
      for (const Piece& piece : program_.slices[i].pieces) {
        covered[piece.shard.value].emplace_back(piece.begin, piece.end);
        slices_of[program_.shard(piece.shard).variable.value].insert(SliceId(i));
      }
    }
    std::vector<bool> sharded(graph_.variables.size());
    for (std::size_t i = 0; i < program_.shards.size(); ++i) {
      const Shard& shard = program_.shards[i];
      sharded[shard.variable.value] = true;
      if (program_.plan(shard.variable).slices.empty()) continue;
      AD_CHECK(tile(covered[i], shard.elements))
          << "slices overlap or leave elements of " << shard.name << " uncovered";
    }
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      const auto& named = program_.variables[i].slices;
      AD_CHECK(std::set<SliceId>(named.begin(), named.end()) == slices_of[i])
          << name(ir::VariableId(i)) << " names other slices than those that hold it";
      const bool synchronised = !named.empty() || program_.variables[i].collective;
      AD_CHECK(named.empty() || sharded[i]) << name(ir::VariableId(i)) << " has no shard";
      AD_CHECK(synchronised || !graph_.variables[i].gradient || program_.replica_count() <= 1)
          << name(ir::VariableId(i))
          << " is trained by several replicas and synchronised by nothing";
    }
  }

  const Program& program_;
  const ir::Graph& graph_;
};

// One role's streams.
class RoleVerifier {
 public:
  RoleVerifier(const Program& program, const Role& role,
               const std::vector<std::vector<ir::OpId>>& before)
      : program_(program),
        graph_(*program.graph),
        before_(before),
        variable_of_(ir::variables_by_storage(graph_)) {
    const std::size_t variables = graph_.variables.size();
    gate_.resize(variables);
    contribute_.resize(variables);
    release_.resize(variables);
    computed_.resize(graph_.ops.size());
    for (const Stream& stream : role.streams) {
      for (const Instruction& instruction : stream.instructions) {
        std::visit([&](const auto& each) { check(each); }, instruction);
      }
    }
    // A role without streams only serves.
    if (!role.streams.empty()) check_complete();
  }

  const std::vector<CollectiveId>& collectives() const { return collectives_; }

 private:
  const std::string& name(ir::VariableId id) const { return graph_.variable(id).name; }
  bool synchronised(ir::VariableId id) const {
    return !program_.plan(id).slices.empty() || program_.plan(id).collective;
  }
  bool done(const std::optional<ir::OpId>& op) const { return !op || computed_[op->value]; }
  void in_range(ir::VariableId id) const {
    AD_CHECK(id.value < graph_.variables.size()) << "an instruction names variable " << id;
  }

  void check(const Gate& gate) {
    in_range(gate.variable);
    AD_CHECK(!gate_[gate.variable.value]) << "a second gate of " << name(gate.variable);
    AD_CHECK(!read_.count(gate.variable))
        << "the gate of " << name(gate.variable) << " follows a read";
    gate_[gate.variable.value] = true;
  }

  void check(const Fetch& fetch) {
    in_range(fetch.variable);
    const std::string& variable = name(fetch.variable);
    AD_CHECK(!keeps_whole_copies(program_.exchange(fetch.variable))) << variable << " is fetched";
    AD_CHECK(!gate_[fetch.variable.value]) << variable << " is fetched behind its gate";
    const bool whole = sums_all_elements(program_.exchange(fetch.variable));
    AD_CHECK(whole ? fetch.rows.empty() : rows_read(graph_, fetch.variable) == fetch.rows)
        << "the fetch of " << variable << " names other rows than the step reads";
    const ir::History history(graph_);
    for (ir::ValueId rows : fetch.rows) {
      AD_CHECK(done(history.maker(rows))) << variable << " is fetched before its rows are known";
    }
    fetched_.insert(fetch.variable);
  }

  void check(const KeepFactors& keep) {
    in_range(keep.variable);
    const std::string& variable = name(keep.variable);
    const auto factors = ir::factors_of(graph_, keep.variable);
    AD_CHECK(factors && factors->left == keep.left && factors->right == keep.right)
        << "the gradient of " << variable << " is not the product of what is kept";
    const ir::History history(graph_);
    AD_CHECK(done(history.maker(keep.left)) && done(history.maker(keep.right)))
        << "factors of " << variable << " are kept before they are known";
    AD_CHECK(!computed_[factors->product.value])
        << "factors of " << variable << " are kept after their product, which may free them";
    kept_.insert(keep.variable);
  }

  void check(const Compute& compute) {
    AD_CHECK(compute.op.value < graph_.ops.size()) << "no op " << compute.op;
    const ir::Op& op = graph_.op(compute.op);
    AD_CHECK(!computed_[compute.op.value]) << "op " << compute.op << " is there twice";
    for (ir::OpId other : before_[compute.op.value]) {
      AD_CHECK(computed_[other.value]) << "op " << compute.op << " (" << op.name
                                       << ") runs before op " << other << ", which it depends on";
    }
    computed_[compute.op.value] = true;
    for_each_read(op, [&](ir::ValueId value) {
      const auto found = variable_of_.find(graph_.value(value).storage);
      if (found == variable_of_.end()) return;
      const ir::VariableId variable = found->second;
      AD_CHECK(!synchronised(variable) || gate_[variable.value])
          << "op " << compute.op << " reads " << name(variable) << " before its gate";
      AD_CHECK(!release_[variable.value])
          << "op " << compute.op << " reads " << name(variable) << " after its release";
      read_.insert(variable);
    });
  }

  void check(const Contribute& contribute) {
    in_range(contribute.variable);
    const ir::Variable& variable = graph_.variable(contribute.variable);
    AD_CHECK(variable.gradient == contribute.gradient)
        << "the contribution of " << variable.name << " is %" << contribute.gradient;
    AD_CHECK(!contribute_[contribute.variable.value]) << variable.name << " contributes twice";
    AD_CHECK(done(variable.gradient_complete))
        << variable.name << " contributes before its gradient is complete";
    contribute_[contribute.variable.value] = true;
  }

  void check(const Release& release) {
    in_range(release.variable);
    AD_CHECK(!release_[release.variable.value]) << "a second release of " << name(release.variable);
    AD_CHECK(done(graph_.variable(release.variable).last_read))
        << name(release.variable) << " is released before its last read";
    release_[release.variable.value] = true;
  }

  void check(const AllReduce& all_reduce) {
    AD_CHECK(all_reduce.collective.value < program_.collectives.size())
        << "no collective " << all_reduce.collective;
    collectives_.push_back(all_reduce.collective);
  }

  void check(const Update& update) { in_range(update.variable); }
  void check(const Norm& norm) {
    AD_CHECK(norm.clip.value < graph_.clips.size()) << "no clip " << norm.clip;
  }
  void check(const AgreeFinite&) {}
  void check(const StepBarrier&) {}
  void check(const Send& send) {
    AD_CHECK(false) << "transfer " << send.transfer << " is sent, and the graph is not placed";
  }
  void check(const Receive& receive) {
    AD_CHECK(false) << "transfer " << receive.transfer << " is received, and the graph not placed";
  }

  void check_complete() const {
    for (std::size_t i = 0; i < computed_.size(); ++i) {
      AD_CHECK(computed_[i]) << "op " << i << " (" << graph_.ops[i].name << ") is missing";
    }
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      if (!synchronised(ir::VariableId(i)) || !graph_.variables[i].gradient) continue;
      AD_CHECK(contribute_[i]) << name(ir::VariableId(i)) << " never contributes";
      AD_CHECK(release_[i]) << name(ir::VariableId(i)) << " is never released";
      const Exchange exchange = program_.exchange(ir::VariableId(i));
      AD_CHECK(!sums_products(exchange) || kept_.count(ir::VariableId(i)))
          << "the factors of " << name(ir::VariableId(i)) << " are never kept";
      AD_CHECK(keeps_whole_copies(exchange) || !graph_.variables[i].first_use ||
               fetched_.count(ir::VariableId(i)))
          << name(ir::VariableId(i)) << " is never fetched";
    }
  }

  const Program& program_;
  const ir::Graph& graph_;
  const std::vector<std::vector<ir::OpId>>& before_;
  const std::map<ir::StorageId, ir::VariableId> variable_of_;
  std::set<ir::VariableId> read_;
  std::set<ir::VariableId> fetched_;
  std::set<ir::VariableId> kept_;
  std::vector<bool> gate_;
  std::vector<bool> contribute_;
  std::vector<bool> release_;
  std::vector<bool> computed_;
  std::vector<CollectiveId> collectives_;
};

// Every rank has one role, and streams exactly where it computes.
void check_ranks(const Program& program) {
  std::vector<int> roles_of(program.ranks.size());
  for (const Role& role : program.roles) {
    for (const Rank rank : role.ranks) {
      AD_CHECK(rank.value < program.ranks.size()) << "a role has rank " << rank;
      AD_CHECK(program.computes(rank) == !role.streams.empty())
          << "rank " << rank << " computes without streams or has streams without computing";
      ++roles_of[rank.value];
    }
  }
  for (std::size_t i = 0; i < roles_of.size(); ++i) {
    AD_CHECK(roles_of[i] == 1) << "rank " << i << " has " << roles_of[i] << " roles";
  }
}

void check_roles(const Program& program) {
  const auto before = dependencies(*program.graph);
  std::optional<std::vector<CollectiveId>> order;
  for (const Role& role : program.roles) {
    const RoleVerifier verified(program, role, before);
    if (role.streams.empty()) continue;
    AD_CHECK(!order || *order == verified.collectives())
        << "collectives stand in another order in the role of rank " << role.ranks.front();
    order = verified.collectives();
  }
}

}  // namespace

void verify(const Program& program) {
  AD_CHECK(program.graph != nullptr) << "a program without a graph";
  TableVerifier(program).run();
  check_ranks(program);
  if (program.is_placed()) return verify_placed_roles(program);
  check_roles(program);
}

}  // namespace autodist::program
