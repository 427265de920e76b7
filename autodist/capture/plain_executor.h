// Scripted code as its ops, one after the other, as the graph has it.
//
// The optimised executor differentiates scripted code by itself, above the dispatcher, and its
// gradients may differ from the ops' in the last bit, by the CPU. So both what is recorded and what
// a replay is compared with run without it. Eager code is the same under either.

#pragma once

#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

namespace autodist::capture {

class PlainExecutor {
 public:
  PlainExecutor() : fuser_(torch::jit::tensorExprFuserEnabled()) {
    torch::jit::setTensorExprFuserEnabled(false);
  }
  ~PlainExecutor() { torch::jit::setTensorExprFuserEnabled(fuser_); }
  PlainExecutor(const PlainExecutor&) = delete;
  PlainExecutor& operator=(const PlainExecutor&) = delete;

 private:
  bool fuser_;
  torch::jit::GraphOptimizerEnabledGuard plain_{false};
};

}  // namespace autodist::capture
