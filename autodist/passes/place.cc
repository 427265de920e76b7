// A placement -> which stage computes each op and holds each variable.
//
// What is written in place cannot be in two memories, so all ops that touch such a storage stay
// together, and so do those that touch a variable, which one stage alone updates.

#include "autodist/base/error.h"
#include "autodist/ir/history.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

class Placer {
 public:
  explicit Placer(State& state)
      : state_(state), graph_(state.graph()), history_(graph_), first_(graph_.storages.size()) {}

  void run() {
    const strategy::Placement& placement = *state_.strategy.placement;
    state_.stage_of_op = strategy::stages_of_ops(placement, graph_, state_.where);
    state_.program.stages = placement.stages;
    state_.program.micro_batches = static_cast<std::uint32_t>(state_.options.micro_batches);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) check(ir::OpId(i));
    find_variables();
    for (const strategy::NodeConfig& node : state_.strategy.nodes) check(node);
  }

 private:
  std::uint32_t stage_of(ir::OpId op) const { return state_.stage_of_op[op.value]; }

  bool binds(ir::StorageId storage) const {
    return graph_.storages[storage.value].kind == ir::StorageKind::kVariable ||
           history_.overwritten(storage);
  }

  void check(ir::OpId id) {
    const ir::Op& op = graph_.op(id);
    const auto touch = [&](ir::ValueId value) {
      const ir::StorageId storage = graph_.value(value).storage;
      if (!binds(storage)) return;
      std::optional<ir::OpId>& first = first_[storage.value];
      if (!first) first = id;
      if (stage_of(*first) != stage_of(id)) apart(*first, id, storage);
    };
    ir::for_each_read(op, touch);
    ir::for_each_result(op, touch);
    ir::for_each_read(op, [&](ir::ValueId value) {
      const auto maker = history_.maker(value);
      if (maker && stage_of(*maker) != stage_of(id)) check_crossing(value, id);
    });
  }

  [[noreturn]] void apart(ir::OpId a, ir::OpId b, ir::StorageId storage) const {
    std::string what = "a tensor that is written in place";
    for (const ir::Variable& variable : graph_.variables) {
      if (graph_.value(variable.value).storage == storage) what = "'" + variable.name + "'";
    }
    for (const ir::Buffer& buffer : graph_.buffers) {
      if (graph_.value(buffer.value).storage == storage) what = "'" + buffer.name + "'";
    }
    fail(ErrorCode::kInfeasible,
         "{}: placement: op {} ({}) is in stage {}, op {} ({}) in stage {}, and both touch {}. "
         "Place them together, as autodist place does.",
         state_.where, a, graph_.op(a).name, stage_of(a), b, graph_.op(b).name, stage_of(b), what);
  }

  // A copy has the elements of a view, not the memory around them.
  void check_crossing(ir::ValueId value, ir::OpId reader) const {
    const bool sparse = graph_.value(value).type.layout == ir::Layout::kSparseCoo;
    if (!sparse && graph_.op(reader).name != "aten::as_strided") return;
    fail(ErrorCode::kInfeasible,
         "{}: placement: op {} ({}) reads {} of another stage. Place it with the op that makes it.",
         state_.where, reader, graph_.op(reader).name,
         sparse ? "a sparse tensor" : "the memory around a view");
  }

  void find_variables() {
    for (const ir::Variable& variable : graph_.variables) {
      const std::optional<ir::OpId>& user = first_[graph_.value(variable.value).storage.value];
      const std::optional<ir::OpId> maker =
          variable.gradient ? history_.maker(*variable.gradient) : std::nullopt;
      const std::uint32_t stage = user ? stage_of(*user) : maker ? stage_of(*maker) : 0;
      state_.stage_of_variable.push_back(stage);
      if (variable.sparse_gradient && maker && stage_of(*maker) != stage) {
        check_crossing(*variable.gradient, *maker);
      }
    }
  }

  // The rule runs where the variable is, once; its state is kept there alone.
  void check(const strategy::NodeConfig& node) const {
    const auto check_one = [&](const strategy::NodeConfig& each) {
      const auto* ps = std::get_if<strategy::PsSynchronizer>(&each.synchronizer);
      const bool plain = ps != nullptr && ps->sync && ps->staleness == 0 &&
                         ps->compression.codec == program::Codec::kNone &&
                         ps->delivery == program::Delivery::kPushed;
      if (plain) return;
      fail(ErrorCode::kInfeasible,
           "{}: '{}' has another synchronizer than a synchronous parameter server without "
           "staleness and compression, the one that placed graphs have. Use that, or no placement.",
           state_.where, each.name);
    };
    if (node.parts.empty()) return check_one(node);
    for (const strategy::NodeConfig& part : node.parts) check_one(part);
  }

  State& state_;
  const ir::Graph& graph_;
  const ir::History history_;
  std::vector<std::optional<ir::OpId>> first_;  // by storage that binds: who touches it
};

}  // namespace

void place(State& state) {
  if (state.strategy.placement && state.strategy.placement->stages > 1) Placer(state).run();
}

}  // namespace autodist::passes
