#include "autodist/ir/names.h"

#include <set>

namespace autodist::ir {
namespace {

constexpr const char* kGradient = ".grad";

bool is_within(const std::string& scope, const std::string& module) {
  return scope == module || (scope.size() > module.size() && scope[module.size()] == '.' &&
                             scope.compare(0, module.size(), module) == 0);
}

std::set<StorageId> storages_of(const Graph& graph, const std::string& module) {
  std::set<StorageId> storages;
  const auto add = [&](const std::string& name, ValueId value) {
    if (is_within(module_of(name), module)) storages.insert(graph.value(value).storage);
  };
  for (const Variable& variable : graph.variables) add(variable.name, variable.value);
  for (const Buffer& buffer : graph.buffers) add(buffer.name, buffer.value);
  return storages;
}

std::optional<VariableId> variable_named(const Graph& graph, const std::string& name) {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    if (graph.variables[i].name == name && graph.variables[i].gradient) return VariableId(i);
  }
  return std::nullopt;
}

std::optional<ValueId> first_tensor(const Op& op) {
  std::optional<ValueId> first;
  for_each_result(op, [&](ValueId value) {
    if (!first) first = value;
  });
  return first;
}

}  // namespace

std::string module_of(const std::string& tensor) {
  const std::size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

bool is_batched(const Graph& graph, ValueId value) {
  const std::vector<Affine>& sizes = graph.value(value).type.sizes;
  if (sizes.empty()) return false;
  if (graph.batch_fixed_reason.empty()) return sizes.front().per_sample != 0;
  return sizes.front().at(0) == graph.example_batch;
}

std::optional<WatchedValue> find_watched(const Graph& graph, const std::string& name) {
  const std::size_t suffix = std::string(kGradient).size();
  if (name.size() > suffix && name.ends_with(kGradient)) {
    const auto variable = variable_named(graph, name.substr(0, name.size() - suffix));
    if (!variable) return std::nullopt;
    return WatchedValue{variable, *graph.variable(*variable).gradient, {}, false};
  }
  if (name.empty()) return std::nullopt;
  const std::set<StorageId> own = storages_of(graph, name);
  for (std::size_t i = graph.ops.size(); !own.empty() && i-- > 0;) {
    const Op& op = graph.ops[i];
    if (op.phase != Phase::kForward) continue;
    bool reads = false;
    for_each_read(op, [&](ValueId read) { reads |= own.count(graph.value(read).storage) != 0; });
    const std::optional<ValueId> value = first_tensor(op);
    if (!reads || !value || own.count(graph.value(*value).storage) != 0) continue;
    const std::vector<Affine>& sizes = graph.value(*value).type.sizes;
    return WatchedValue{std::nullopt, *value, OpId(i),
                        !sizes.empty() && sizes.front().per_sample != 0};
  }
  return std::nullopt;
}

std::vector<std::string> watchable_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Variable& variable : graph.variables) {
    if (variable.gradient) names.insert(variable.name + kGradient);
    std::string module = module_of(variable.name);
    while (!module.empty() && names.insert(module).second) module = module_of(module);
  }
  return {names.begin(), names.end()};
}

}  // namespace autodist::ir
