// Tables -> streams. All ranks that compute do the same; the others only serve.
//
// The compute stream is the graph's ops in order, with what a variable needs around them. The
// collective stream is ordered so that nothing that is ready waits behind something that is not:
// first what depends on this rank's gradients and on library collectives, by the op after which it
// can start; then what waits for slices, the most urgent variable first.

#include <algorithm>
#include <tuple>

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

class Lowering {
 public:
  explicit Lowering(const State& state)
      : state_(state),
        program_(state.program),
        graph_(state.graph()),
        before_(graph_.ops.size() + 1),
        after_(graph_.ops.size() + 1) {}

  std::vector<ir::Stream> streams() {
    for (ir::VariableId id : state_.by_need) place(id);
    place_local_clips();
    std::vector<ir::Stream> streams{{ir::StreamKind::kCompute, compute()}};
    auto collective = this->collective();
    if (!collective.empty()) {
      streams.push_back({ir::StreamKind::kCollective, std::move(collective)});
    }
    return streams;
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

  enum class Way { kLocal, kCollective, kSlicesToOwner, kSlicesToAll };
  Way way_of(ir::VariableId id) const {
    const ir::VariablePlan& plan = program_.plan(id);
    if (plan.collective) return Way::kCollective;
    if (plan.slices.empty()) return Way::kLocal;
    return program_.slice(plan.slices.front()).update_at == ir::UpdateAt::kOwner
               ? Way::kSlicesToOwner
               : Way::kSlicesToAll;
  }

  void place(ir::VariableId id) {
    const ir::Variable& variable = graph_.variable(id);
    if (way_of(id) == Way::kLocal) {
      if (!program_.plan(id).clip) after_[released(id)].emplace_back(ir::Update{id});
      return;
    }
    // Nobody contributes to a version that it has not seen, even of a variable that it never reads.
    const std::size_t own = std::max<std::size_t>(1, complete(id)) - 1;
    const std::size_t first =
        variable.first_use ? std::min<std::size_t>(own, variable.first_use->value) : own;
    before_[first].emplace_back(ir::Gate{id});
    after_[complete(id)].emplace_back(ir::Contribute{id, *variable.gradient});
    after_[released(id)].emplace_back(ir::Release{id});
  }

  // The trained variables of a clip that are synchronised in an accepted way.
  template <typename Accept>
  std::vector<ir::VariableId> clipped(ir::ClipId clip, Accept accept) const {
    std::vector<ir::VariableId> variables;
    for (ir::VariableId id : state_.by_need) {
      if (program_.plan(id).clip == clip && accept(way_of(id))) variables.push_back(id);
    }
    return variables;
  }

  static void append_updates(ir::ClipId clip, const std::vector<ir::VariableId>& variables,
                             std::vector<ir::Instruction>& out) {
    out.emplace_back(ir::Norm{clip});
    for (ir::VariableId id : variables) out.emplace_back(ir::Update{id});
  }

  // The norm blocks the compute stream, so it stands behind all contributions to it.
  void place_local_clips() {
    for (std::size_t i = 0; i < graph_.clips.size(); ++i) {
      const ir::ClipId clip(i);
      const auto local = clipped(clip, [](Way way) { return way == Way::kLocal; });
      if (local.empty()) continue;
      std::size_t position = 0;
      for (ir::VariableId id : clipped(clip, [](Way) { return true; })) {
        position = std::max(position, released(id));
      }
      append_updates(clip, local, after_[position]);
    }
  }

  std::vector<ir::Instruction> compute() const {
    std::vector<ir::Instruction> out;
    const auto append = [&](const std::vector<ir::Instruction>& more) {
      out.insert(out.end(), more.begin(), more.end());
    };
    for (std::size_t i = 0; i <= graph_.ops.size(); ++i) {
      append(before_[i]);
      if (i == 0) append(after_[0]);
      if (i == graph_.ops.size()) break;
      out.emplace_back(ir::Compute{ir::OpId(i)});
      append(after_[i + 1]);
    }
    return out;
  }

  std::vector<ir::Instruction> collective() const {
    std::vector<ir::Instruction> out = after_collectives();
    const auto more = after_slices();
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

  // Whether a clip's norm waits for slices as well.
  bool waits_for_slices(ir::ClipId clip) const {
    return !clipped(clip, [](Way way) {
              return way == Way::kSlicesToOwner || way == Way::kSlicesToAll;
            }).empty();
  }

  std::vector<ir::Instruction> after_collectives() const {
    struct Entry {
      std::size_t position = 0;  // when it can start, as far as this rank's ops decide
      int kind = 0;              // among equals: collectives, updates, norms
      std::vector<ir::Instruction> instructions;
    };
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < program_.collectives.size(); ++i) {
      std::size_t last = 0;
      for (ir::VariableId id : program_.collectives[i].variables) {
        last = std::max(last, complete(id));
      }
      entries.push_back({last, 0, {ir::AllReduce{ir::CollectiveId(i)}}});
      for (ir::VariableId id : program_.collectives[i].variables) {
        if (program_.plan(id).clip) continue;
        entries.push_back({std::max(last, released(id)), 1, {ir::Update{id}}});
      }
    }
    for (std::size_t i = 0; i < graph_.clips.size(); ++i) {
      const ir::ClipId clip(i);
      const auto here = clipped(clip, [](Way way) { return way == Way::kCollective; });
      if (here.empty() || waits_for_slices(clip)) continue;
      Entry entry{0, 2, {}};
      for (ir::VariableId id : here) {
        entry.position = std::max(entry.position, released(id));
        for (ir::VariableId other :
             program_.collectives[program_.plan(id).collective->value].variables) {
          entry.position = std::max(entry.position, complete(other));
        }
      }
      append_updates(clip, here, entry.instructions);
      entries.push_back(std::move(entry));
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.position, a.kind) < std::tie(b.position, b.kind);
    });
    std::vector<ir::Instruction> out;
    for (const Entry& entry : entries) {
      out.insert(out.end(), entry.instructions.begin(), entry.instructions.end());
    }
    return out;
  }

  std::vector<ir::Instruction> after_slices() const {
    std::vector<ir::Instruction> out;
    std::vector<bool> clip_done(graph_.clips.size());
    for (ir::VariableId id : state_.by_need) {
      const auto& clip = program_.plan(id).clip;
      const Way way = way_of(id);
      if (clip && (way == Way::kSlicesToAll || way == Way::kCollective) &&
          waits_for_slices(*clip)) {
        if (clip_done[clip->value]) continue;
        clip_done[clip->value] = true;
        append_updates(
            *clip,
            clipped(*clip,
                    [](Way each) { return each == Way::kSlicesToAll || each == Way::kCollective; }),
            out);
      } else if (!clip && way == Way::kSlicesToAll) {
        out.emplace_back(ir::Update{id});
      }
    }
    return out;
  }

  const State& state_;
  const ir::Program& program_;
  const ir::Graph& graph_;
  std::vector<std::vector<ir::Instruction>> before_;  // by op
  std::vector<std::vector<ir::Instruction>> after_;   // by number of ops done
};

}  // namespace

void lower(State& state) {
  ir::Role computes;
  ir::Role serves;
  for (std::size_t i = 0; i < state.program.ranks.size(); ++i) {
    (state.program.ranks[i].replica ? computes : serves).ranks.emplace_back(i);
  }
  computes.streams = Lowering(state).streams();
  state.program.roles = {std::move(computes)};
  if (!serves.ranks.empty()) state.program.roles.push_back(std::move(serves));
}

}  // namespace autodist::passes
