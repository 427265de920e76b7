// Cuts gradients into slices and hands them over, without a copy where their memory allows and the
// host does not compress them.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/program/loads.h"
#include "autodist/program/program.h"
#include "autodist/program/slice_layout.h"

namespace autodist::exec {

// A gradient as dense row-major host memory of `dtype`: itself where it is that already.
torch::Tensor row_major(const torch::Tensor& gradient, torch::ScalarType type);

// The rows of a gradient that lie in a block. Of a sparse one those that it names, each once; of a
// dense one (a batch of other shapes may leave the variable alone) those that are not zero.
class GradientRows {
 public:
  GradientRows(const torch::Tensor& gradient, torch::ScalarType type);
  [[nodiscard]] Rows in(const RowBlock& block) const;

 private:
  torch::Tensor numbers_;  // int64, ascending
  torch::Tensor values_;   // row-major, on the host
};

// One thread.
class Contributor {
 public:
  // `device`: of the gradients.
  Contributor(const program::Program& program, torch::Device device);

  // Whether the device casts the variable's gradient before it is brought to the host. A sparse one
  // comes with its rows alone, and is cast by take().
  [[nodiscard]] bool is_cast_there(ir::VariableId variable, const torch::Tensor& gradient) const;
  // What is brought to the host in its place: the elements that encode() makes. Any thread.
  // REQUIRES: is_cast_there().
  [[nodiscard]] torch::Tensor cast_there(ir::VariableId variable,
                                         const torch::Tensor& gradient) const;

  // The gradient of a variable, or what cast_there() made of it, is complete (undefined where the
  // rank has no samples). Its memory must not be written any more. REQUIRES: once per variable and
  // step.
  void take(ir::VariableId variable, const torch::Tensor& gradient, std::int64_t samples);
  // A slice's part of the gradients of its variables, in the form in which it travels; empty where
  // `samples` is 0. REQUIRES: all of them were taken, and once per step.
  [[nodiscard]] comm::Payload payload(program::SliceId slice, std::int64_t samples);
  // All slices of the variable have left: their payloads keep what they need.
  void drop(ir::VariableId variable) {
    gradients_[variable.value].reset();
    rows_.reset();
  }

  // What compression has lost of a slice so far, to be sent with the next step; null without error
  // feedback. Between steps only.
  [[nodiscard]] std::byte* residual(program::SliceId slice) {
    return slices_[slice.value].residual.get();
  }

 private:
  struct Slice {
    DType dtype = DType::kFloat32;
    std::int64_t elements = 0;
    std::vector<program::PieceLayout> pieces;
    program::MessageForm form;
    bool is_taken_cast = false;           // of a device's gradients
    std::shared_ptr<std::byte> residual;  // of the slice's elements, with error feedback
  };

  // The variable's; all of them travel alike.
  [[nodiscard]] const Slice& first_slice(ir::VariableId variable) const;
  [[nodiscard]] comm::Payload packed(const Slice& slice) const;

  const program::Program& program_;
  std::vector<Slice> slices_;
  std::vector<torch::Tensor> gradients_;  // row-major; by variable, while slices still wait
  std::optional<GradientRows> rows_;      // of the variable taken last, where it travels by rows
};

}  // namespace autodist::exec
