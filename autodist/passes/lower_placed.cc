// Tables and stages -> the streams of a placed graph: one role per stage.
//
// One total order over the ops of all micro-batches: every micro-batch forward, then every
// micro-batch backward. Within each an op's turn is its micro-batch plus its level, which is how
// often the values that lead to it have changed stages; where every stage comes once this is
// GPipe's order (Huang et al., NeurIPS 2019, section 2.3), and a stage that comes again (a tied
// embedding's, with the logits) does the next micro-batch's first part while others have the
// middle of this one. A stage's stream is the order restricted to its ops. A value is sent behind
// the op that makes it and received before the first op that reads it, so whoever waits waits for
// something earlier in the order, and somebody can always go on (docs/placement.md).

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "autodist/ir/history.h"
#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

class PlacedLowering {
 public:
  explicit PlacedLowering(State& state)
      : state_(state),
        program_(state.program),
        graph_(state.graph()),
        history_(graph_),
        streams_(program_.stages),
        variable_of_(ir::variables_by_storage(graph_)),
        gated_(graph_.variables.size()) {
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      const ir::Variable& variable = graph_.variables[i];
      if (!variable.gradient) continue;
      const auto maker = history_.maker(*variable.gradient);
      const bool local = !maker || stage_of(*maker) == state_.stage_of_variable[i];
      const std::size_t complete =
          variable.gradient_complete ? variable.gradient_complete->value : graph_.ops.size() - 1;
      (local ? complete_at_[complete] : complete_elsewhere_).emplace_back(i);
    }
    find_readers();
  }

  void run() {
    program_.transfers.clear();
    const std::size_t forward = forward_ops();
    const std::vector<std::uint32_t> levels = levels_of_ops();
    emit_in_turn(0, forward, levels);
    emit_in_turn(forward, graph_.ops.size(), levels);
    for (std::uint32_t m = 0; m < program_.micro_batches; ++m) {
      for (const ir::VariableId variable : complete_elsewhere_) contribute(variable, m);
    }
    finish();
    make_roles();
  }

 private:
  using Key = std::pair<ir::ValueId, std::uint32_t>;  // a value of a micro-batch

  std::uint32_t stage_of(ir::OpId op) const { return state_.stage_of_op[op.value]; }
  std::vector<program::Instruction>& stream(std::uint32_t stage) { return streams_[stage]; }

  std::size_t forward_ops() const {
    const auto first = std::find_if(graph_.ops.begin(), graph_.ops.end(), [](const ir::Op& op) {
      return op.phase == ir::Phase::kBackward;
    });
    return static_cast<std::size_t>(first - graph_.ops.begin());
  }

  // By op. All 0, which is micro-batch by micro-batch, where a buffer would else be written for one
  // micro-batch between another's uses of it.
  std::vector<std::uint32_t> levels_of_ops() const {
    std::vector<std::uint32_t> levels(graph_.ops.size());
    const std::vector<std::vector<ir::OpId>> before = ir::dependencies(graph_);
    std::map<ir::StorageId, std::uint32_t> of_buffer;
    bool parted = false;
    for (std::size_t i = 0; i < levels.size(); ++i) {
      for (const ir::OpId other : before[i]) {
        const bool crosses = stage_of(other) != stage_of(ir::OpId(i));
        levels[i] = std::max(levels[i], levels[other.value] + (crosses ? 1 : 0));
      }
      const auto touch = [&](ir::ValueId value) {
        const ir::StorageId storage = graph_.value(value).storage;
        if (graph_.storages[storage.value].kind != ir::StorageKind::kBuffer) return;
        if (!history_.overwritten(storage)) return;
        parted |= of_buffer.emplace(storage, levels[i]).first->second != levels[i];
      };
      ir::for_each_read(graph_.ops[i], touch);
      ir::for_each_result(graph_.ops[i], touch);
    }
    if (parted) std::fill(levels.begin(), levels.end(), 0U);
    return levels;
  }

  void emit_in_turn(std::size_t begin, std::size_t end, const std::vector<std::uint32_t>& levels) {
    std::vector<std::tuple<std::uint32_t, std::uint32_t, std::size_t>>
        order;  // turn, micro-batch, op
    for (std::uint32_t m = 0; m < program_.micro_batches; ++m) {
      for (std::size_t i = begin; i < end; ++i) order.emplace_back(m + levels[i], m, i);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [turn, m, op] : order) emit(ir::OpId(op), m);
  }

  // Who needs which value of another stage; what a step returns is everybody's.
  void find_readers() {
    const auto need = [&](ir::ValueId value, std::uint32_t stage) {
      const auto maker = history_.maker(value);
      if (maker && stage_of(*maker) != stage) readers_[value].insert(stage);
    };
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      ir::for_each_read(graph_.ops[i],
                        [&](ir::ValueId value) { need(value, stage_of(ir::OpId(i))); });
    }
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      const ir::Variable& variable = graph_.variables[i];
      if (variable.gradient) need(*variable.gradient, state_.stage_of_variable[i]);
    }
    for (const ir::ValueId output : graph_.outputs) {
      for (std::uint32_t stage = 0; stage < program_.stages; ++stage) need(output, stage);
    }
    for (const auto& [value, stages] : readers_) made_by_[*history_.maker(value)].push_back(value);
  }

  void emit(ir::OpId op, std::uint32_t m) {
    const std::uint32_t stage = stage_of(op);
    if (graph_.op(op).random) pass_generator(stage, m);
    ir::for_each_read(graph_.op(op), [&](ir::ValueId value) {
      receive(value, stage, m);
      const auto variable = variable_of_.find(graph_.value(value).storage);
      if (variable != variable_of_.end()) gate(variable->second, stage);
    });
    stream(stage).emplace_back(program::Compute{op, m});
    const auto made = made_by_.find(op);
    if (made != made_by_.end()) {
      for (const ir::ValueId value : made->second) send(value, stage, m);
    }
    const auto complete = complete_at_.find(op.value);
    if (complete == complete_at_.end()) return;
    for (const ir::VariableId variable : complete->second) contribute(variable, m);
  }

  void send(ir::ValueId value, std::uint32_t stage, std::uint32_t m) {
    const std::set<std::uint32_t>& to = readers_.at(value);
    const program::StageTransferId id(program_.transfers.size());
    program_.transfers.push_back({value, m, stage, {to.begin(), to.end()}});
    transfers_[{value, m}] = id;
    stream(stage).emplace_back(program::Send{id});
  }

  void receive(ir::ValueId value, std::uint32_t stage, std::uint32_t m) {
    const auto found = transfers_.find({value, m});
    if (found == transfers_.end() || program_.transfer(found->second).from == stage) return;
    if (!received_.insert({found->second, stage}).second) return;
    stream(stage).emplace_back(program::Receive{found->second});
  }

  // The draws of a step come from one generator, in the graph's order, wherever they happen: its
  // state goes along.
  void pass_generator(std::uint32_t stage, std::uint32_t m) {
    const auto [last, is_first] = generator_at_.emplace(m, stage);
    if (is_first || last->second == stage) return;
    const program::StageTransferId id(program_.transfers.size());
    program_.transfers.push_back({std::nullopt, m, last->second, {stage}});
    stream(last->second).emplace_back(program::Send{id});
    stream(stage).emplace_back(program::Receive{id});
    last->second = stage;
  }

  void gate(ir::VariableId id, std::uint32_t stage) {
    if (gated_[id.value]) return;
    gated_[id.value] = true;
    stream(stage).emplace_back(program::Gate{id});
  }

  void contribute(ir::VariableId id, std::uint32_t m) {
    const std::uint32_t stage = state_.stage_of_variable[id.value];
    const ir::ValueId gradient = *graph_.variable(id).gradient;
    receive(gradient, stage, m);
    gate(id, stage);  // nobody contributes to a version that it has not seen
    stream(stage).emplace_back(program::Contribute{id, gradient, m});
    if (m + 1 == program_.micro_batches) released_.push_back(id);
  }

  // What stands behind everything else.
  void finish() {
    for (std::uint32_t m = 0; m < program_.micro_batches; ++m) {
      for (std::uint32_t stage = 0; stage < program_.stages; ++stage) {
        for (const ir::ValueId output : graph_.outputs) receive(output, stage, m);
      }
    }
    for (std::uint32_t stage = 0; stage < program_.stages; ++stage) insert_releases(stage);
    if (!state_.options.loss_scaling) return;
    for (auto& each : streams_) {
      each.emplace_back(program::AgreeFinite{*state_.options.loss_scaling});
    }
  }

  // As early as the last micro-batch allows: behind its gradient and its last read.
  void insert_releases(std::uint32_t stage) {
    std::map<std::size_t, std::vector<ir::VariableId>> behind;  // by index of the instruction
    std::map<ir::VariableId, std::size_t> last;
    const std::vector<program::Instruction>& all = stream(stage);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (const auto* contribute = std::get_if<program::Contribute>(&all[i])) {
        last[contribute->variable] = i;
      }
      const auto* compute = std::get_if<program::Compute>(&all[i]);
      if (compute == nullptr) continue;
      ir::for_each_read(graph_.op(compute->op), [&](ir::ValueId value) {
        const auto found = variable_of_.find(graph_.value(value).storage);
        if (found != variable_of_.end()) last[found->second] = i;
      });
    }
    for (const ir::VariableId id : released_) {
      if (state_.stage_of_variable[id.value] == stage) behind[last.at(id)].push_back(id);
    }
    std::vector<program::Instruction> with;
    for (std::size_t i = 0; i < all.size(); ++i) {
      with.push_back(all[i]);
      const auto found = behind.find(i);
      if (found == behind.end()) continue;
      for (const ir::VariableId id : found->second) with.emplace_back(program::Release{id});
    }
    stream(stage) = std::move(with);
  }

  void make_roles() {
    std::vector<program::Role> roles(program_.stages);
    program::Role serves;
    for (std::size_t i = 0; i < program_.ranks.size(); ++i) {
      const program::Rank rank(i);
      (program_.computes(rank) ? roles[program_.stage(rank)] : serves).ranks.push_back(rank);
    }
    for (std::uint32_t stage = 0; stage < program_.stages; ++stage) {
      roles[stage].streams = {{program::StreamKind::kCompute, std::move(streams_[stage])}};
    }
    if (!serves.ranks.empty()) roles.push_back(std::move(serves));
    program_.roles = std::move(roles);
  }

  State& state_;
  program::Program& program_;
  const ir::Graph& graph_;
  const ir::History history_;
  std::vector<std::vector<program::Instruction>> streams_;  // by stage
  const std::map<ir::StorageId, ir::VariableId> variable_of_;
  std::map<std::size_t, std::vector<ir::VariableId>> complete_at_;  // by op, at its stage
  std::vector<ir::VariableId> complete_elsewhere_;                  // at another stage
  std::map<ir::ValueId, std::set<std::uint32_t>> readers_;          // stages
  std::map<ir::OpId, std::vector<ir::ValueId>> made_by_;
  std::map<Key, program::StageTransferId> transfers_;
  std::set<std::pair<program::StageTransferId, std::uint32_t>> received_;
  std::map<std::uint32_t, std::uint32_t> generator_at_;  // stage, by micro-batch
  std::vector<bool> gated_;                              // by variable
  std::vector<ir::VariableId> released_;
};

}  // namespace

void lower_placed(State& state) { PlacedLowering(state).run(); }

}  // namespace autodist::passes
