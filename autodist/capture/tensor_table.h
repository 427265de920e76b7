// Which value of the graph a tensor is, while a step runs.
//
// Identity is (storage, offset, sizes, strides, element type, conjugate and negative bit); of a
// sparse tensor it is the handle. Storages are held weakly: the table keeps no memory of the step
// alive, and an address that is used again is not mistaken for the old storage. Private to capture.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

class TensorTable {
 public:
  // Adds storages, values and slots to `graph`, which outlives the table.
  explicit TensorTable(ir::Graph& graph) : graph_(graph) {}

  [[nodiscard]] std::optional<ir::StorageId> storage_of(const at::Tensor& tensor) const;

  // Enters the storage of a tensor that is not known yet, and the tensor as a value of it.
  ir::ValueId add(const at::Tensor& tensor, ir::StorageKind kind);

  // The tensor at the present version of its storage. REQUIRES: its storage is known.
  ir::ValueId value_of(const at::Tensor& tensor);

  // Whether value_of() would make a new value.
  [[nodiscard]] bool is_new(const at::Tensor& tensor) const;

  // The storage has been written: what is read from now on is its next version.
  void next_version(ir::StorageId storage) { ++versions_[storage.value]; }

 private:
  // Keeps the address of a storage (or of a sparse handle) from being used again, not its memory.
  struct Entry {
    ir::StorageId storage;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> dense;
    std::optional<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> sparse;
  };
  using View = std::tuple<std::uint32_t, std::int64_t, std::vector<std::int64_t>,
                          std::vector<std::int64_t>, at::ScalarType, bool, bool>;

  static const void* address_of(const at::Tensor& tensor);
  [[nodiscard]] View view_of(ir::StorageId storage, const at::Tensor& tensor) const;

  ir::Graph& graph_;
  std::unordered_map<const void*, Entry> entries_;
  std::vector<std::uint32_t> versions_;  // per storage
  std::map<View, ir::SlotId> slots_;
  std::map<std::pair<ir::SlotId, std::uint32_t>, ir::ValueId> values_;
};

}  // namespace autodist::capture
