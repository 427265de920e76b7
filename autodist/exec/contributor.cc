#include "autodist/exec/contributor.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/buffer_pool.h"
#include "autodist/exec/codec.h"
#include "autodist/exec/device/tensor_cast.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/program/state.h"

namespace autodist::exec {

torch::Tensor row_major(const torch::Tensor& gradient, torch::ScalarType type) {
  const torch::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
  return dense.to(torch::TensorOptions(torch::kCPU).dtype(type)).contiguous();
}

GradientRows::GradientRows(const torch::Tensor& gradient, torch::ScalarType type) {
  torch::Tensor values;
  if (gradient.is_sparse()) {
    const torch::Tensor once = gradient.coalesce();
    AD_CHECK(once.sparse_dim() == 1) << "a gradient with " << once.sparse_dim() << " sparse axes";
    numbers_ = once._indices()[0];
    values = once._values();
  } else {
    const std::int64_t rows = gradient.size(0);
    const torch::Tensor flat = gradient.reshape({rows, rows == 0 ? 0 : -1});
    numbers_ = flat.ne(0).any(1).nonzero().view({-1});
    values = gradient.index_select(0, numbers_);
  }
  numbers_ = numbers_.to(torch::kCPU).contiguous();
  values_ = values.to(torch::TensorOptions(torch::kCPU).dtype(type)).contiguous();
}

Rows GradientRows::in(const RowBlock& block) const {
  const auto* begin = numbers_.data_ptr<std::int64_t>();
  const auto* end = begin + numbers_.numel();
  const auto* first = std::lower_bound(begin, end, block.first);
  const auto* last = std::lower_bound(first, end, block.first + block.rows);
  Rows rows;
  for (const auto* each = first; each != last; ++each) rows.numbers.push_back(*each - block.first);
  rows.values = memory_of(values_) + (first - begin) * block.row_bytes();
  rows.keep = std::make_shared<torch::Tensor>(values_);
  return rows;
}

Contributor::Contributor(const program::Program& program, torch::Device device)
    : program_(program), gradients_(program.variables.size()) {
  for (const program::Slice& slice : program.slices) {
    const program::MessageForm form = contribution_form(slice.exchange);
    const bool is_taken_cast = !device.is_cpu() && is_cast(slice.exchange, slice.dtype);
    Slice own{slice.dtype, element_count(slice), layout_of(program, slice),
              form,        is_taken_cast,        nullptr};
    if (!encodes(form.codec, slice.dtype)) own.form.codec = {};
    if (feeds_back(slice)) own.residual = allocate_zeros(program::bytes_of(slice).value);
    slices_.push_back(std::move(own));
  }
}

const Contributor::Slice& Contributor::first_slice(ir::VariableId variable) const {
  const program::VariablePlan& plan = program_.plan(variable);
  AD_CHECK(!plan.slices.empty()) << "variable " << variable << " has no slices";
  return slices_[plan.slices.front().value];
}

bool Contributor::is_cast_there(ir::VariableId variable, const torch::Tensor& gradient) const {
  return !gradient.is_sparse() && !program_.plan(variable).slices.empty() &&
         first_slice(variable).is_taken_cast;
}

torch::Tensor Contributor::cast_there(ir::VariableId variable,
                                      const torch::Tensor& gradient) const {
  const Slice& slice = first_slice(variable);
  return cast_elements(slice.form.codec.codec, gradient.to(scalar_type_of(slice.dtype)));
}

void Contributor::take(ir::VariableId variable, const torch::Tensor& gradient,
                       std::int64_t samples) {
  const Slice& slice = first_slice(variable);
  if (samples == 0) return;
  const torch::ScalarType type = scalar_type_of(slice.dtype);
  torch::Tensor& taken = gradients_[variable.value];
  if (slice.form.layout == program::Layout::kRows) {
    rows_.emplace(gradient, type);
  } else if (!slice.is_taken_cast) {
    taken = row_major(gradient, type);
  } else if (gradient.is_sparse()) {
    taken = cast_there(variable, row_major(gradient, type));
  } else {
    taken = gradient.contiguous();
    AD_CHECK(taken.itemsize() == traits_of(slice.form.codec.codec).element_bytes)
        << "variable " << variable << ": " << taken.scalar_type() << " is no cast";
  }
}

comm::Payload Contributor::payload(program::SliceId id, std::int64_t samples) {
  if (samples == 0) return {};
  Slice& slice = slices_[id.value];
  if (slice.form.layout == program::Layout::kRows) {
    const RowBlock block = block_of(program_, program_.slice(id));
    return pack_rows(block, rows_->in(block));
  }
  comm::Payload payload = packed(slice);
  if (slice.form.codec.codec == program::Codec::kNone || slice.is_taken_cast) return payload;
  return encode(slice.form.codec, slice.dtype, slice.elements, payload.data, slice.residual.get());
}

comm::Payload Contributor::packed(const Slice& slice) const {
  const std::size_t element_bytes =
      slice.is_taken_cast ? traits_of(slice.form.codec.codec).element_bytes : size_of(slice.dtype);
  const std::size_t size = slice.elements * element_bytes;
  if (slice.pieces.size() == 1 && slice.pieces.front().runs.size() == 1) {
    const program::PieceLayout& piece = slice.pieces.front();
    auto keep = std::make_shared<torch::Tensor>(gradients_[piece.variable.value]);
    const std::byte* data = memory_of(*keep) + piece.runs.front().variable_begin * element_bytes;
    return {data, size, std::move(keep)};
  }
  std::shared_ptr<std::byte> packed = allocate_aligned(size);
  for (const program::PieceLayout& piece : slice.pieces) {
    pack(piece, element_bytes, memory_of(gradients_[piece.variable.value]), packed.get());
  }
  return {packed.get(), size, packed};
}

}  // namespace autodist::exec
