// Tables -> streams. All ranks that compute do the same; the others only serve.
//
// The compute stream is the graph's ops in order, with what a variable needs around them. The
// collective stream is ordered so that nothing that is ready waits behind something that is not.

#include <algorithm>
#include <tuple>

#include "autodist/base/error.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/history.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/pass.h"
#include "autodist/program/loads.h"

namespace autodist::passes {
namespace {

class Lowering {
 public:
  // `by_need`: the trained variables. All outlive it.
  Lowering(const program::Program& program, const std::vector<ir::VariableId>& by_need,
           const std::optional<ir::LossScaling>& scaling)
      : program_(program),
        by_need_(by_need),
        scaling_(scaling),
        graph_(*program.graph),
        fetch_(graph_.ops.size() + 1),
        before_(graph_.ops.size() + 1),
        after_(graph_.ops.size() + 1) {}

  program::Stream compute_stream() {
    for (ir::VariableId id : by_need_) place(id);
    if (scaling_) place_barrier(*scaling_);
    place_local_clips();
    return {program::StreamKind::kCompute, compute()};
  }

  program::Stream collective_stream() const {
    return {program::StreamKind::kCollective, collective()};
  }

 private:
  // Positions count the ops that are done: 0 is before the first.
  static std::size_t done(const std::optional<ir::OpId>& op) { return op ? op->value + 1 : 0; }
  std::size_t complete(ir::VariableId id) const {
    return done(graph_.variable(id).gradient_complete);
  }
  std::size_t released(ir::VariableId id) const {
    return std::max(complete(id), done(graph_.variable(id).last_read));
  }

  enum class Carrier { kLocal, kCollective, kSlices };
  Carrier carrier_of(ir::VariableId id) const {
    const program::VariablePlan& plan = program_.plan(id);
    if (plan.collective) return Carrier::kCollective;
    return plan.slices.empty() ? Carrier::kLocal : Carrier::kSlices;
  }

  void place(ir::VariableId id) {
    const ir::Variable& variable = graph_.variable(id);
    after_[complete(id)].emplace_back(program::Contribute{id, *variable.gradient});
    after_[released(id)].emplace_back(program::Release{id});
    if (carrier_of(id) == Carrier::kLocal) {
      if (!program_.plan(id).clip && !scaling_) {
        after_[released(id)].emplace_back(program::Update{id});
      }
      return;
    }
    // Nobody contributes to a version that it has not seen, even of a variable that it never reads.
    const std::size_t own = std::max<std::size_t>(1, complete(id)) - 1;
    const std::size_t first =
        variable.first_use ? std::min<std::size_t>(own, variable.first_use->value) : own;
    before_[first].emplace_back(program::Gate{id});
    const program::Exchange exchange = program_.exchange(id);
    if (!keeps_whole_copies(exchange) && variable.first_use) {
      const bool whole = sums_all_elements(exchange);
      if (whole) fetch_.front().emplace_back(program::Fetch{id, {}});  // all of it, at once
      if (!whole) place_fetch(id);
    }
    if (sums_products(exchange)) place_factors(id);
  }

  // Behind the last gradient. Updates here come after it; others wait for what all ranks say there.
  void place_barrier(const ir::LossScaling& scaling) {
    std::vector<program::Instruction>& end = after_[graph_.ops.size()];
    end.emplace_back(program::AgreeFinite{scaling});
    for (ir::VariableId id : by_need_) {
      if (carrier_of(id) == Carrier::kLocal && !program_.plan(id).clip)
        end.emplace_back(program::Update{id});
    }
  }

  // As soon as the rows' numbers are known.
  void place_fetch(ir::VariableId id) {
    const std::optional<std::vector<ir::ValueId>> rows = ir::rows_read(graph_, id);
    if (!rows) {
      fail(ErrorCode::kInfeasible,
           "step '{}': for a batch of other shapes it reads '{}' in another way than by "
           "embedding; its rows cannot be fetched. Use local_proxy_variable=true.",
           graph_.name, graph_.variable(id).name);
    }
    const ir::History history(graph_);
    std::size_t known = 0;
    for (ir::ValueId each : *rows) known = std::max(known, done(history.maker(each)));
    fetch_[known].emplace_back(program::Fetch{id, *rows});
  }

  void place_factors(ir::VariableId id) {
    const std::optional<ir::Factors> factors = ir::factors_of(graph_, id);
    if (!factors) {
      fail(ErrorCode::kInfeasible,
           "step '{}': for a batch of other shapes the gradient of '{}' is no product of two "
           "matrices. Use another algorithm than sufficient_factors.",
           graph_.name, graph_.variable(id).name);
    }
    before_[factors->product.value].emplace_back(
        program::KeepFactors{id, factors->left, factors->right});
  }

  // The trained variables of a clip that are synchronised in an accepted way.
  template <typename Accept>
  std::vector<ir::VariableId> clipped(program::ClipId clip, Accept accept) const {
    std::vector<ir::VariableId> variables;
    for (ir::VariableId id : by_need_) {
      if (program_.plan(id).clip == clip && accept(carrier_of(id))) variables.push_back(id);
    }
    return variables;
  }

