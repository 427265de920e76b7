#include "autodist/ir/graph.h"

#include <tuple>

#include "autodist/base/check.h"

namespace autodist::ir {

bool operator==(const TensorType& a, const TensorType& b) {
  return std::tie(a.dtype, a.sizes, a.strides, a.offset, a.layout) ==
         std::tie(b.dtype, b.sizes, b.strides, b.offset, b.layout);
}

bool operator==(const Storage& a, const Storage& b) {
  return std::tie(a.kind, a.bytes) == std::tie(b.kind, b.bytes);
}

bool operator==(const Value& a, const Value& b) {
  return std::tie(a.storage, a.version, a.slot, a.type) ==
         std::tie(b.storage, b.version, b.slot, b.type);
}

bool operator==(const Cost& a, const Cost& b) {
  return std::tie(a.fixed, a.per_sample) == std::tie(b.fixed, b.per_sample);
}

bool operator==(const Op& a, const Op& b) {
  return std::tie(a.name, a.overload, a.arguments, a.results, a.writes, a.random, a.phase, a.scope,
                  a.cost, a.flops, a.bytes_moved) ==
         std::tie(b.name, b.overload, b.arguments, b.results, b.writes, b.random, b.phase, b.scope,
                  b.cost, b.flops, b.bytes_moved);
}

bool operator==(const Input& a, const Input& b) {
  return std::tie(a.name, a.value, a.batched) == std::tie(b.name, b.value, b.batched);
}

bool operator==(const Variable& a, const Variable& b) {
  return std::tie(a.name, a.aliases, a.value, a.gradient, a.sparse_gradient, a.first_use,
                  a.gradient_complete, a.last_read,
                  a.update) == std::tie(b.name, b.aliases, b.value, b.gradient, b.sparse_gradient,
                                        b.first_use, b.gradient_complete, b.last_read, b.update);
}

bool operator==(const Buffer& a, const Buffer& b) {
  return std::tie(a.name, a.value, a.mutated) == std::tie(b.name, b.value, b.mutated);
}

bool operator==(const Constant& a, const Constant& b) {
  return std::tie(a.name, a.value, a.digest, a.bytes) ==
         std::tie(b.name, b.value, b.digest, b.bytes);
}

bool operator==(const Graph& a, const Graph& b) {
  return std::tie(a.name, a.libtorch_version, a.example_batch, a.batch_fixed_reason, a.reduction,
                  a.scopes, a.storages, a.values, a.ops, a.inputs, a.variables, a.buffers,
                  a.constants, a.outputs, a.slot_count, a.peak_bytes, a.clips, a.schedule) ==
         std::tie(b.name, b.libtorch_version, b.example_batch, b.batch_fixed_reason, b.reduction,
                  b.scopes, b.storages, b.values, b.ops, b.inputs, b.variables, b.buffers,
                  b.constants, b.outputs, b.slot_count, b.peak_bytes, b.clips, b.schedule);
}

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

}  // namespace autodist::ir
