#include "autodist/capture/flops.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autodist/capture/symbolic_batch.h"
#include "autodist/ir/liveness.h"
#include "autodist/ir/op_classes.h"

namespace autodist::capture {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape) {
  std::int64_t result = 1;
  for (std::int64_t size : shape) result *= size;
  return result;
}

// An op's tensors at one batch size.
class Sized {
 public:
  Sized(const ir::Graph& graph, const ir::Op& op, std::int64_t batch)
      : graph_(graph), op_(op), batch_(batch) {}

  [[nodiscard]] Shape shape(ir::ValueId id) const {
    return ir::integers_at(graph_.value(id).type.sizes, batch_);
  }
  // Of an argument; empty (a scalar's shape) where it is no tensor.
  [[nodiscard]] Shape argument(std::size_t index) const {
    if (index >= op_.arguments.size()) return {};
    const auto* id = std::get_if<ir::ValueId>(&op_.arguments[index]);
    return id ? shape(*id) : Shape{};
  }
  [[nodiscard]] bool has_result(std::size_t index) const {
    return index < op_.results.size() && std::holds_alternative<ir::ValueId>(op_.results[index]);
  }
  [[nodiscard]] Shape result(std::size_t index) const {
    return has_result(index) ? shape(std::get<ir::ValueId>(op_.results[index])) : Shape{};
  }
  [[nodiscard]] std::int64_t elements(std::size_t argument_index) const {
    return product(argument(argument_index));
  }
  [[nodiscard]] std::int64_t result_elements() const {
    return has_result(0) ? product(result(0)) : 0;
  }
  [[nodiscard]] bool flag(std::size_t index) const {
    const auto* value = std::get_if<bool>(&op_.arguments[index]);
    return value != nullptr && *value;
  }
  [[nodiscard]] std::int64_t window(std::size_t index, std::size_t dimensions) const {
    const auto* sizes = std::get_if<std::vector<ir::Affine>>(&op_.arguments[index]);
    if (sizes == nullptr || sizes->empty()) return 1;
    std::int64_t result = 1;
    for (std::size_t i = 0; i < dimensions; ++i) {
      result *= (*sizes)[std::min(i, sizes->size() - 1)].at(batch_);
    }
    return result;
  }

 private:
  const ir::Graph& graph_;
  const ir::Op& op_;
  std::int64_t batch_;
};

// Multiply-adds of a convolution: every element of the larger side meets one filter.
std::int64_t convolution(const Shape& output, const Shape& input, const Shape& weight,
                         bool transposed) {
  if (weight.empty() || weight[0] == 0) return 0;
  return 2 * product(transposed ? input : output) * (product(weight) / weight[0]);
}

std::int64_t convolution_forward(const Sized& op) {
  return convolution(op.result(0), op.argument(0), op.argument(1), op.flag(6));
}

// Gradients of input and weight cost a forward pass each.
std::int64_t convolution_backward(const Sized& op) {
  const std::int64_t forward =
      convolution(op.argument(0), op.argument(1), op.argument(2), op.flag(7));
  const std::int64_t bias = op.has_result(2) ? op.elements(0) : 0;
  return forward * (op.has_result(0) + op.has_result(1)) + bias;
}

// a[…, m, k] times b: every element of the result is a row of k multiply-adds.
std::int64_t matrix_product(const Sized& op, std::size_t left) {
  const Shape a = op.argument(left);
  return a.empty() ? 0 : 2 * op.result_elements() * a.back();
}

using Formula = std::function<std::int64_t(const Sized&)>;

Formula per_input_element(std::int64_t operations) {
  return [=](const Sized& op) { return operations * op.elements(0); };
}

// Of one operation for each element of the result.
constexpr const char* kPointwise[] = {
    "add",       "sub",     "rsub",       "mul",      "div",         "neg",     "abs",
    "relu",      "sigmoid", "tanh",       "exp",      "log",         "sqrt",    "rsqrt",
    "pow",       "gelu",    "silu",       "hardtanh", "leaky_relu",  "elu",     "clamp",
    "clamp_min", "maximum", "minimum",    "where",    "masked_fill", "addcmul", "addcdiv",
    "bernoulli", "lerp",    "reciprocal", "square",   "sin",         "cos"};
constexpr const char* kPointwiseBackward[] = {
    "threshold_backward", "sigmoid_backward",    "tanh_backward",
    "gelu_backward",      "silu_backward",       "mse_loss_backward",
    "hardtanh_backward",  "leaky_relu_backward", "elu_backward"};

