// Cuts gradients into slices and hands them over, without a copy where their memory allows and they
// are not compressed.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/slice_layout.h"
#include "autodist/exec/sparse_rows.h"
#include "autodist/ir/program.h"

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
  // Takes a slice that is complete; the payload is empty when `samples` is 0.
  using Send =
      std::function<void(ir::SliceId, std::uint64_t step, std::int64_t samples, comm::Payload)>;

  Contributor(const ir::Program& program, Send send);

  // The gradient of a variable is complete (undefined where the rank has no samples). A slice that
  // several variables share leaves with the last of them. The gradient's memory must not be written
  // any more. REQUIRES: once per variable and step.
  void contribute(ir::VariableId variable, const torch::Tensor& gradient, std::uint64_t step,
                  std::int64_t samples);

  // What compression has lost of a slice so far, to be sent with the next step; null without error
  // feedback. Between steps only.
  [[nodiscard]] std::byte* residual(ir::SliceId slice) {
    return slices_[slice.value].residual.get();
  }

 private:
  struct Slice {
    DType dtype = DType::kFloat32;
    std::int64_t elements = 0;
    std::vector<PieceLayout> pieces;
    std::uint32_t variables = 0;
    std::uint32_t missing = 0;  // variables whose gradient this step has not brought yet
    ir::Compression compression;
    std::shared_ptr<std::byte> residual;  // of the slice's elements, with error feedback
  };

  void contribute_rows(const ir::VariablePlan& plan, const torch::Tensor& gradient,
                       std::uint64_t step, std::int64_t samples);
  [[nodiscard]] comm::Payload payload_of(const Slice& slice) const;
  [[nodiscard]] comm::Payload encoded(Slice& slice) const;

  const ir::Program& program_;
  Send send_;
  std::vector<Slice> slices_;
  std::vector<torch::Tensor> gradients_;  // row-major; by variable, while slices still wait
};

}  // namespace autodist::exec
