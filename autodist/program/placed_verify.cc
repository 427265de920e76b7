#include "autodist/program/placed_verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/ir/history.h"

namespace autodist::program {
namespace {

class PlacedVerifier {
 public:
  explicit PlacedVerifier(const Program& program)
      : program_(program),
        graph_(*program.graph),
        history_(graph_),
        stages_(program.stages),
        before_(dependencies(graph_)),
        stage_of_(graph_.ops.size() * program.micro_batches, kNowhere),
        sent_(program.transfers.size()),
        gate_(graph_.variables.size()),
        released_(graph_.variables.size()),
        contributed_(graph_.variables.size()),
        variable_of_(ir::variables_by_storage(graph_)) {}

  void run() {
    find_streams();
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
        while (advance(stage)) moved = true;
      }
    }
    for (std::uint32_t stage = 0; stage < stages_.size(); ++stage) {
      AD_CHECK(stages_[stage].next == stages_[stage].stream->size())
          << "stage " << stage << " waits for ever at instruction " << stages_[stage].next;
    }
    check_complete();
    check_storages();
  }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  using Moment = std::pair<ir::ValueId, std::uint32_t>;  // a value of a micro-batch

  struct Stage {
    const std::vector<Instruction>* stream = nullptr;
    std::size_t next = 0;
    std::set<Moment> received;
  };

  void find_streams() {
    AD_CHECK(program_.micro_batches > 0) << "a placed graph without micro-batches";
    AD_CHECK(program_.replica_count() % program_.stages == 0)
        << program_.replica_count() << " ranks compute, in stages of " << program_.stages;
    for (const Role& role : program_.roles) {
      if (role.streams.empty()) continue;
      AD_CHECK(role.streams.size() == 1) << "a stage has " << role.streams.size() << " streams";
      const auto* stream = &role.streams.front().instructions;
      for (const Rank rank : role.ranks) {
        Stage& stage = stages_[program_.stage(rank)];
        AD_CHECK(stage.stream == nullptr || stage.stream == stream)
            << "stage " << program_.stage(rank) << " has two roles";
        stage.stream = stream;
      }
    }
    for (const Stage& stage : stages_) AD_CHECK(stage.stream != nullptr) << "a stage without role";
  }

  // One instruction, unless it has to wait.
  bool advance(std::uint32_t stage) {
    Stage& at = stages_[stage];
    if (at.next == at.stream->size()) return false;
    const Instruction& instruction = (*at.stream)[at.next];
    if (const auto* receive = std::get_if<Receive>(&instruction)) {
      AD_CHECK(receive->transfer.value < sent_.size()) << "no transfer " << receive->transfer;
      if (!sent_[receive->transfer.value]) return false;
    }
    ++at.next;
    std::visit([&](const auto& each) { check(each, stage); }, instruction);
    return true;
  }

  const std::string& name(ir::VariableId id) const { return graph_.variable(id).name; }
  bool holds(ir::VariableId id, std::uint32_t stage) const {
    const auto& slices = program_.plan(id).slices;
    return std::all_of(slices.begin(), slices.end(), [&](SliceId slice) {
      const auto& members = program_.slice(slice).members;
      return std::all_of(members.begin(), members.end(),
                         [&](Rank rank) { return program_.stage(rank) == stage; });
    });
  }
  std::uint32_t& stage_of(ir::OpId op, std::uint32_t micro_batch) {
    return stage_of_[op.value * program_.micro_batches + micro_batch];
  }
  bool has(std::uint32_t stage, ir::ValueId value, std::uint32_t micro_batch) {
    const std::optional<ir::OpId> maker = history_.maker(value);
    return !maker || stage_of(*maker, micro_batch) == stage ||
           stages_[stage].received.count({value, micro_batch}) > 0;
  }

  void check(const Compute& compute, std::uint32_t stage) {
    const std::uint32_t micro = compute.micro_batch;
    AD_CHECK(compute.op.value < graph_.ops.size() && micro < program_.micro_batches)
        << "no op " << compute.op << " of micro-batch " << micro;
    AD_CHECK(stage_of(compute.op, micro) == kNowhere) << "op " << compute.op << " is there twice";
    const ir::Op& op = graph_.op(compute.op);
    for_each_read(op, [&](ir::ValueId value) {
      AD_CHECK(has(stage, value, micro))
          << "op " << compute.op << " (" << op.name << ") reads a value that stage " << stage
          << " does not have";
      const auto found = variable_of_.find(graph_.value(value).storage);
      if (found == variable_of_.end()) return;
      const ir::VariableId variable = found->second;
      const bool trained = !program_.plan(variable).slices.empty();
      AD_CHECK(holds(variable, stage)) << name(variable) << " is read at stage " << stage;
      AD_CHECK(!trained || gate_[variable.value])
          << "op " << compute.op << " reads " << name(variable) << " before its gate";
      AD_CHECK(!released_[variable.value])
          << "op " << compute.op << " reads " << name(variable) << " after its release";
    });
    // What the values do not say: writes after reads, and the order of random ops.
    for (const ir::OpId other : before_[compute.op.value]) {
      const std::uint32_t where = stage_of(other, micro);
      AD_CHECK(where != kNowhere) << "op " << compute.op << " runs before op " << other;
    }
    stage_of(compute.op, micro) = stage;
  }

