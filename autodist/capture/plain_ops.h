// A step as the ops that a graph has, for what is recorded and for what a replay is compared with.
//
// Scripted code runs as its ops, one after the other: the optimised executor differentiates it by
// itself, above the dispatcher, and its gradients may differ from the ops' in the last bit, by the
// CPU. Eager code is the same under either.
//
// An LSTM runs as its matrix products and activations: libtorch 2 has an op of oneDNN for a whole
// layer of float32 on CPUs, whose backward op writes an argument that its schema does not declare
// and keeps a workspace whose size no formula gives. Private to capture.

#pragma once

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/passes/tensorexpr_fuser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <memory>
#include <string_view>

namespace autodist::capture {

class PlainOps {
 public:
  PlainOps()
      : fuser_(torch::jit::tensorExprFuserEnabled()),
        lstms_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin_op, end_op)
                                              .scopes({at::RecordScope::FUNCTION}))) {
    torch::jit::setTensorExprFuserEnabled(false);
  }
  ~PlainOps() {
    at::removeCallback(lstms_);
    torch::jit::setTensorExprFuserEnabled(fuser_);
  }
  PlainOps(const PlainOps&) = delete;
  PlainOps& operator=(const PlainOps&) = delete;

 private:
  // oneDNN as the user has it, around an LSTM.
  struct WithoutOneDnn : at::ObserverContext {
    bool before = at::globalContext().userEnabledMkldnn();
  };
  static std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& op) {
    if (std::string_view(op.name()) != "aten::lstm") return nullptr;
    auto outer = std::make_unique<WithoutOneDnn>();
    at::globalContext().setUserEnabledMkldnn(false);
    return outer;
  }
  static void end_op(const at::RecordFunction& /*op*/, at::ObserverContext* outer) {
    if (outer == nullptr) return;
    at::globalContext().setUserEnabledMkldnn(static_cast<WithoutOneDnn*>(outer)->before);
  }

  bool fuser_;
  at::CallbackHandle lstms_;
  torch::jit::GraphOptimizerEnabledGuard plain_{false};
};

}  // namespace autodist::capture
