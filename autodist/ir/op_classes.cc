#include "autodist/ir/op_classes.h"

#include <set>

namespace autodist::ir {

bool is_convolution(const Op& op) { return op.name.find("convolution") != std::string::npos; }

bool is_product(const Op& op) {
  static const std::set<std::string> kProducts{"aten::mm",      "aten::addmm",  "aten::bmm",
                                               "aten::baddbmm", "aten::addbmm", "aten::linear"};
  return kProducts.count(op.name) != 0 || op.name.find("scaled_dot_product") != std::string::npos;
}

bool stays_in_float32(const Op& op) {
  static const std::set<std::string> kOps{
      "aten::native_layer_norm", "aten::native_layer_norm_backward",
      "aten::native_group_norm", "aten::native_group_norm_backward",
      "aten::_softmax",          "aten::_softmax_backward_data",
      "aten::_log_softmax",      "aten::_log_softmax_backward_data",
      "aten::nll_loss_forward",  "aten::nll_loss_backward"};
  return kOps.count(op.name) != 0;
}

bool is_batch_norm(const Op& op) { return op.name.find("batch_norm") != std::string::npos; }

bool leaves_uninitialised(const std::string& name) {
  static const std::set<std::string> kNames{"aten::empty", "aten::empty_like",
                                            "aten::empty_strided", "aten::new_empty",
                                            "aten::new_empty_strided"};
  return kNames.count(name) != 0;
}

bool is_view(const Graph& graph, const Op& op) {
  if (!op.writes.empty()) return false;
  bool view = true;
  for_each_result(op, [&](ValueId result) {
    bool shared = false;
    for_each_read(op, [&](ValueId read) {
      shared |= graph.value(read).storage == graph.value(result).storage;
    });
    view &= shared;
  });
  return view;
}

}  // namespace autodist::ir