  void check(const Send& send, std::uint32_t stage) {
    AD_CHECK(send.transfer.value < sent_.size()) << "no transfer " << send.transfer;
    const StageTransfer& transfer = program_.transfer(send.transfer);
    AD_CHECK(transfer.from == stage) << "stage " << stage << " sends for " << transfer.from;
    AD_CHECK(!sent_[send.transfer.value]) << "transfer " << send.transfer << " is sent twice";
    AD_CHECK(!transfer.value || has(stage, *transfer.value, transfer.micro_batch))
        << "stage " << stage << " sends what it does not have";
    sent_[send.transfer.value] = true;
  }

  void check(const Receive& receive, std::uint32_t stage) {
    const StageTransfer& transfer = program_.transfer(receive.transfer);
    AD_CHECK(std::binary_search(transfer.to.begin(), transfer.to.end(), stage))
        << "stage " << stage << " receives transfer " << receive.transfer << " of others";
    AD_CHECK(received_.insert({receive.transfer, stage}).second)
        << "transfer " << receive.transfer << " is received twice";
    if (transfer.value) stages_[stage].received.insert({*transfer.value, transfer.micro_batch});
  }

  void check(const Gate& gate, std::uint32_t stage) {
    AD_CHECK(holds(gate.variable, stage))
        << "stage " << stage << " waits for " << name(gate.variable);
    AD_CHECK(!gate_[gate.variable.value]) << "a second gate of " << name(gate.variable);
    gate_[gate.variable.value] = true;
  }
  void check(const Contribute& contribute, std::uint32_t stage) {
    const ir::Variable& variable = graph_.variable(contribute.variable);
    AD_CHECK(holds(contribute.variable, stage)) << variable.name << " is not of stage " << stage;
    AD_CHECK(variable.gradient == contribute.gradient)
        << "the contribution of " << variable.name << " is %" << contribute.gradient;
    AD_CHECK(has(stage, contribute.gradient, contribute.micro_batch))
        << variable.name << " contributes before its gradient is there";
    AD_CHECK(contributed_[contribute.variable.value]++ == contribute.micro_batch)
        << variable.name << " contributes micro-batch " << contribute.micro_batch << " out of turn";
  }
  void check(const Release& release, std::uint32_t stage) {
    AD_CHECK(holds(release.variable, stage)) << name(release.variable) << " is not of " << stage;
    released_[release.variable.value] = true;
  }
  void check(const AgreeFinite&, std::uint32_t) {}
  void check(const StepBarrier&, std::uint32_t) {}
  void check(const Norm&, std::uint32_t) {}
  template <typename Other>
  void check(const Other&, std::uint32_t stage) {
    AD_CHECK(false) << "an instruction at stage " << stage << " that placed graphs do not have";
  }

  void check_complete() {
    for (std::size_t i = 0; i < stage_of_.size(); ++i) {
      AD_CHECK(stage_of_[i] != kNowhere) << "op " << i / program_.micro_batches << " is missing";
    }
    std::size_t receivers = 0;
    for (const StageTransfer& transfer : program_.transfers) receivers += transfer.to.size();
    AD_CHECK(received_.size() == receivers)
        << received_.size() << " of " << receivers << " receipts of transfers";
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      if (!graph_.variables[i].gradient) continue;
      AD_CHECK(contributed_[i] == program_.micro_batches && released_[i])
          << name(ir::VariableId(i)) << " contributes " << contributed_[i] << " times";
      AD_CHECK(!program_.plan(ir::VariableId(i)).slices.empty())
          << name(ir::VariableId(i)) << " is trained and synchronised by nothing";
    }
  }

  // What is written in place is in one piece.
  void check_storages() {
    for (std::uint32_t micro = 0; micro < program_.micro_batches; ++micro) {
      std::map<ir::StorageId, std::uint32_t> where;
      for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
        const auto touch = [&](ir::ValueId value) {
          const ir::StorageId storage = graph_.value(value).storage;
          if (!history_.overwritten(storage)) return;
          const auto [found, is_new] = where.emplace(storage, stage_of(ir::OpId(i), micro));
          AD_CHECK(is_new || found->second == stage_of(ir::OpId(i), micro))
              << "op " << i << " (" << graph_.ops[i].name << ") touches a storage of stage "
              << found->second << " that is written in place";
        };
        for_each_read(graph_.ops[i], touch);
        for_each_result(graph_.ops[i], touch);
      }
    }
  }

  const Program& program_;
  const ir::Graph& graph_;
  const ir::History history_;
  std::vector<Stage> stages_;
  const std::vector<std::vector<ir::OpId>> before_;
  std::vector<std::uint32_t> stage_of_;                           // by op and micro-batch
  std::vector<bool> sent_;                                        // by transfer
  std::set<std::pair<StageTransferId, std::uint32_t>> received_;  // by which stage
  std::vector<bool> gate_;                                        // by variable
  std::vector<bool> released_;
  std::vector<std::uint32_t> contributed_;  // micro-batches
  const std::map<ir::StorageId, ir::VariableId> variable_of_;
};

}  // namespace

void verify_placed_roles(const Program& program) { PlacedVerifier(program).run(); }

}  // namespace autodist::program
