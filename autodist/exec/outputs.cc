#include "autodist/exec/outputs.h"

#include <limits>

#include "autodist/capture/torch_types.h"
#include "autodist/ir/history.h"
#include "autodist/ir/names.h"

namespace autodist::exec {

std::vector<torch::Tensor> take_outputs(const Replay& replay) {
  const ir::Graph& graph = replay.graph();
  std::vector<torch::Tensor> outputs;
  for (std::size_t i = 1; i < graph.outputs.size(); ++i) {
    const ir::StorageId storage = graph.value(graph.outputs[i]).storage;
    const bool outlives =
        replay.writes_again() || ir::exists_before_step(graph.storages[storage.value]);
    outputs.push_back(outlives ? replay.output(i).clone() : replay.output(i));
  }
  return outputs;
}

std::vector<std::size_t> numbers_of(const ir::Graph& graph) {
  std::vector<std::size_t> numbers{0};
  for (std::size_t i = 1; i < graph.outputs.size(); ++i) {
    const ir::TensorType& type = graph.value(graph.outputs[i]).type;
    const bool complex = at::isComplexType(scalar_type_of(type.dtype));
    if (type.sizes.empty() && !complex) numbers.push_back(i);
  }
  return numbers;
}

std::vector<torch::Tensor> no_outputs(const ir::Graph& graph) {
  std::vector<torch::Tensor> outputs;
  for (std::size_t i = 1; i < graph.outputs.size(); ++i) {
    const ir::TensorType& type = graph.value(graph.outputs[i]).type;
    std::vector<std::int64_t> sizes = ir::integers_at(type.sizes, 0);
    if (ir::is_batched(graph, graph.outputs[i])) sizes.front() = 0;
    const auto dtype = scalar_type_of(type.dtype);
    const bool real = at::isFloatingType(dtype) || at::isComplexType(dtype);
    outputs.push_back(
        torch::full(sizes, real ? std::numeric_limits<double>::quiet_NaN() : 0, dtype));
  }
  return outputs;
}

void add_outputs(const ir::Graph& graph, const std::vector<torch::Tensor>& more,
                 std::int64_t samples, std::int64_t before, std::vector<torch::Tensor>& outputs) {
  if (before == 0) {
    outputs = more;
    return;
  }
  for (std::size_t i = 0; i < more.size(); ++i) {
    const ir::ValueId value = graph.outputs[i + 1];
    if (ir::is_batched(graph, value)) {
      outputs[i] = torch::cat({outputs[i], more[i]});
    } else if (graph.value(value).type.sizes.empty()) {
      const auto all = static_cast<double>(before + samples);
      outputs[i] = outputs[i].to(torch::kFloat64) * (static_cast<double>(before) / all) +
                   more[i].to(torch::kFloat64) * (static_cast<double>(samples) / all);
    } else {
      outputs[i] = more[i];
    }
  }
}

}  // namespace autodist::exec
