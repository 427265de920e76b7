// Which op made what. Versions of a storage and the handles of its views (slots) have one maker
// each; dependencies, verification and the times of a variable all follow from these two tables.

#pragma once

#include <optional>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// The storages that `op` writes, ascending, without duplicates. One op makes one new version of
// each, however many of its arguments share it. REQUIRES: ids and `writes` in range.
std::vector<StorageId> written_storages(const Graph& graph, const Op& op);

// True for the storages that exist before the step: inputs, variables, buffers, constants.
inline bool exists_before_step(const Storage& storage) {
  return storage.kind != StorageKind::kIntermediate;
}

class History {
 public:
  // REQUIRES: ids in range.
  explicit History(const Graph& graph);

  // The op after which `value` can be read: the later of the one that made its version of the
  // storage and the one that first made its view. Nothing for a value that exists before the step,
  // and for one that no op makes.
  [[nodiscard]] std::optional<OpId> maker(ValueId value) const;
  // The op that first made the view; nothing for those that exist before the step.
  [[nodiscard]] std::optional<OpId> slot_maker(SlotId slot) const { return slots_[slot.value]; }
  // Whether any op writes the storage after its creation.
  [[nodiscard]] bool overwritten(StorageId storage) const;

 private:
  const Graph& graph_;
  // Ascending. For an intermediate the first is its creation.
  std::vector<std::vector<OpId>> versions_;
  std::vector<std::optional<OpId>> slots_;
};

// A graph's variables and buffers with what follows from its ops alone: first_use,
// gradient_complete and last_read of every variable (through any view of its storage) and `mutated`
// of every buffer. verify() compares with it. REQUIRES: ids in range.
struct Analysis {
  std::vector<Variable> variables;
  std::vector<Buffer> buffers;
};
[[nodiscard]] Analysis analysis_of(const Graph& graph);
// Puts the analysis of `graph` into it; capture and GraphBuilder do. REQUIRES: ids in range.
void analyse(Graph& graph);

}  // namespace autodist::ir
