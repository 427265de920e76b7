#include "autodist/capture/compact.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "autodist/ir/own_ops.h"

namespace autodist::capture {
namespace {

class Compactor {
 public:
  explicit Compactor(ir::Graph& graph)
      : graph_(graph),
        storages_(graph.storages.size()),
        values_(graph.values.size()),
        slots_(graph.slot_count),
        scopes_(graph.scopes.size()) {}

  void run() {
    new_scopes_ = {""};
    scopes_[0] = ir::ScopeId(0);
    for (ir::Input& each : graph_.inputs) renumber(each.value);
    for (ir::Variable& each : graph_.variables) renumber(each.value);
    for (ir::Buffer& each : graph_.buffers) renumber(each.value);
    for (ir::Constant& each : graph_.constants) renumber(each.value);
    for (ir::Op& op : graph_.ops) renumber(op);
    for (ir::ValueId& output : graph_.outputs) renumber(output);
    for (ir::Variable& each : graph_.variables) {
      if (each.gradient) renumber(*each.gradient);
    }
    graph_.storages = std::move(new_storages_);
    graph_.values = std::move(new_values_);
    graph_.scopes = std::move(new_scopes_);
    graph_.slot_count = slot_count_;
  }

 private:
  void renumber(ir::ValueId& id) {
    auto& to = values_[id.value];
    if (!to) {
      ir::Value value = std::move(graph_.values[id.value]);
      auto& storage = storages_[value.storage.value];
      if (!storage) {
        storage = ir::StorageId(new_storages_.size());
        new_storages_.push_back(graph_.storages[value.storage.value]);
      }
      auto& slot = slots_[value.slot.value];
      if (!slot) slot = ir::SlotId(slot_count_++);
      value.storage = *storage;
      value.slot = *slot;
      to = ir::ValueId(new_values_.size());
      new_values_.push_back(std::move(value));
    }
    id = *to;
  }

  void renumber(ir::Op& op) {
    const auto renumber_one = [&](ir::ValueId& id) { renumber(id); };
    for (ir::Argument& argument : op.arguments) ir::for_each_value(argument, renumber_one);
    for (ir::Result& result : op.results) ir::for_each_value(result, renumber_one);
    auto& scope = scopes_[op.scope.value];
    if (!scope) {
      scope = ir::ScopeId(new_scopes_.size());
      new_scopes_.push_back(graph_.scopes[op.scope.value]);
    }
    op.scope = *scope;
  }

  ir::Graph& graph_;
  std::vector<std::optional<ir::StorageId>> storages_;
  std::vector<std::optional<ir::ValueId>> values_;
  std::vector<std::optional<ir::SlotId>> slots_;
  std::vector<std::optional<ir::ScopeId>> scopes_;
  std::vector<ir::Storage> new_storages_;
  std::vector<ir::Value> new_values_;
  std::vector<std::string> new_scopes_;
  std::uint32_t slot_count_ = 0;
};

// The generator's state is kept for every op that draws; few draw again what another one has drawn.
void drop_unread_states(ir::Graph& graph) {
  std::vector<bool> is_read(graph.values.size());
  for (const ir::Op& op : graph.ops) {
    ir::for_each_read(op, [&](ir::ValueId value) { is_read[value.value] = true; });
  }
  const auto unread = [&](const ir::Op& op) {
    return op.name == ir::kKeepGeneratorOp &&
           !is_read[std::get<ir::ValueId>(op.results.front()).value];
  };
  graph.ops.erase(std::remove_if(graph.ops.begin(), graph.ops.end(), unread), graph.ops.end());
}

}  // namespace

void compact(ir::Graph& graph) {
  drop_unread_states(graph);
  Compactor(graph).run();
}

}  // namespace autodist::capture
