#include "autodist/capture/liveness.h"

#include <algorithm>
#include <optional>

#include "autodist/ir/history.h"

namespace autodist::capture {
namespace {

template <typename Visit>
void for_each_value(const ir::Op& op, Visit visit) {
  ir::for_each_read(op, visit);
  ir::for_each_result(op, visit);
}

template <typename Visit>
void for_each_kept(const ir::Graph& graph, Visit visit) {
  for (ir::ValueId output : graph.outputs) visit(output);
  for (const ir::Variable& variable : graph.variables) {
    if (variable.gradient) visit(*variable.gradient);
  }
}

// A sparse tensor keeps the memory of what it was made of: per storage, whose memory it holds.
std::vector<std::vector<ir::StorageId>> held_storages(const ir::Graph& graph) {
  std::vector<std::vector<ir::StorageId>> held(graph.storages.size());
  for (const ir::Op& op : graph.ops) {
    ir::for_each_result(op, [&](ir::ValueId result) {
      if (graph.value(result).type.layout != ir::Layout::kSparseCoo) return;
      ir::for_each_read(op, [&](ir::ValueId read) {
        const ir::StorageId part = graph.value(read).storage;
        if (part != graph.value(result).storage) {
          held[graph.value(result).storage.value].push_back(part);
        }
      });
    });
  }
  return held;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> slots_freed_after(const ir::Graph& graph) {
  std::vector<std::optional<std::size_t>> last(graph.slot_count);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    for_each_value(graph.ops[i], [&](ir::ValueId value) {
      const bool outlives =
          ir::exists_before_step(graph.storages[graph.value(value).storage.value]);
      if (!outlives) last[graph.value(value).slot.value] = i;
    });
  }
  for_each_kept(graph, [&](ir::ValueId value) { last[graph.value(value).slot.value].reset(); });
  std::vector<std::vector<std::uint32_t>> freed(graph.ops.size());
  for (std::uint32_t slot = 0; slot < last.size(); ++slot) {
    if (last[slot]) freed[*last[slot]].push_back(slot);
  }
  return freed;
}

std::int64_t peak_bytes(const ir::Graph& graph, std::int64_t batch) {
  const std::size_t end = graph.ops.size();
  std::vector<std::size_t> first(graph.storages.size(), end);
  std::vector<std::size_t> last(graph.storages.size(), 0);
  for (std::size_t i = 0; i < end; ++i) {
    for_each_value(graph.ops[i], [&](ir::ValueId value) {
      const std::uint32_t storage = graph.value(value).storage.value;
      first[storage] = std::min(first[storage], i);
      last[storage] = i;
    });
  }
  for_each_kept(graph, [&](ir::ValueId value) { last[graph.value(value).storage.value] = end; });
  const auto held = held_storages(graph);
  // Later storages hold earlier ones.
  for (std::size_t i = graph.storages.size(); i-- > 0;) {
    for (ir::StorageId part : held[i]) last[part.value] = std::max(last[part.value], last[i]);
  }
  std::vector<std::int64_t> change(end + 2);
  for (std::size_t i = 0; i < graph.storages.size(); ++i) {
    const bool always = ir::exists_before_step(graph.storages[i]);
    if (!always && first[i] == end) continue;
    const std::int64_t bytes = graph.storages[i].bytes.at(batch);
    change[always ? 0 : first[i]] += bytes;
    change[always ? end + 1 : last[i] + 1] -= bytes;
  }
  std::int64_t now = 0;
  std::int64_t peak = 0;
  for (std::int64_t each : change) {
    now += each;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace autodist::capture
