#include "autodist/ir/liveness.h"

#include <algorithm>
#include <optional>

#include "autodist/ir/history.h"

namespace autodist::ir {
namespace {

template <typename Visit>
void for_each_value(const Op& op, Visit visit) {
  for_each_read(op, visit);
  for_each_result(op, visit);
}

template <typename Visit>
void for_each_kept(const Graph& graph, Visit visit) {
  for (ValueId output : graph.outputs) visit(output);
  for (const Variable& variable : graph.variables) {
    if (variable.gradient) visit(*variable.gradient);
  }
}

// A sparse tensor keeps the memory of what it was made of: per storage, whose memory it holds.
std::vector<std::vector<StorageId>> held_storages(const Graph& graph) {
  std::vector<std::vector<StorageId>> held(graph.storages.size());
  for (const Op& op : graph.ops) {
    for_each_result(op, [&](ValueId result) {
      if (graph.value(result).type.layout != Layout::kSparseCoo) return;
      for_each_read(op, [&](ValueId read) {
        const StorageId part = graph.value(read).storage;
        if (part != graph.value(result).storage) {
          held[graph.value(result).storage.value].push_back(part);
        }
      });
    });
  }
  return held;
}

// When storages are made and let go of: numbers of ops, whose count is the end of the step.
struct Lives {
  std::vector<std::size_t> first;  // the end: nothing makes it
  std::vector<std::size_t> last;
};

Lives lives_of(const Graph& graph) {
  const std::size_t end = graph.ops.size();
  Lives lives{std::vector<std::size_t>(graph.storages.size(), end),
              std::vector<std::size_t>(graph.storages.size(), 0)};
  for (std::size_t i = 0; i < end; ++i) {
    for_each_value(graph.ops[i], [&](ValueId value) {
      const std::uint32_t storage = graph.value(value).storage.value;
      lives.first[storage] = std::min(lives.first[storage], i);
      lives.last[storage] = i;
    });
  }
  for_each_kept(graph, [&](ValueId value) { lives.last[graph.value(value).storage.value] = end; });
  const auto held = held_storages(graph);
  // Later storages hold earlier ones.
  for (std::size_t i = graph.storages.size(); i-- > 0;) {
    for (StorageId part : held[i]) {
      lives.last[part.value] = std::max(lives.last[part.value], lives.last[i]);
    }
  }
  return lives;
}

// The highest sum of what `bytes_of(storage number)` says of those that are alive together.
template <typename BytesOf>
std::int64_t highest(const Graph& graph, BytesOf bytes_of) {
  const Lives lives = lives_of(graph);
  const std::size_t end = graph.ops.size();
  std::vector<std::int64_t> change(end + 2);
  for (std::size_t i = 0; i < graph.storages.size(); ++i) {
    const bool always = exists_before_step(graph.storages[i]);
    if (!always && lives.first[i] == end) continue;
    const std::int64_t bytes = bytes_of(i);
    change[always ? 0 : lives.first[i]] += bytes;
    change[always ? end + 1 : lives.last[i] + 1] -= bytes;
  }
  std::int64_t now = 0;
  std::int64_t peak = 0;
  for (std::int64_t each : change) {
    now += each;
    peak = std::max(peak, now);
  }
  return peak;
}

// Storages that gradients lie in, and those that sparse gradients were made of.
std::vector<bool> of_gradients(const Graph& graph) {
  std::vector<bool> mine(graph.storages.size());
  for (const Variable& variable : graph.variables) {
    if (variable.gradient) mine[graph.value(*variable.gradient).storage.value] = true;
  }
  const auto held = held_storages(graph);
  for (std::size_t i = graph.storages.size(); i-- > 0;) {
    for (StorageId part : held[i]) mine[part.value] = mine[part.value] || mine[i];
  }
  return mine;
}

}  // namespace

std::vector<std::vector<std::uint32_t>> slots_freed_after(const Graph& graph) {
  std::vector<std::optional<std::size_t>> last(graph.slot_count);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    for_each_value(graph.ops[i], [&](ValueId value) {
      const bool outlives = exists_before_step(graph.storages[graph.value(value).storage.value]);
      if (!outlives) last[graph.value(value).slot.value] = i;
    });
  }
  for_each_kept(graph, [&](ValueId value) { last[graph.value(value).slot.value].reset(); });
  std::vector<std::vector<std::uint32_t>> freed(graph.ops.size());
  for (std::uint32_t slot = 0; slot < last.size(); ++slot) {
    if (last[slot]) freed[*last[slot]].push_back(slot);
  }
  return freed;
}

std::int64_t peak_bytes(const Graph& graph, std::int64_t batch) {
  return highest(graph, [&](std::size_t i) { return graph.storages[i].bytes.at(batch); });
}

std::int64_t activation_bytes(const Graph& graph, std::int64_t batch) {
  const std::vector<bool> gradient = of_gradients(graph);
  return highest(graph, [&](std::size_t i) -> std::int64_t {
    const Storage& storage = graph.storages[i];
    const bool counts = storage.kind == StorageKind::kInput ||
                        (storage.kind == StorageKind::kIntermediate && !gradient[i]);
    return counts ? storage.bytes.at(batch) : 0;
  });
}

}  // namespace autodist::ir
