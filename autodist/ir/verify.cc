// Is this a graph? Ranges first, so that everything after may index freely; then the ops in order,
// with the present version of every storage; then what was computed from the ops.

#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/history.h"
#include "autodist/ir/own_ops.h"

namespace autodist::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, const std::string& where)
      : graph_(graph), where_(where), versions_(graph.storages.size()) {}

  void run() {
    check_tables();
    check_named();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) check_ranges(OpId(i));
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) check_order(OpId(i));
    check_guards();
    check_results();
    check_analysis();
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUsage, "{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string describe(OpId id) const {
    const Op& op = graph_.op(id);
    const std::string scope =
        op.scope.value < graph_.scopes.size() ? graph_.scopes[op.scope.value] : std::string("?");
    return fmt::format("op {} ({}{}{})", id, op.name, scope.empty() ? "" : " in ", scope);
  }

  void check_tables() {
    if (graph_.scopes.empty() || !graph_.scopes.front().empty()) {
      refuse("the first scope must be the empty one");
    }
    if (graph_.example_batch < 1) {
      refuse("example batch is {}, must be at least 1", graph_.example_batch);
    }
    // Every slot has a value: a file cannot make its reader allocate more than it holds.
    if (graph_.slot_count > graph_.values.size()) {
      refuse("{} slots for {} values", graph_.slot_count, graph_.values.size());
    }
    slot_storages_.resize(graph_.slot_count);
    made_.resize(graph_.slot_count);
    for (std::size_t i = 0; i < graph_.values.size(); ++i) check_value(ValueId(i));
  }

  void check_value(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.storage.value >= graph_.storages.size()) {
      refuse("value %{} has storage {} of {}", id, value.storage, graph_.storages.size());
    }
    if (value.slot.value >= graph_.slot_count) {
      refuse("value %{} has slot {} of {}", id, value.slot, graph_.slot_count);
    }
    auto& storage = slot_storages_[value.slot.value];
    if (storage && *storage != value.storage) {
      refuse("slot {} is a view of storage {} and, as value %{}, of storage {}", value.slot,
             *storage, id, value.storage);
    }
    storage = value.storage;
    const TensorType& type = value.type;
    const std::size_t strides = type.layout == Layout::kStrided ? type.sizes.size() : 0;
    if (type.strides.size() != strides) {
      refuse("value %{} has {} strides, expected {}", id, type.strides.size(), strides);
    }
    for (const Affine& size : type.sizes) {
      if (size.per_sample < 0 || size.constant < 0) {
        refuse("value %{} has a negative size ({} * B + {})", id, size.per_sample, size.constant);
      }
    }
  }

  // REQUIRES: the table of values is checked.
  void check_named_value(const char* what, const std::string& name, ValueId id, StorageKind kind) {
    if (id.value >= graph_.values.size()) {
      refuse("{} '{}' is value %{} of {}", what, name, id, graph_.values.size());
    }
    const Value& value = graph_.value(id);
    if (graph_.storages[value.storage.value].kind != kind || value.version != 0) {
      refuse("{} '{}' is value %{}, which is not version 0 of a storage of that kind", what, name,
             id);
    }
    made_[value.slot.value] = true;
  }

  void check_name(const char* what, const std::string& name) {
    if (name.empty()) refuse("a {} has no name", what);
    if (!names_.insert(name).second) refuse("two tensors are named '{}' (one a {})", name, what);
  }

  void check_named() {
    for (const Input& input : graph_.inputs) {
      check_named_value("input", input.name, input.value, StorageKind::kInput);
    }
    for (const Variable& variable : graph_.variables) {
      check_name("variable", variable.name);
      for (const std::string& alias : variable.aliases) check_name("variable", alias);
      check_named_value("variable", variable.name, variable.value, StorageKind::kVariable);
      check_shape(variable);
    }
    for (const Buffer& buffer : graph_.buffers) {
      check_name("buffer", buffer.name);
      check_named_value("buffer", buffer.name, buffer.value, StorageKind::kBuffer);
    }
    for (const Constant& constant : graph_.constants) {
      if (!constant.name.empty()) check_name("constant", constant.name);
      check_named_value("constant", constant.name, constant.value, StorageKind::kConstant);
    }
    for (const Clip& clip : graph_.clips) {
      for (const auto& variable : clip.variables) {
        if (variable.value >= graph_.variables.size()) {
          refuse("a clip names variable {} of {}", variable, graph_.variables.size());
        }
      }
    }
  }

  void check_shape(const Variable& variable) const {
    std::int64_t elements = 1;
    for (const Affine& size : graph_.value(variable.value).type.sizes) {
      if (size.per_sample != 0) {
        refuse("the shape of variable '{}' depends on the batch", variable.name);
      }
      if (__builtin_mul_overflow(elements, size.constant, &elements)) {
        refuse("variable '{}' has more than 2^63 elements", variable.name);
      }
    }
  }

  void check_ranges(OpId id) const {
    const Op& op = graph_.op(id);
    if (op.name.empty()) refuse("op {} has no name", id);
    if (op.scope.value >= graph_.scopes.size()) {
      refuse("{} has scope {} of {}", describe(id), op.scope, graph_.scopes.size());
    }
    const auto in_range = [&](ValueId value) {
      if (value.value >= graph_.values.size()) {
        refuse("{} names value %{} of {}", describe(id), value, graph_.values.size());
      }
    };
    for_each_read(op, in_range);
    for_each_result(op, in_range);
    for (std::uint32_t index : op.writes) {
      const bool tensor =
          index < op.arguments.size() && (std::holds_alternative<ValueId>(op.arguments[index]) ||
                                          std::holds_alternative<Values>(op.arguments[index]));
      if (!tensor) refuse("{} writes argument {}, which is no tensor", describe(id), index);
    }
  }

  [[nodiscard]] bool exists(const Value& value) const {
    return exists_before_step(graph_.storages[value.storage.value]) ||
           versions_[value.storage.value].has_value();
  }
  [[nodiscard]] std::uint32_t version(const Value& value) const {
    return versions_[value.storage.value].value_or(0);
  }

  void check_order(OpId id) {
    const Op& op = graph_.op(id);
    for_each_read(op, [&](ValueId read) {
      const Value& value = graph_.value(read);
      if (!exists(value) || !made_[value.slot.value] || value.version > version(value)) {
        refuse("{} reads %{} before any op makes it", describe(id), read);
      }
      if (value.version < version(value)) {
        refuse("{} reads version {} of %{}, which was overwritten (now version {})", describe(id),
               value.version, read, version(value));
      }
    });
    for (StorageId storage : written_storages(graph_, op)) {
      const StorageKind kind = graph_.storages[storage.value].kind;
      if (kind == StorageKind::kVariable) {
        refuse("{} writes a variable; only its update may", describe(id));
      }
      versions_[storage.value] = versions_[storage.value].value_or(0) + 1;
    }
    for_each_result(op, [&](ValueId result) {
      const Value& value = graph_.value(result);
      if (value.version != version(value)) {
        refuse("{} makes version {} of %{}, expected version {}", describe(id), value.version,
               result, version(value));
      }
      versions_[value.storage.value] = version(value);
      made_[value.slot.value] = true;
    });
  }

  void check_guards() const {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (!is_guard(op)) continue;
      const bool of_number = is_number_guard(op);
      const bool fits = op.arguments.size() == 3 && op.results.empty() && op.writes.empty() &&
                        !std::holds_alternative<Values>(op.arguments[0]) &&
                        (of_number ? std::holds_alternative<Affine>(op.arguments[1])
                                   : std::holds_alternative<bool>(op.arguments[1])) &&
                        op.arguments[2] == Argument(Affine{0, before}) &&
                        op.phase == Phase::kForward;
      if (!fits) {
        refuse("{}: (tensor, {}, {}) in the forward pass expected of a guard", describe(OpId(i)),
               of_number ? "integer" : "Boolean", before);
      }
      ++before;
    }
  }

  void check_results() const {
    const auto made = [&](const std::string& what, ValueId id) {
      if (id.value >= graph_.values.size()) {
        refuse("{} is value %{} of {}", what, id, graph_.values.size());
      }
      const Value& value = graph_.value(id);
      if (!exists(value) || !made_[value.slot.value] || value.version > version(value)) {
        refuse("{} is %{}, which no op makes", what, id);
      }
    };
    for (ValueId output : graph_.outputs) made("an output", output);
    for (const Variable& variable : graph_.variables) {
      if (variable.gradient) made("the gradient of '" + variable.name + "'", *variable.gradient);
    }
  }

  void check_analysis() const {
    const Analysis expected = analysis_of(graph_);
    const auto number = [](const std::optional<OpId>& id) {
      return id ? std::to_string(id->value) : std::string("none");
    };
    for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
      const Variable& stated = graph_.variables[i];
      const Variable& computed = expected.variables[i];
      const auto compare = [&](const char* what, const auto& a, const auto& b) {
        if (a != b) {
          refuse("{} of '{}' is op {}, the ops say {}", what, stated.name, number(a), number(b));
        }
      };
      compare("first use", stated.first_use, computed.first_use);
      compare("last read", stated.last_read, computed.last_read);
      compare("the end of the gradient", stated.gradient_complete, computed.gradient_complete);
      if (stated.gradient && !stated.gradient_complete) {
        refuse("the gradient of '{}' is made by no op", stated.name);
      }
    }
    for (std::size_t i = 0; i < graph_.buffers.size(); ++i) {
      if (graph_.buffers[i].mutated != expected.buffers[i].mutated) {
        refuse("buffer '{}' is said to be {}, the ops say otherwise", graph_.buffers[i].name,
               graph_.buffers[i].mutated ? "mutated" : "constant");
      }
    }
  }

  const Graph& graph_;
  const std::string& where_;
  std::set<std::string> names_;
  std::vector<std::optional<StorageId>> slot_storages_;
  std::vector<bool> made_;                              // per slot: its view exists by now
  std::vector<std::optional<std::uint32_t>> versions_;  // per storage, once touched
};

}  // namespace

void verify(const Graph& graph, const std::string& where) { Verifier(graph, where).run(); }

}  // namespace autodist::ir
