#include "autodist/ir/graph.h"

#include "autodist/base/check.h"

namespace autodist::ir {

bool operator==(const TensorType&, const TensorType&) = default;
bool operator==(const Storage&, const Storage&) = default;
bool operator==(const Value&, const Value&) = default;
bool operator==(const Cost&, const Cost&) = default;
bool operator==(const Op&, const Op&) = default;
bool operator==(const Input&, const Input&) = default;
bool operator==(const Variable&, const Variable&) = default;
bool operator==(const Buffer&, const Buffer&) = default;
bool operator==(const Constant&, const Constant&) = default;
bool operator==(const Graph&, const Graph&) = default;

std::vector<std::int64_t> shape_of(const Graph& graph, VariableId variable) {
  std::vector<std::int64_t> shape;
  for (const Affine& size : graph.value(graph.variable(variable).value).type.sizes) {
    AD_CHECK(size.per_sample == 0) << graph.variable(variable).name << " depends on the batch";
    shape.push_back(size.constant);
  }
  return shape;
}

std::int64_t element_count(const Graph& graph, VariableId variable) {
  std::int64_t count = 1;
  for (std::int64_t size : shape_of(graph, variable)) count *= size;
  return count;
}

Bytes bytes_of(const Graph& graph, VariableId variable) {
  const TensorType& type = graph.value(graph.variable(variable).value).type;
  return Bytes(element_count(graph, variable) * static_cast<std::int64_t>(size_of(type.dtype)));
}

std::map<StorageId, VariableId> variables_by_storage(const Graph& graph) {
  std::map<StorageId, VariableId> variables;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    variables[graph.value(graph.variables[i].value).storage] = VariableId(i);
  }
  return variables;
}

std::vector<std::int64_t> integers_at(const std::vector<Affine>& affines, std::int64_t batch) {
  std::vector<std::int64_t> integers;
  for (const Affine& affine : affines) integers.push_back(affine.at(batch));
  return integers;
}

std::int64_t element_count(const TensorType& type, std::int64_t batch) {
  std::int64_t count = 1;
  for (const Affine& size : type.sizes) count *= size.at(batch);
  return count;
}

}  // namespace autodist::ir