const std::map<std::string, Formula>& formulas() {
  static const std::map<std::string, Formula> kFormulas = [] {
    std::map<std::string, Formula> table;
    for (const char* name : {"mm", "bmm", "mv", "dot"}) {
      table[name] = [](const Sized& op) { return matrix_product(op, 0); };
    }
    for (const char* name : {"addmm", "baddbmm", "addbmm", "addmv"}) {
      table[name] = [](const Sized& op) { return matrix_product(op, 1); };
    }
    table["convolution"] = convolution_forward;
    table["convolution_backward"] = convolution_backward;
    table["native_batch_norm"] = per_input_element(7);
    table["native_batch_norm_backward"] = per_input_element(11);
    table["native_layer_norm"] = per_input_element(7);
    table["native_layer_norm_backward"] = per_input_element(11);
    table["native_group_norm"] = per_input_element(7);
    table["native_group_norm_backward"] = per_input_element(11);
    table["_softmax"] = per_input_element(5);
    table["_softmax_backward_data"] = per_input_element(4);
    table["_log_softmax"] = per_input_element(5);
    table["_log_softmax_backward_data"] = per_input_element(4);
    table["max_pool2d_with_indices"] = [](const Sized& op) {
      return op.result_elements() * op.window(1, 2);
    };
    table["avg_pool2d"] = table["max_pool2d_with_indices"];
    for (const char* name :
         {"sum", "mean", "embedding_dense_backward", "_adaptive_avg_pool2d",
          "_adaptive_avg_pool2d_backward", "max_pool2d_with_indices_backward",
          "avg_pool2d_backward", "nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits",
          "binary_cross_entropy", "var_mean"}) {
      table[name] = per_input_element(1);
    }
    const Formula once = [](const Sized& op) { return op.result_elements(); };
    table["native_dropout"] = once;
    for (const char* name : kPointwise) table[name] = once;
    for (const char* name : kPointwiseBackward) table[name] = once;
    return table;
  }();
  return kFormulas;
}

// Of "add" for "aten::add_"; null where there is none.
const Formula* formula_of(const ir::Op& op) {
  std::string name = op.name.substr(op.name.rfind(':') + 1);
  if (!name.empty() && name.back() == '_') name.pop_back();
  const auto found = formulas().find(name);
  return found == formulas().end() ? nullptr : &found->second;
}

std::int64_t bytes(const ir::Graph& graph, ir::ValueId id, std::int64_t batch) {
  const ir::TensorType& type = graph.value(id).type;
  if (type.layout == ir::Layout::kSparseCoo) {
    return graph.storages[graph.value(id).storage.value].bytes.at(batch);
  }
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    const bool expanded = type.strides[i].at(batch) == 0;
    elements *= expanded ? 1 : type.sizes[i].at(batch);
  }
  return elements * static_cast<std::int64_t>(size_of(type.dtype));
}

// Affine through two batches and true at a third; else 0.
template <typename Figure>
ir::Affine affine(const ir::Graph& graph, Figure figure) {
  const std::int64_t low = graph.example_batch;
  if (!graph.batch_fixed_reason.empty()) return {0, figure(low)};
  const auto fitted = fit(low, figure(low), low + 1, figure(low + 1));
  const bool holds = fitted && fitted->at(low + 3) == figure(low + 3);
  return holds ? *fitted : ir::Affine{};
}

std::int64_t bytes_moved_by(const ir::Graph& graph, const ir::Op& op, std::int64_t batch) {
  if (ir::is_view(graph, op)) return 0;
  std::int64_t read = 0;
  std::int64_t written = 0;
  ir::for_each_read(op, [&](ir::ValueId id) { read += bytes(graph, id, batch); });
  ir::for_each_result(op, [&](ir::ValueId id) { written += bytes(graph, id, batch); });
  // A lookup reads the rows that it returns, not the table.
  if (op.name == "aten::embedding" || op.name == "aten::index_select") read = written;
  return read + written;
}

}  // namespace

void count_work(ir::Graph& graph) {
  for (ir::Op& op : graph.ops) {
    const Formula* const formula = formula_of(op);
    op.flops = affine(graph, [&](std::int64_t batch) -> std::int64_t {
      return formula == nullptr ? 0 : (*formula)(Sized(graph, op, batch));
    });
    op.bytes_moved =
        affine(graph, [&](std::int64_t batch) { return bytes_moved_by(graph, op, batch); });
  }
}

void count_peak_bytes(ir::Graph& graph) {
  const std::int64_t low = graph.example_batch;
  const std::int64_t at_low = ir::peak_bytes(graph, low);
  if (!graph.batch_fixed_reason.empty()) {
    graph.peak_bytes = {0, at_low};
    return;
  }
  // Which moment is the highest may change with the batch; the line through B and 2 B is near.
  const std::int64_t at_high = ir::peak_bytes(graph, 2 * low);
  const std::int64_t slope = (at_high - at_low) / low;
  graph.peak_bytes = {slope, at_low - slope * low};
}

}  // namespace autodist::capture
