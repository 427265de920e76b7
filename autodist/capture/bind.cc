// The tensors of a step for the tables of a graph that was captured elsewhere.

#include <algorithm>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/subject.h"
#include "autodist/capture/tensor_type.h"

namespace autodist::capture {
namespace {

std::vector<std::int64_t> sizes_of(const ir::TensorType& type, std::int64_t batch) {
  std::vector<std::int64_t> sizes;
  for (const ir::Affine& size : type.sizes) sizes.push_back(size.at(batch));
  return sizes;
}

at::Tensor find(const std::vector<NamedTensor>& tensors, const ir::Graph& graph, const char* what,
                const std::string& name, ir::ValueId value) {
  const ir::TensorType& type = graph.value(value).type;
  for (const NamedTensor& each : tensors) {
    if (each.name != name) continue;
    const std::vector<std::int64_t> expected = sizes_of(type, graph.example_batch);
    if (each.tensor.sizes() != at::IntArrayRef(expected) ||
        dtype_of(each.tensor.scalar_type()) != type.dtype) {
      fail(ErrorCode::kUsage, "graph '{}': {} '{}' is {} {} in the model, {} [{}] in the graph.",
           graph.name, what, name, name_of(dtype_of(each.tensor.scalar_type())),
           c10::str(each.tensor.sizes()), name_of(type.dtype), fmt::join(expected, ", "));
    }
    return each.tensor;
  }
  fail(ErrorCode::kUsage, "graph '{}': the model has no {} '{}'. Is it the model of this graph?",
       graph.name, what, name);
}

// Unnamed and too large to be stored: only the step itself makes it.
at::Tensor find_by_digest(const Recording& recording, const ir::Constant& wanted,
                          const ir::Graph& graph) {
  for (std::size_t i = 0; i < recording.constants.size(); ++i) {
    if (recording.graph.constants[i].digest == wanted.digest) return recording.constants[i];
  }
  fail(
      ErrorCode::kUsage,
      "graph '{}': the model makes no constant tensor of digest {}. Is it the model of this graph?",
      graph.name, to_string(wanted.digest));
}

}  // namespace

Bindings bind(const ir::Graph& graph, const TrainingStep& step) {
  Bindings bindings;
  for (const ir::Variable& each : graph.variables) {
    bindings.variables.push_back(find(step.parameters, graph, "parameter", each.name, each.value));
  }
  for (const ir::Buffer& each : graph.buffers) {
    bindings.buffers.push_back(find(step.buffers, graph, "buffer", each.name, each.value));
  }
  std::optional<Recording> recording;
  for (const ir::Constant& each : graph.constants) {
    const ir::TensorType& type = graph.value(each.value).type;
    const std::vector<std::int64_t> sizes = sizes_of(type, graph.example_batch);
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    if (!each.name.empty()) {
      bindings.constants.push_back(
          find(step.parameters, graph, "frozen parameter", each.name, each.value));
    } else if (!each.bytes.empty() || empty) {
      bindings.constants.push_back(tensor_from_bytes(type.dtype, sizes, each.bytes));
    } else {
      if (!recording) {
        const Subject subject(step, true);
        const std::int64_t rows = std::max<std::int64_t>(subject.example_rows(), 1);
        recording = subject.record(subject.rows(0, rows), 0, false);
      }
      bindings.constants.push_back(find_by_digest(*recording, each, graph));
    }
  }
  return bindings;
}

}  // namespace autodist::capture
