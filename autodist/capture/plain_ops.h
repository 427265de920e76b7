// A step as the ops that a graph has, for what is recorded and for what a replay is compared with.
//
// Scripted code runs as its ops, one after the other: the optimised executor differentiates it by
// itself, above the dispatcher, and its gradients may differ from the ops' in the last bit, by the
// CPU. Eager code is the same under either.
//
// A recurrent layer runs as its matrix products and activations. libtorch 2 has an op of oneDNN for
// a whole LSTM layer of float32 on CPUs, whose backward op writes an argument that its schema does
// not declare and keeps a workspace whose size no formula gives. cuDNN's of all layers together
// reads the weights as one storage, which a graph cannot hold. Private to capture.

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
        recurrent_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(begin_op, end_op).scopes({at::RecordScope::FUNCTION}))) {
    torch::jit::setTensorExprFuserEnabled(false);
  }
  ~PlainOps() {
    at::removeCallback(recurrent_);
    torch::jit::setTensorExprFuserEnabled(fuser_);
  }
  PlainOps(const PlainOps&) = delete;
  PlainOps& operator=(const PlainOps&) = delete;

 private:
  // oneDNN and cuDNN as the user has them, around a recurrent layer.
  struct WithoutLibraries : at::ObserverContext {
    bool one_dnn = at::globalContext().userEnabledMkldnn();
    bool cu_dnn = at::globalContext().userEnabledCuDNN();
  };
  static std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& op) {
    const std::string_view name(op.name());
    if (name != "aten::lstm" && name != "aten::gru" && name != "aten::rnn_tanh" &&
        name != "aten::rnn_relu") {
      return nullptr;
    }
    auto outer = std::make_unique<WithoutLibraries>();
    at::globalContext().setUserEnabledMkldnn(false);
    at::globalContext().setUserEnabledCuDNN(false);
    return outer;
  }
  static void end_op(const at::RecordFunction& /*op*/, at::ObserverContext* outer) {
    if (outer == nullptr) return;
    const auto* const before = static_cast<WithoutLibraries*>(outer);
    at::globalContext().setUserEnabledMkldnn(before->one_dnn);
    at::globalContext().setUserEnabledCuDNN(before->cu_dnn);
  }

  bool fuser_;
  at::CallbackHandle recurrent_;
  torch::jit::GraphOptimizerEnabledGuard plain_{false};
};

}  // namespace autodist::capture
