#include "autodist/ir/canonical.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {
namespace {

class StructureEncoder {
 public:
  Digest digest(const Graph& graph) {
    out_.add(graph.name);
    out_.add(graph.libtorch_version);
    out_.add(graph.example_batch);
    out_.add(graph.batch_fixed_reason);
    out_.add(graph.reduction);
    out_.add(graph.scopes);
    const auto add = [&](const auto& item) { encode(item); };
    out_.add_all(graph.storages, add);
    out_.add_all(graph.values, add);
    out_.add_all(graph.ops, add);
    out_.add_all(graph.inputs, add);
    out_.add_all(graph.variables, add);
    out_.add_all(graph.buffers, add);
    out_.add_all(graph.constants, add);
    out_.add(graph.outputs);
    out_.add(graph.slot_count);
    out_.add_all(graph.clips, add);
    encode(graph.schedule);
    return out_.digest();
  }

 private:
  void encode(const Affine& affine) {
    out_.add(affine.per_sample);
    out_.add(affine.constant);
  }
  void encode(const Quotient& quotient) {
    encode(quotient.numerator);
    encode(quotient.denominator);
  }
  void encode(const std::vector<Affine>& affines) {
    out_.add_all(affines, [&](const Affine& affine) { encode(affine); });
  }
  void encode(const Storage& storage) {
    out_.add(storage.kind);
    encode(storage.bytes);
  }
  void encode(const Value& value) {
    out_.add(value.storage);
    out_.add(value.version);
    out_.add(value.slot);
    out_.add(value.type.dtype);
    encode(value.type.sizes);
    encode(value.type.strides);
    encode(value.type.offset);
    out_.add(value.type.layout);
  }
  void encode(None) {}
  void encode(RankDevice) {}
  void encode(HostDevice) {}
  void encode(RankGenerator) {}
  template <typename T>
  void encode(const T& plain) {
    out_.add(plain);
  }
  template <typename... Alternatives>
  void encode(const std::variant<Alternatives...>& variant) {
    out_.add(std::uint64_t{variant.index()});
    std::visit([&](const auto& alternative) { encode(alternative); }, variant);
  }
  void encode(const Op& op) {
    const auto add = [&](const auto& item) { encode(item); };
    out_.add(op.name);
    out_.add(op.overload);
    out_.add_all(op.arguments, add);
    out_.add_all(op.results, add);
    out_.add(op.writes);
    out_.add(op.random);
    out_.add(op.phase);
    out_.add(op.scope);
    encode(op.flops);
    encode(op.bytes_moved);
  }
  void encode(const Input& input) {
    out_.add(input.name);
    out_.add(input.value);
    out_.add(input.batched);
  }
  void encode(const Variable& variable) {
    out_.add(variable.name);
    out_.add(variable.aliases);
    out_.add(variable.value);
    out_.add(variable.gradient);
    out_.add(variable.sparse_gradient);
    out_.add(variable.first_use);
    out_.add(variable.gradient_complete);
    out_.add(variable.last_read);
    out_.add(variable.update.rule);
    out_.add_all(variable.update.options, [&](const auto& option) {
      out_.add(option.first);
      out_.add(option.second);
    });
    out_.add(variable.update.user_rule);
  }
  void encode(const Buffer& buffer) {
    out_.add(buffer.name);
    out_.add(buffer.value);
    out_.add(buffer.mutated);
  }
  // The digest stands for the bytes, whether or not they are stored.
  void encode(const Constant& constant) {
    out_.add(constant.name);
    out_.add(constant.value);
    // The values of a frozen parameter are the chief's, whatever a rank's own generator made of it.
    if (constant.name.empty()) out_.add(constant.digest);
  }
  void encode(const Clip& clip) {
    out_.add(clip.max_norm);
    out_.add(clip.variables);
  }
  void encode(const Schedule& schedule) {
    out_.add(schedule.kind);
    out_.add(schedule.warmup_steps);
    out_.add(schedule.period_steps);
    out_.add(schedule.factor);
  }

  Canonical out_;
};

}  // namespace

Digest structural_digest(const Graph& graph) { return StructureEncoder().digest(graph); }

}  // namespace autodist::ir
