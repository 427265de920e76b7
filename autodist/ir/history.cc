#include "autodist/ir/history.h"

#include <utility>

#include "autodist/base/sort_unique.h"

namespace autodist::ir {

std::vector<StorageId> written_storages(const Graph& graph, const Op& op) {
  std::vector<StorageId> storages;
  const auto add = [&](ValueId value) { storages.push_back(graph.value(value).storage); };
  for (std::uint32_t index : op.writes) for_each_value(op.arguments[index], add);
  sort_unique(storages);
  return storages;
}

namespace {

std::vector<bool> slots_before_step(const Graph& graph) {
  std::vector<bool> exists(graph.slot_count);
  const auto mark = [&](const auto& named) {
    for (const auto& each : named) exists[graph.value(each.value).slot.value] = true;
  };
  mark(graph.inputs);
  mark(graph.variables);
  mark(graph.buffers);
  mark(graph.constants);
  return exists;
}

}  // namespace

History::History(const Graph& graph)
    : graph_(graph), versions_(graph.storages.size()), slots_(graph.slot_count) {
  const std::vector<bool> early_slots = slots_before_step(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(i);
    for (StorageId storage : written_storages(graph, graph.op(id))) {
      versions_[storage.value].push_back(id);
    }
    for_each_result(graph.op(id), [&](ValueId result) {
      const Value& value = graph.value(result);
      auto& made = versions_[value.storage.value];
      const bool created = !exists_before_step(graph.storages[value.storage.value]) && made.empty();
      if (created) made.push_back(id);
      auto& slot = slots_[value.slot.value];
      if (!slot && !early_slots[value.slot.value]) slot = id;
    });
  }
}

std::optional<OpId> History::maker(ValueId id) const {
  const Value& value = graph_.value(id);
  const auto& made = versions_[value.storage.value];
  const bool early = exists_before_step(graph_.storages[value.storage.value]);
  std::optional<OpId> latest = slot_maker(value.slot);
  const std::size_t ordinal = early ? std::size_t{value.version} - 1 : value.version;
  const bool made_by_op = !(early && value.version == 0) && ordinal < made.size();
  if (made_by_op && (!latest || *latest < made[ordinal])) latest = made[ordinal];
  return latest;
}

bool History::overwritten(StorageId storage) const {
  const std::size_t creations = exists_before_step(graph_.storages[storage.value]) ? 0 : 1;
  return versions_[storage.value].size() > creations;
}

Analysis analysis_of(const Graph& graph) {
  const History history(graph);
  std::vector<std::optional<OpId>> first_read(graph.storages.size());
  std::vector<std::optional<OpId>> last_read(graph.storages.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    for_each_read(graph.ops[i], [&](ValueId read) {
      const StorageId storage = graph.value(read).storage;
      if (!first_read[storage.value]) first_read[storage.value] = OpId(i);
      last_read[storage.value] = OpId(i);
    });
  }
  Analysis analysis{graph.variables, graph.buffers};
  for (Variable& variable : analysis.variables) {
    const StorageId storage = graph.value(variable.value).storage;
    variable.first_use = first_read[storage.value];
    variable.last_read = last_read[storage.value];
    variable.gradient_complete =
        variable.gradient ? history.maker(*variable.gradient) : std::nullopt;
  }
  for (Buffer& buffer : analysis.buffers) {
    buffer.mutated = history.overwritten(graph.value(buffer.value).storage);
  }
  return analysis;
}

void analyse(Graph& graph) {
  Analysis analysis = analysis_of(graph);
  graph.variables = std::move(analysis.variables);
  graph.buffers = std::move(analysis.buffers);
}

}  // namespace autodist::ir
