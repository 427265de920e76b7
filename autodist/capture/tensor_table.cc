#include "autodist/capture/tensor_table.h"

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/tensor_type.h"

namespace autodist::capture {
namespace {

// Bytes that a new storage brings along. The parts of a sparse tensor count here only if nobody
// else knows them.
std::int64_t storage_bytes(const at::Tensor& tensor, const TensorTable& table) {
  if (!tensor.is_sparse()) return static_cast<std::int64_t>(tensor.storage().nbytes());
  std::int64_t bytes = 0;
  for (const at::Tensor& part : {tensor._indices(), tensor._values()}) {
    if (!table.storage_of(part)) bytes += static_cast<std::int64_t>(part.nbytes());
  }
  return bytes;
}

}  // namespace

const void* TensorTable::address_of(const at::Tensor& tensor) {
  if (tensor.has_storage()) return tensor.storage().unsafeGetStorageImpl();
  return tensor.unsafeGetTensorImpl();
}

std::optional<ir::StorageId> TensorTable::storage_of(const at::Tensor& tensor) const {
  const auto found = entries_.find(address_of(tensor));
  if (found == entries_.end()) return std::nullopt;
  return found->second.storage;
}

TensorTable::View TensorTable::view_of(ir::StorageId storage, const at::Tensor& tensor) const {
  if (tensor.is_sparse()) {
    return {storage.value, 0, {}, {}, tensor.scalar_type(), false, false};
  }
  return {storage.value,          tensor.storage_offset(), tensor.sizes().vec(),
          tensor.strides().vec(), tensor.scalar_type(),    tensor.is_conj(),
          tensor.is_neg()};
}

ir::ValueId TensorTable::add(const at::Tensor& tensor, ir::StorageKind kind) {
  AD_CHECK(!storage_of(tensor)) << "a storage is entered twice";
  if (!tensor.has_storage() && !tensor.is_sparse()) {
    fail(ErrorCode::kUsage,
         "capture: tensors of another layout than strided or sparse COO. Convert them: to_dense(), "
         "or to_sparse().");
  }
  const ir::StorageId storage(graph_.storages.size());
  graph_.storages.push_back({kind, {0, storage_bytes(tensor, *this)}});
  versions_.push_back(0);
  Entry entry{storage, {}, {}};
  if (tensor.has_storage()) {
    entry.dense.emplace(tensor.storage().getWeakStorageImpl());
  } else {
    entry.sparse.emplace(tensor.getIntrusivePtr());
  }
  entries_.emplace(address_of(tensor), std::move(entry));
  return value_of(tensor);
}

bool TensorTable::is_new(const at::Tensor& tensor) const {
  const auto storage = storage_of(tensor);
  if (!storage) return true;
  const auto slot = slots_.find(view_of(*storage, tensor));
  return slot == slots_.end() || values_.count({slot->second, versions_[storage->value]}) == 0;
}

ir::ValueId TensorTable::value_of(const at::Tensor& tensor) {
  const auto storage = storage_of(tensor);
  AD_CHECK(storage.has_value()) << "a tensor is unknown";
  if (tensor.has_storage()) {
    ir::Affine& bytes = graph_.storages[storage->value].bytes;  // resize_ may have grown it
    bytes.constant = std::max(bytes.constant, static_cast<std::int64_t>(tensor.storage().nbytes()));
  }
  const auto [slot, new_slot] =
      slots_.try_emplace(view_of(*storage, tensor), ir::SlotId(graph_.slot_count));
  if (new_slot) ++graph_.slot_count;
  const std::uint32_t version = versions_[storage->value];
  const auto [value, new_value] =
      values_.try_emplace({slot->second, version}, ir::ValueId(graph_.values.size()));
  if (new_value) graph_.values.push_back({*storage, version, slot->second, type_of(tensor)});
  return value->second;
}

}  // namespace autodist::capture
