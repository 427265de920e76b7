#include "autodist/ir/liveness.h"

#include <algorithm>
#include <optional>

#include "autodist/ir/history.h"
#include "autodist/ir/op_classes.h"

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

// `needs(op, storage)`: whether an op that names the storage needs its memory.
template <typename Needs>
Lives lives_of(const Graph& graph, Needs needs) {
  const std::size_t end = graph.ops.size();
  Lives lives{std::vector<std::size_t>(graph.storages.size(), end),
              std::vector<std::size_t>(graph.storages.size(), 0)};
  for (std::size_t i = 0; i < end; ++i) {
    for_each_value(graph.ops[i], [&](ValueId value) {
      const StorageId storage = graph.value(value).storage;
      std::size_t& first = lives.first[storage.value];
      first = std::min(first, i);
      if (first == i || needs(graph.ops[i], storage)) lives.last[storage.value] = i;
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

// Bytes that are held for some ops of a step, and the most that are held together.
class HeldBytes {
 public:
  explicit HeldBytes(const Graph& graph) : change_(graph.ops.size() + 2) {}

  // From the op `first` to the op `last`.
  void add(std::size_t first, std::size_t last, std::int64_t bytes) {
    change_[first] += bytes;
    change_[last + 1] -= bytes;
  }
  // Of every storage what `bytes_of(its number)` says, for as long as it lives.
  template <typename BytesOf>
  void add(const Graph& graph, const Lives& lives, BytesOf bytes_of) {
    const std::size_t end = graph.ops.size();
    for (std::size_t i = 0; i < graph.storages.size(); ++i) {
      const bool always = exists_before_step(graph.storages[i]);
      if (!always && lives.first[i] == end) continue;
      add(always ? 0 : lives.first[i], always ? end : lives.last[i], bytes_of(i));
    }
  }
  [[nodiscard]] std::int64_t highest() const {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (std::int64_t each : change_) {
      now += each;
      peak = std::max(peak, now);
    }
    return peak;
  }

 private:
  std::vector<std::int64_t> change_;  // by op
};

// What `bytes_of(storage number)` says, for as long as each lives.
template <typename BytesOf>
HeldBytes held_bytes(const Graph& graph, BytesOf bytes_of) {
  HeldBytes held(graph);
  held.add(graph, lives_of(graph, [](const Op&, StorageId) { return true; }), bytes_of);
  return held;
}

void add_scratch(HeldBytes& held, const Graph& graph, std::int64_t batch) {
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    held.add(i, i, graph.ops[i].cost.scratch.at(batch));
  }
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

// Inputs, and intermediates that are no gradients.
std::vector<bool> of_activations(const Graph& graph) {
  std::vector<bool> mine = of_gradients(graph);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const StorageKind kind = graph.storages[i].kind;
    mine[i] = kind == StorageKind::kInput || (kind == StorageKind::kIntermediate && !mine[i]);
  }
  return mine;
}

HeldBytes held_activations(const Graph& graph, std::int64_t batch) {
  const std::vector<bool> counts = of_activations(graph);
  return held_bytes(graph, [&](std::size_t i) -> std::int64_t {
    return counts[i] ? graph.storages[i].bytes.at(batch) : 0;
  });
}

// Whether autocast has an op make 16 bits. What it says nothing of makes the widest type that it
// reads, a batch norm that of its first argument. A number alone, of no dimension, widens nothing.
bool makes_16_bits(const Graph& graph, const Op& op, const std::vector<bool>& is_narrow) {
  if (runs_on_matrix_units(op)) return true;
  if (stays_in_float32(op)) return false;
  bool any = false;
  bool all = true;
  for_each_read(op, [&](ValueId read) {
    const Value& value = graph.value(read);
    if (!is_floating(value.type.dtype) || value.type.sizes.empty()) return;
    if (any && is_batch_norm(op)) return;
    any = true;
    all = all && is_narrow[value.storage.value];
  });
  return any && all;
}

// By storage: which of a graph in float32 autocast has in 16 bits.
std::vector<bool> in_16_bits(const Graph& graph) {
  std::vector<bool> is_narrow(graph.storages.size());
  std::vector<bool> is_made(graph.storages.size());
  for (std::size_t i = 0; i < is_made.size(); ++i) {
    is_made[i] = exists_before_step(graph.storages[i]);
  }
  for (const Op& op : graph.ops) {
    const bool narrow = makes_16_bits(graph, op, is_narrow);
    for_each_result(op, [&](ValueId result) {
      const Value& value = graph.value(result);
      const std::uint32_t storage = value.storage.value;
      if (is_made[storage]) return;
      is_made[storage] = true;
      is_narrow[storage] = narrow && value.type.dtype == DType::kFloat32;
    });
  }
  return is_narrow;
}

// What ops on matrix units read in float32, in 16 bits.
struct Copies {
  struct Copy {
    std::size_t made = 0;  // the op that reads it first
    std::uint32_t of = 0;  // a storage
    std::int64_t bytes = 0;
  };
  std::vector<Copy> all;
  std::vector<std::optional<std::size_t>> last_read;  // by storage: the last op that reads a copy
};

// Autocast copies a variable once in a step, and other values for each op of the forward pass,
// which keeps its copy for the backward pass.
Copies copies_in_16_bits(const Graph& graph, std::int64_t batch,
                         const std::vector<bool>& is_narrow) {
  Copies copies;
  copies.last_read.resize(graph.storages.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (!runs_on_matrix_units(op)) continue;
    for_each_read(op, [&](ValueId read) {
      const Value& value = graph.value(read);
      const std::uint32_t storage = value.storage.value;
      if (is_narrow[storage] || value.type.dtype != DType::kFloat32) return;
      const bool is_variable = graph.storages[storage].kind == StorageKind::kVariable;
      const bool is_kept = op.phase == Phase::kForward && !is_variable;
      if (!copies.last_read[storage] || is_kept) {
        copies.all.push_back({i, storage, 2 * element_count(value.type, batch)});
      }
      copies.last_read[storage] = i;
    });
  }
  return copies;
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
  HeldBytes held =
      held_bytes(graph, [&](std::size_t i) { return graph.storages[i].bytes.at(batch); });
  add_scratch(held, graph, batch);
  return held.highest();
}

std::int64_t activation_bytes(const Graph& graph, std::int64_t batch) {
  return held_activations(graph, batch).highest();
}

std::int64_t activation_bytes_as_captured(const Graph& graph, std::int64_t batch) {
  HeldBytes held = held_activations(graph, batch);
  add_scratch(held, graph, batch);
  return held.highest();
}

std::int64_t activation_bytes_under_autocast(const Graph& graph, std::int64_t batch) {
  const std::vector<bool> is_narrow = in_16_bits(graph);
  const Copies copies = copies_in_16_bits(graph, batch, is_narrow);
  Lives lives = lives_of(graph, [&](const Op& op, StorageId storage) {
    const bool is_copied = copies.last_read[storage.value].has_value();
    return !is_copied || !(runs_on_matrix_units(op) || is_view(graph, op));
  });
  for (const Copies::Copy& copy : copies.all) {
    lives.last[copy.of] = std::max(lives.last[copy.of], copy.made);
  }
  const std::vector<bool> counts = of_activations(graph);
  HeldBytes held(graph);
  held.add(graph, lives, [&](std::size_t i) -> std::int64_t {
    return counts[i] ? graph.storages[i].bytes.at(batch) / (is_narrow[i] ? 2 : 1) : 0;
  });
  for (const Copies::Copy& copy : copies.all) {
    held.add(copy.made, *copies.last_read[copy.of], copy.bytes);
  }
  return held.highest();
}

}  // namespace autodist::ir
