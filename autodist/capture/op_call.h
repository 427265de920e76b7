// Calls an op of a Graph on tensors: the one place that turns ir::Argument into what libtorch's
// dispatcher takes.
//
// Opt-in: includes torch, as training_step.h does. For .cc files of capture and exec alone.
//
// A tensor handle lives in a table with one entry per slot of the graph:
//
//   std::vector<at::Tensor> slots(graph.slot_count);   // inputs, variables, … put in by the caller
//   BelowAutograd guard;                               // once per step
//   torch::jit::Stack stack;                           // reused by all calls
//   for (const OpCall& call : calls) call.run(slots, stack);

#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autodist/base/text.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

// What RankDevice and RankGenerator of a graph mean on this rank.
struct ComputePlace {
  at::Device device = at::kCPU;
  at::Generator generator;  // undefined: the process's default generator of `device`
};

// While it lives, this thread calls kernels directly: no autograd bookkeeping, no version counters.
class BelowAutograd {
 public:
  BelowAutograd() = default;
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

 private:
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_;
};

// Of what a kernel throws; the other lines say where in libtorch.
inline std::string first_line(const c10::Error& error) {
  return autodist::first_line(error.what_without_backtrace());
}

// The operator of this libtorch that `op` names. Throws Error(kUsage) where it has none: the graph
// comes from another libtorch.
c10::OperatorHandle find_operator(const ir::Op& op);

// One op at one batch size. Everything that does not depend on tensors is resolved beforehand, so
// that a call costs the boxed kernel and little else. Immutable between set_batch() calls; several
// threads may run different OpCalls at once.
class OpCall {
 public:
  // `op` is an op of `graph`, which is read here only. Ready for batches of `batch` samples.
  OpCall(const ir::Graph& graph, const ir::Op& op, const ComputePlace& place, std::int64_t batch);

  // Prepares for batches of another size.
  void set_batch(std::int64_t batch);

  // Takes its arguments from `slots` and puts its results there. `stack` is scratch: any state
  // before, empty after. REQUIRES: a BelowAutograd lives on this thread; every slot that it reads
  // holds a tensor. Throws what the kernel throws (c10::Error).
  //
  // A random op whose schema takes no generator (native_dropout, rand_like) draws from the
  // process's default generator: for the length of the call, and under a process-wide lock, that
  // one gets the state of `place.generator`. With an undefined `place.generator` it draws from the
  // default generator as it stands, and the caller serialises.
  void run(std::vector<at::Tensor>& slots, torch::jit::Stack& stack) const;

 private:
  struct TensorArgument {
    std::uint32_t position;
    std::uint32_t slot;
    bool detach_metadata;  // the op changes sizes or strides of the handle it is given
  };
  struct TensorListArgument {
    std::uint32_t position;
    bool optional_elements;
    std::vector<std::int64_t> slots;  // -1: None
  };
  struct BatchArgument {  // depends on the batch
    std::uint32_t position;
    ir::Argument argument;
  };

  void add_tensors(const ir::Graph& graph, const ir::Op& op);
  void call_with_borrowed_generator(torch::jit::Stack& stack) const;
  void take_results(std::vector<at::Tensor>& slots, torch::jit::Stack& stack) const;

  c10::OperatorHandle operator_;
  ComputePlace place_;
  bool borrows_generator_ = false;
  std::vector<c10::IValue> prepared_;  // one per argument; None where a tensor goes
  std::vector<TensorArgument> tensors_;
  std::vector<TensorListArgument> lists_;
  std::vector<BatchArgument> batch_arguments_;
  std::vector<std::vector<std::int64_t>> results_;  // slots; -1: dropped
};

}  // namespace autodist::capture
