#include "autodist/ir/graph_builder.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/ir/history.h"

namespace autodist::ir {
namespace {

Affine times(Affine a, Affine b) {
  AD_CHECK(a.per_sample == 0 || b.per_sample == 0) << "a product of two batch sizes is not affine";
  return {a.per_sample * b.constant + a.constant * b.per_sample, a.constant * b.constant};
}

Affine plus(Affine a, Affine b) { return {a.per_sample + b.per_sample, a.constant + b.constant}; }

Affine bytes_of(const TensorType& type) {
  Affine bytes{0, static_cast<std::int64_t>(size_of(type.dtype))};
  for (const Affine& size : type.sizes) bytes = times(bytes, size);
  return bytes;
}

}  // namespace

TensorType contiguous(const std::vector<Affine>& sizes, DType dtype) {
  TensorType type;
  type.dtype = dtype;
  type.sizes = sizes;
  type.strides.resize(sizes.size());
  Affine stride{0, 1};
  for (std::size_t i = sizes.size(); i-- > 0;) {
    type.strides[i] = stride;
    stride = times(stride, sizes[i]);
  }
  return type;
}

TensorType contiguous(std::initializer_list<Size> sizes, DType dtype) {
  std::vector<Affine> affine;
  for (const Size& size : sizes) affine.push_back(size.affine);
  return contiguous(affine, dtype);
}

GraphBuilder::GraphBuilder(std::string name, std::int64_t example_batch) {
  graph_.name = std::move(name);
  graph_.example_batch = example_batch;
  graph_.scopes = {""};
}

ValueId GraphBuilder::add_value(StorageId storage, SlotId slot, TensorType type) {
  graph_.values.push_back({storage, versions_[storage.value], slot, std::move(type)});
  return ValueId(graph_.values.size() - 1);
}

ValueId GraphBuilder::add_storage(StorageKind kind, TensorType type) {
  graph_.storages.push_back({kind, bytes_of(type)});
  versions_.push_back(0);
  return add_value(StorageId(graph_.storages.size() - 1), SlotId(graph_.slot_count++),
                   std::move(type));
}

ValueId GraphBuilder::input(std::string name, TensorType type, bool batched) {
  const ValueId value = add_storage(StorageKind::kInput, std::move(type));
  graph_.inputs.push_back({std::move(name), value, batched});
  return value;
}

ValueId GraphBuilder::variable(std::string name, TensorType type, UpdateRule update) {
  Variable variable;
  variable.name = std::move(name);
  variable.value = add_storage(StorageKind::kVariable, std::move(type));
  variable.update = std::move(update);
  graph_.variables.push_back(std::move(variable));
  return graph_.variables.back().value;
}

ValueId GraphBuilder::buffer(std::string name, TensorType type) {
  const ValueId value = add_storage(StorageKind::kBuffer, std::move(type));
  graph_.buffers.push_back({std::move(name), value, false});
  return value;
}

ValueId GraphBuilder::constant(std::string name, TensorType type, std::string bytes) {
  const ValueId value = add_storage(StorageKind::kConstant, std::move(type));
  const Digest digest = digest_of(bytes);
  graph_.constants.push_back({std::move(name), value, digest, std::move(bytes)});
  return value;
}

void GraphBuilder::scope(const std::string& name) {
  const auto found = std::find(graph_.scopes.begin(), graph_.scopes.end(), name);
  scope_ = ScopeId(found - graph_.scopes.begin());
  if (found == graph_.scopes.end()) graph_.scopes.push_back(name);
}

ValueId GraphBuilder::current(ValueId id) {
  const Value value = graph_.value(id);
  if (value.version == versions_[value.storage.value]) return id;
  for (std::size_t i = graph_.values.size(); i-- > 0;) {
    const Value& other = graph_.values[i];
    if (other.slot == value.slot && other.version == versions_[value.storage.value]) {
      return ValueId(i);
    }
  }
  return add_value(value.storage, value.slot, value.type);
}

Op& GraphBuilder::add_op(const std::string& name, std::vector<Argument> arguments,
                         const Effects& effects) {
  const auto make_current = [&](ValueId& value) { value = current(value); };
  for (Argument& argument : arguments) for_each_value(argument, make_current);
  Op op;
  op.name = name;
  op.arguments = std::move(arguments);
  op.writes = effects.writes;
  op.random = effects.random;
  op.phase = phase_;
  op.scope = scope_;
  op.cost = effects.cost;
  op.flops = effects.flops;
  op.bytes_moved = effects.bytes_moved;
  graph_.ops.push_back(std::move(op));
  for (StorageId storage : written_storages(graph_, graph_.ops.back())) {
    ++versions_[storage.value];
  }
  return graph_.ops.back();
}

std::vector<ValueId> GraphBuilder::op(const std::string& name, std::vector<Argument> arguments,
                                      std::vector<TensorType> results, const Effects& effects) {
  Op& op = add_op(name, std::move(arguments), effects);
  std::vector<ValueId> values;
  for (TensorType& type : results) {
    values.push_back(add_storage(StorageKind::kIntermediate, std::move(type)));
    op.results.emplace_back(values.back());
  }
  return values;
}

ValueId GraphBuilder::op(const std::string& name, std::vector<Argument> arguments,
                         TensorType result, const Effects& effects) {
  return op(name, std::move(arguments), std::vector<TensorType>{std::move(result)}, effects)
      .front();
}

ValueId GraphBuilder::view(const std::string& name, ValueId base, TensorType result,
                           const std::vector<Argument>& further, const Cost& cost) {
  std::vector<Argument> arguments{base};
  arguments.insert(arguments.end(), further.begin(), further.end());
  Effects effects;
  effects.cost = cost;
  Op& op = add_op(name, std::move(arguments), effects);
  const ValueId value =
      add_value(graph_.value(base).storage, SlotId(graph_.slot_count++), std::move(result));
  op.results.emplace_back(value);
  return value;
}

ValueId GraphBuilder::in_place(const std::string& name, std::vector<Argument> arguments,
                               Effects effects) {
  AD_CHECK(!arguments.empty() && std::holds_alternative<ValueId>(arguments.front()))
      << name << " writes its first argument, which must be a value";
  const ValueId before = std::get<ValueId>(arguments.front());
  effects.writes.insert(effects.writes.begin(), 0);
  Op& op = add_op(name, std::move(arguments), effects);
  const ValueId after = current(before);
  op.results.emplace_back(after);
  return after;
}

void GraphBuilder::gradient(ValueId variable, ValueId gradient, bool sparse) {
  const auto found =
      std::find_if(graph_.variables.begin(), graph_.variables.end(),
                   [&](const Variable& candidate) { return candidate.value == variable; });
  AD_CHECK(found != graph_.variables.end()) << "%" << variable << " is no variable";
  found->gradient = gradient;
  found->sparse_gradient = sparse;
}

void GraphBuilder::output(ValueId value) { graph_.outputs.push_back(value); }

Graph GraphBuilder::finish() {
  graph_.peak_bytes = {};
  for (const Storage& storage : graph_.storages) {
    graph_.peak_bytes = plus(graph_.peak_bytes, storage.bytes);
  }
  analyse(graph_);
  verify(graph_, graph_.name);
  return graph_;
}

}  // namespace autodist::ir
