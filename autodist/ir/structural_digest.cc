#include "autodist/ir/canonical.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {
namespace {

class StructureEncoder {
 public:
  Digest digest(const Graph& graph) {
    out_.add_each(graph.name, graph.libtorch_version, graph.example_batch, graph.batch_fixed_reason,
                  graph.reduction, graph.scopes);
    const auto add = [&](const auto& item) { encode(item); };
    out_.add_all(graph.storages, add);
    out_.add_all(graph.values, add);
    out_.add_all(graph.ops, add);
    out_.add_all(graph.inputs, add);
    out_.add_all(graph.variables, add);
    out_.add_all(graph.buffers, add);
    out_.add_all(graph.constants, add);
    out_.add_each(graph.outputs, graph.slot_count);
    out_.add_all(graph.clips, add);
    encode(graph.schedule);
    return out_.digest();
  }

 private:
  void encode(const Affine& affine) { out_.add_each(affine.per_sample, affine.constant); }
  void encode(const Quotient& quotient) {
    encode(quotient.numerator);
    encode(quotient.denominator);
  }
  void encode(std::complex<double> number) { out_.add_each(number.real(), number.imag()); }
  void encode(const std::vector<Affine>& affines) {
    out_.add_all(affines, [&](const Affine& affine) { encode(affine); });
  }
  void encode(const Storage& storage) {
    out_.add(storage.kind);
    encode(storage.bytes);
  }
  void encode(const Value& value) {
    out_.add_each(value.storage, value.version, value.slot, value.type.dtype);
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
    out_.add_each(op.name, op.overload);
    out_.add_all(op.arguments, add);
    out_.add_all(op.results, add);
    out_.add_each(op.writes, op.random, op.phase, op.scope);
    encode(op.flops);
    encode(op.bytes_moved);
  }
  void encode(const Input& input) { out_.add_each(input.name, input.value, input.batched); }
  void encode(const Variable& variable) {
    out_.add_each(variable.name, variable.aliases, variable.value, variable.gradient,
                  variable.sparse_gradient, variable.first_use, variable.gradient_complete,
                  variable.last_read, variable.update.rule);
    out_.add_all(variable.update.options,
                 [&](const auto& option) { out_.add_each(option.first, option.second); });
    out_.add(variable.update.user_rule);
  }
  void encode(const Buffer& buffer) { out_.add_each(buffer.name, buffer.value, buffer.mutated); }
  // The digest stands for the bytes, whether or not they are stored.
  void encode(const Constant& constant) {
    out_.add_each(constant.name, constant.value);
    // The values of a frozen parameter are the chief's, whatever a rank's own generator made of it.
    if (constant.name.empty()) out_.add(constant.digest);
  }
  void encode(const Clip& clip) { out_.add_each(clip.max_norm, clip.variables); }
  void encode(const Schedule& schedule) {
    out_.add_each(schedule.kind, schedule.warmup_steps, schedule.period_steps, schedule.factor);
  }

  Canonical out_;
};

}  // namespace

Digest structural_digest(const Graph& graph) { return StructureEncoder().digest(graph); }

}  // namespace autodist::ir