  static void append_updates(program::ClipId clip, const std::vector<ir::VariableId>& variables,
                             std::vector<program::Instruction>& out) {
    out.emplace_back(program::Norm{clip});
    for (ir::VariableId id : variables) out.emplace_back(program::Update{id});
  }

  // The norm blocks the compute stream, so it stands behind all contributions to it.
  void place_local_clips() {
    for (std::size_t i = 0; i < graph_.clips.size(); ++i) {
      const program::ClipId clip(i);
      const auto local = clipped(clip, [](Carrier carrier) { return carrier == Carrier::kLocal; });
      if (local.empty()) continue;
      std::size_t position = scaling_ ? graph_.ops.size() : 0;
      for (ir::VariableId id : clipped(clip, [](Carrier) { return true; })) {
        position = std::max(position, released(id));
      }
      append_updates(clip, local, after_[position]);
    }
  }

  std::vector<program::Instruction> compute() const {
    std::vector<program::Instruction> out;
    const auto append = [&](const std::vector<program::Instruction>& more) {
      out.insert(out.end(), more.begin(), more.end());
    };
    for (std::size_t i = 0; i <= graph_.ops.size(); ++i) {
      append(fetch_[i]);
      append(before_[i]);
      if (i == 0) append(after_[0]);
      if (i == graph_.ops.size()) break;
      out.emplace_back(program::Compute{ir::OpId(i)});
      append(after_[i + 1]);
    }
    return out;
  }

  // Instructions of the collective stream, and the position from which they can start as far as
  // this rank's ops decide. Among equals: collectives, updates, norms.
  enum class Kind { kAllReduce, kUpdate, kNorm };
  struct Entry {
    std::size_t position = 0;
    Kind kind = Kind::kAllReduce;
    std::vector<program::Instruction> instructions;
  };

  std::vector<program::Instruction> collective() const {
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < program_.collectives.size(); ++i) {
      add_collective(program::CollectiveId(i), entries);
    }
    for (std::size_t i = 0; i < graph_.clips.size(); ++i) add_clip(program::ClipId(i), entries);
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.position, a.kind) < std::tie(b.position, b.kind);
    });
    std::vector<program::Instruction> out;
    for (const Entry& entry : entries) {
      out.insert(out.end(), entry.instructions.begin(), entry.instructions.end());
    }
    return out;
  }

  [[nodiscard]] std::size_t behind_all() const { return graph_.ops.size() + 1; }

  std::size_t complete(const program::Collective& collective) const {
    std::size_t last = 0;
    for (ir::VariableId id : collective.variables) last = std::max(last, complete(id));
    return last;
  }

  void add_collective(program::CollectiveId id, std::vector<Entry>& entries) const {
    const program::Collective& collective = program_.collectives[id.value];
    const std::size_t last = complete(collective);
    entries.push_back({last, Kind::kAllReduce, {program::AllReduce{id}}});
    for (ir::VariableId variable : collective.variables) {
      if (program_.plan(variable).clip) continue;
      const std::size_t position = scaling_ ? behind_all() : std::max(last, released(variable));
      entries.push_back({position, Kind::kUpdate, {program::Update{variable}}});
    }
  }

  void add_clip(program::ClipId clip, std::vector<Entry>& entries) const {
    const auto here =
        clipped(clip, [](Carrier carrier) { return carrier == Carrier::kCollective; });
    if (here.empty()) return;
    Entry entry{0, Kind::kNorm, {}};
    for (ir::VariableId id : here) {
      const auto& collective = program_.collectives[program_.plan(id).collective->value];
      entry.position = std::max({entry.position, released(id), complete(collective)});
    }
    // A norm that waits for slices, too, stands behind all collectives.
    if (scaling_ ||
        !clipped(clip, [](Carrier carrier) { return carrier == Carrier::kSlices; }).empty()) {
      entry.position = behind_all();
    }
    append_updates(clip, here, entry.instructions);
    entries.push_back(std::move(entry));
  }

  const program::Program& program_;
  const std::vector<ir::VariableId>& by_need_;
  const std::optional<ir::LossScaling>& scaling_;
  const ir::Graph& graph_;
  std::vector<std::vector<program::Instruction>> fetch_;   // by number of ops done
  std::vector<std::vector<program::Instruction>> before_;  // by op
  std::vector<std::vector<program::Instruction>> after_;   // by number of ops done
};

}  // namespace

void lower(State& state) {
  if (state.program.is_placed()) return lower_placed(state);
  program::Role computes;
  program::Role serves;
  for (std::size_t i = 0; i < state.program.ranks.size(); ++i) {
    (state.program.ranks[i].replica ? computes : serves).ranks.emplace_back(i);
  }
  Lowering lowering(state.program, state.by_need, state.options.loss_scaling);
  computes.streams.push_back(lowering.compute_stream());
  program::Stream collective = lowering.collective_stream();
  if (!collective.instructions.empty()) computes.streams.push_back(std::move(collective));
  state.program.roles = {std::move(computes)};
  if (!serves.ranks.empty()) state.program.roles.push_back(std::move(serves));
}

program::Stream compute_stream(const program::Program& program,
                               const std::vector<ir::VariableId>& by_need,
                               const std::optional<ir::LossScaling>& scaling) {
  return Lowering(program, by_need, scaling).compute_stream();
}

}  // namespace autodist::passes
