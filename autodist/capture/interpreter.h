// Runs a Graph op by op, in its own order, on one device: the plain reference that capture checks
// itself with and measures costs in. Frees what nobody will read again, and passes guards over: it
// goes the graph's way, whatever the data say. Private to capture.

#pragma once

#include <functional>
#include <vector>

#include "autodist/capture/capture.h"
#include "autodist/capture/op_call.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

class Interpreter {
 public:
  // `graph` outlives it. Buffers among `tensors` are written as the step writes them.
  Interpreter(const ir::Graph& graph, Bindings tensors, const ComputePlace& place,
              std::int64_t batch);

  void set_batch(std::int64_t batch);

  // Called around each op; may be empty.
  // Whether guards of Booleans are run, which throw OtherWay as those of numbers do. Else they
  // hold.
  bool reads_booleans = false;
  std::function<void(ir::OpId)> before;
  std::function<void(ir::OpId, const std::vector<at::Tensor>& slots)> after;

  // Runs the step. `inputs` are in the graph's order and of the present batch size; an op that
  // writes an input writes them. Throws what kernels throw.
  void run(const Batch& inputs);

  // Outputs and gradients of the last run. Undefined for any other value.
  [[nodiscard]] const at::Tensor& tensor(ir::ValueId value) const {
    return slots_[graph_.value(value).slot.value];
  }
  // Lets go of outputs and gradients.
  void clear();

 private:
  const ir::Graph& graph_;
  Bindings tensors_;
  std::vector<OpCall> calls_;
  std::vector<std::vector<std::uint32_t>> freed_after_;  // per op: slots that nobody reads again
  std::vector<at::Tensor> slots_;
  torch::jit::Stack stack_;
};

}  // namespace autodist::capture
