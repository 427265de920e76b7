#include "autodist/search/placement/from_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "autodist/base/dtype.h"
#include "autodist/ir/history.h"
#include "autodist/search/placement/disjoint_sets.h"

namespace autodist::search::placement {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kFlopsPerSecond = 1e12;
constexpr double kBytesPerSecond = 1e11;

double bytes_of_value(const ir::Value& value, std::int64_t batch) {
  double count = 1;
  for (const ir::Affine& size : value.type.sizes) count *= static_cast<double>(size.at(batch));
  return count * static_cast<double>(size_of(value.type.dtype));
}

double cost_of_op(const ir::Op& op, std::int64_t batch) {
  const double measured = op.cost.at(batch).value * kMicrosecondsPerSecond;
  if (measured > 0) return measured;
  return kMicrosecondsPerSecond *
         std::max(static_cast<double>(op.flops.at(batch)) / kFlopsPerSecond,
                  static_cast<double>(op.bytes_moved.at(batch)) / kBytesPerSecond);
}

// Ops that must share a device, by the storages that bind them.
class Colocation {
 public:
  explicit Colocation(const ir::Graph& graph)
      : together_(graph.ops.size()), bound_(graph.ops.size(), false) {
    const ir::History history(graph);
    std::vector<bool> binds(graph.storages.size(), false);
    for (std::size_t i = 0; i < binds.size(); ++i) {
      const ir::StorageKind kind = graph.storages[i].kind;
      binds[i] = kind == ir::StorageKind::kVariable || kind == ir::StorageKind::kBuffer ||
                 history.overwritten(ir::StorageId(i));
    }
    // Sparse tensors do not travel, or the memory around a view, which as_strided may read.
    for (const ir::Value& value : graph.values) {
      const bool sparse = value.type.layout == ir::Layout::kSparseCoo;
      if (sparse) binds[value.storage.value] = true;
    }
    for (const ir::Op& op : graph.ops) {
      if (op.name != "aten::as_strided") continue;
      ir::for_each_read(op, [&](ir::ValueId id) { binds[graph.value(id).storage.value] = true; });
    }
    std::vector<std::uint32_t> first(graph.storages.size(), kNoColour);
    for (std::uint32_t i = 0; i < graph.ops.size(); ++i) {
      const auto touch = [&](ir::ValueId id) {
        const std::uint32_t storage = graph.value(id).storage.value;
        if (!binds[storage]) return;
        bound_[i] = true;
        if (first[storage] == kNoColour) first[storage] = i;
        together_.join(first[storage], i);
      };
      ir::for_each_read(graph.ops[i], touch);
      ir::for_each_result(graph.ops[i], touch);
    }
    // A sparse gradient is made where its variable is.
    for (const ir::Variable& variable : graph.variables) {
      if (!variable.sparse_gradient || !variable.gradient) continue;
      const std::uint32_t own = first[graph.value(variable.value).storage.value];
      const std::uint32_t gradient = first[graph.value(*variable.gradient).storage.value];
      if (own != kNoColour && gradient != kNoColour) together_.join(own, gradient);
    }
    of_storage_ = std::move(first);
  }

  // The class's first op, or kNoColour for an op that nothing binds.
  std::uint32_t colour(std::uint32_t op) { return bound_[op] ? together_.find(op) : kNoColour; }
  // The first op of the class that touches the storage, or kNoColour.
  std::uint32_t first_of(ir::StorageId storage) {
    const std::uint32_t first = of_storage_[storage.value];
    return first == kNoColour ? kNoColour : together_.find(first);
  }

 private:
  DisjointSets together_;
  std::vector<bool> bound_;
  std::vector<std::uint32_t> of_storage_;
};

}  // namespace

TaskGraph task_graph_of(const ir::Graph& graph, std::int64_t batch) {
  TaskGraph tasks;
  tasks.name = graph.name;
  Colocation together(graph);
  std::unordered_map<std::uint32_t, TaskInput> made;  // by value
  for (std::uint32_t i = 0; i < graph.ops.size(); ++i) {
    const ir::Op& op = graph.ops[i];
    Task task;
    task.name = fmt::format("{}:{}", i, op.name);
    task.cost = cost_of_op(op, batch);
    task.backward = op.phase == ir::Phase::kBackward;
    task.colour = together.colour(i);
    ir::for_each_read(op, [&](ir::ValueId id) {
      const auto from = made.find(id.value);
      if (from != made.end() && from->second.task.value != i) task.inputs.push_back(from->second);
    });
    ir::for_each_result(op, [&](ir::ValueId id) {
      made[id.value] = {TaskId(i), static_cast<std::uint32_t>(task.outputs.size())};
      task.outputs.push_back({bytes_of_value(graph.value(id), batch), std::nullopt});
    });
    if (task.outputs.empty()) task.outputs.push_back({0, std::nullopt});
    tasks.tasks.push_back(std::move(task));
  }
  const auto hold = [&](ir::ValueId id, double times) {
    const ir::Value& value = graph.value(id);
    const std::uint32_t first = together.first_of(value.storage);
    if (first == kNoColour) return;  // no op touches it
    tasks.tasks[first].memory += times * bytes_of_value(value, batch);
  };
  for (const ir::Variable& variable : graph.variables) {
    hold(variable.value, variable.gradient ? 2 : 1);
  }
  for (const ir::Buffer& buffer : graph.buffers) hold(buffer.value, 1);
  verify(tasks, graph.name);
  return tasks;
}

}  // namespace autodist::search::placement
