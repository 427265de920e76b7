#include "autodist/capture/op_recorder.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/sort_unique.h"
#include "autodist/capture/op_traits.h"
#include "autodist/capture/tensor_type.h"
#include "autodist/capture/unwritten.h"
#include "autodist/ir/own_ops.h"
#include "autodist/ir/text.h"

namespace autodist::capture {
namespace {

constexpr std::size_t kLargestStoredConstant = 1 << 20;

// What to write where the gradient of what is put into rows that a mask chooses is refused.
constexpr const char* kByTheSameMask =
    "Compute the mask once, and read rows by it, too: out[mask] = f(x[mask]); or choose by "
    "torch.where(mask, f(x), out).";

// Whether the host learns a number that follows from what its arguments contain. libtorch's own
// attention asks aten::equal whether query and key are one tensor: that does not depend on data.
bool tells_contents(const c10::OperatorHandle& handle, const c10::IValue* arguments) {
  if (!handle.hasTag(at::Tag::data_dependent_output)) return false;
  if (handle.schema().name() != "aten::equal") return true;
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  const bool one_tensor = a.is_alias_of(b) && a.sizes() == b.sizes() &&
                          a.strides() == b.strides() && a.storage_offset() == b.storage_offset();
  return a.sizes() == b.sizes() && !one_tensor;
}

// Whether it takes lengths as numbers, which the host has got from tensors without an op.
bool takes_read_lengths(const ir::Op& op) {
  const bool of_numbers = op.overload.empty();
  return of_numbers && (op.name == "aten::_ctc_loss" || op.name == "aten::_cudnn_ctc_loss");
}

bool is_host_number(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.layout() == at::kStrided && tensor.is_cpu() &&
         !tensor.is_complex() && !tensor.requires_grad();
}

ir::Argument number_in(const at::Tensor& tensor) {
  const at::Scalar number = tensor.item();
  if (number.isBoolean()) return number.toBool();
  if (number.isFloatingPoint()) return number.toDouble();
  return ir::Affine{0, number.toLong()};
}

template <typename To, typename From>
std::vector<To> to_vector(const c10::List<From>& list) {
  std::vector<To> result;
  result.reserve(list.size());
  for (const From& each : list) result.push_back(To(each));
  return result;
}

}  // namespace

OpRecorder::OpRecorder(RecordOptions options, std::function<std::string()> where)
    : options_(std::move(options)), where_(std::move(where)) {}

OpRecorder::~OpRecorder() {
  for (OtherLeaf& each : other_leaves_) each.tensor.mutable_grad() = each.gradient;
}

std::string OpRecorder::describe(const ir::Op& op) const {
  return fmt::format("{}{}", ir::full_name(op), ir::in_scope(graph_, op));
}

template <typename... Args>
void OpRecorder::refuse(const ir::Op& op, fmt::format_string<Args...> format,
                        Args&&... args) const {
  fail(ErrorCode::kUsage, "capture: {} {}", describe(op),
       fmt::format(format, std::forward<Args>(args)...));
}

OpRecorder::StorageState& OpRecorder::state(ir::StorageId storage) {
  if (states_.size() <= storage.value) states_.resize(graph_.storages.size());
  return states_[storage.value];
}

ir::ValueId OpRecorder::declare(const at::Tensor& tensor, ir::StorageKind kind,
                                const std::string& name) {
  const bool known = table_.storage_of(tensor).has_value();
  const ir::ValueId value = known ? table_.value_of(tensor) : table_.add(tensor, kind);
  const ir::StorageId storage = graph_.value(value).storage;
  state(storage).tainted = kind != ir::StorageKind::kConstant;
  if (kind != ir::StorageKind::kInput) scopes_.name_storage(storage, name);
  return value;
}

std::optional<ir::ValueId> OpRecorder::find(const at::Tensor& tensor) {
  if (!tensor.defined() || !table_.storage_of(tensor)) return std::nullopt;
  return table_.value_of(tensor);
}

ir::ValueId OpRecorder::add_constant(const at::Tensor& tensor, const std::string& name) {
  const ir::ValueId value = table_.storage_of(tensor)
                                ? table_.value_of(tensor)
                                : table_.add(tensor, ir::StorageKind::kConstant);
  for (const ir::Constant& known : graph_.constants) {
    if (known.value == value) return value;
  }
  ir::Constant constant{name, value, digest_of(tensor), ""};
  if (tensor.layout() == at::kStrided && tensor.nbytes() <= kLargestStoredConstant) {
    constant.bytes = bytes_of(tensor);
  }
  graph_.constants.push_back(std::move(constant));
  // The user's own, to see what becomes of it; one that was computed would keep its graph alive.
  constants_.push_back(tensor.is_leaf() ? tensor : tensor.detach());
  return value;
}

// A scalar that the host made becomes an op that makes it, so that one which follows the batch (a
// weight of 1 / B, kept by autograd for the backward pass) can stay symbolic.
void OpRecorder::add_host_number(const at::Tensor& tensor) {
  const ir::ValueId value = table_.add(tensor, ir::StorageKind::kIntermediate);
  state(graph_.value(value).storage).host_number = true;
  ir::Op op;
  op.name = "aten::scalar_tensor";
  op.arguments = {number_in(tensor), ir::Affine{0, static_cast<int>(tensor.scalar_type())},
                  ir::None{}, ir::HostDevice{}, ir::None{}};
  op.results = {value};
  op.phase = phase_;
  if (!graph_.ops.empty()) op.scope = graph_.ops.back().scope;
  graph_.ops.push_back(std::move(op));
}

// Something outside of the dispatcher may have filled a tensor that an aten::empty made:
// torch::tensor({1, 2}) does. Its contents become a constant, and the op that made it becomes a
// copy of that.
void OpRecorder::initialise_from_host(const at::Tensor& tensor) {
  StorageState& known = state(*table_.storage_of(tensor));
  ir::Op& maker = graph_.ops[*known.uninitialised_since];
  const ir::ValueId base = std::get<ir::ValueId>(maker.results[0]);
  const ir::TensorType& type = graph_.value(base).type;  // of this run: no number varies
  const auto sizes = ir::integers_at(type.sizes, 0);
  const auto strides = ir::integers_at(type.strides, 0);
  const at::Tensor contents =
      tensor.detach().as_strided(sizes, strides, type.offset.constant).clone();
  known.uninitialised_since.reset();
  maker.name = "aten::clone";
  maker.overload = "";
  maker.arguments = {add_constant(contents, ""), ir::None{}};
}

ir::ValueId OpRecorder::value_read(const at::Tensor& tensor, Pending& pending) {
  if (!table_.storage_of(tensor)) {
    if (tensor.requires_grad() && tensor.is_leaf()) note_other_leaf(tensor, pending.op);
    if (is_host_number(tensor)) {
      add_host_number(tensor);
    } else {
      add_constant(tensor, "");
    }
  }
  const ir::StorageId storage = *table_.storage_of(tensor);
  if (graph_.storages[storage.value].kind == ir::StorageKind::kConstant) {
    const bool view_made_by_an_op = !table_.is_new(tensor);
    if (!view_made_by_an_op) add_constant(tensor, "");  // another view, made outside
  }
  pending.read.push_back(storage);
  pending.tainted |= state(storage).tainted;
  return table_.value_of(tensor);
}

void OpRecorder::note_other_leaf(at::Tensor leaf, const ir::Op& reader) {
  const std::string line = where_ && in_forward() ? where_() : "";
  other_leaves_.push_back({leaf, leaf.grad(), describe(reader), line});
  leaf.mutable_grad() = at::Tensor();
}

void OpRecorder::check_gradients_of_others() const {
  for (const OtherLeaf& each : other_leaves_) {
    if (!each.tensor.grad().defined()) continue;
    fail(ErrorCode::kUsage,
         "capture: {} reads a tensor that gets a gradient but is not among the step's parameters. "
         "Add it to them, or let it require none (requires_grad_(false)).{}",
         each.read_by, each.where.empty() ? "" : " At " + each.where);
  }
}

ir::Argument OpRecorder::tensor_argument(const at::Tensor& tensor, Pending& pending) {
  if (!tensor.defined()) return ir::None{};
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && is_host_number(tensor)) {
    const auto storage = table_.storage_of(tensor);
    if (!storage || state(*storage).host_number) return number_in(tensor);
  }
  return value_read(tensor, pending);
}

ir::Argument OpRecorder::list_argument(const ir::Op& op, const c10::IValue& value,
                                       Pending& pending) {
  if (value.isIntList()) {
    std::vector<ir::Affine> numbers;
    for (std::int64_t each : value.toIntVector()) numbers.push_back({0, each});
    return numbers;
  }
  if (value.isDoubleList()) return value.toDoubleVector();
  if (value.isBoolList()) return to_vector<bool>(value.toBoolList());
  ir::Values values;
  if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) {
      values.push_back(each.defined() ? std::optional(value_read(each, pending)) : std::nullopt);
    }
    return values;
  }
  if (value.isOptionalTensorList()) {
    for (const c10::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      const bool defined = each && each->defined();
      values.push_back(defined ? std::optional(value_read(*each, pending)) : std::nullopt);
    }
    return values;
  }
  if (value.isList() && value.toListRef().empty()) return std::vector<ir::Affine>{};
  refuse(
      op,
      "takes an argument of type {}, which a graph cannot hold. Use an op of tensors and numbers.",
      value.tagKind());
}

ir::Argument OpRecorder::argument(const ir::Op& op, const c10::IValue& value, Pending& pending) {
  if (value.isTensor()) return tensor_argument(value.toTensor(), pending);
  if (value.isNone()) return ir::None{};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return ir::Affine{0, value.toInt()};
  if (value.isDouble()) return value.toDouble();
  if (value.isComplexDouble()) return std::complex<double>(value.toComplexDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) {
    if (value.toDevice().type() == options_.device.type()) return ir::RankDevice{};
    if (value.toDevice().is_cpu()) return ir::HostDevice{};
    refuse(op, "uses device {}, the step computes on {}. Use one device.", value.toDevice().str(),
           options_.device.str());
  }
  return list_argument(op, value, pending);
}

void OpRecorder::note_writes(const OpTraits& traits, Pending& pending) {
  ir::Op& op = pending.op;
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    if (!traits.arguments[i].written) continue;
    const std::size_t before = pending.written.size();
    const auto note = [&](ir::ValueId value) {
      pending.written.push_back(graph_.value(value).storage);
    };
    ir::for_each_value(op.arguments[i], note);
    if (pending.written.size() > before) op.writes.push_back(static_cast<std::uint32_t>(i));
  }
  sort_unique(pending.written);
}

bool OpRecorder::depends_on_step(const at::Tensor& tensor) const {
  const auto storage = table_.storage_of(tensor);
  return storage && storage->value < states_.size() && states_[storage->value].tainted;
}

bool OpRecorder::has_data_dependent_shape(const c10::OperatorHandle& handle,
                                          const c10::IValue* arguments) const {
  const std::string& name = handle.schema().name();
  if (name == "aten::index" || name == "aten::masked_select") {
    bool by_data = false;
    for_each_tensor(arguments[1], [&](const at::Tensor& index) {
      by_data |= is_mask(index) && depends_on_step(index);
    });
    return by_data;
  }
  if (name == "aten::repeat_interleave") return arguments[1].isNone();
  // As the package calls it, with one target of full length.
  if (name == "aten::_ctc_loss") return false;
  return handle.hasTag(at::Tag::dynamic_output_shape);
}

void OpRecorder::check_refusals(const c10::OperatorHandle& handle, const Pending& pending,
                                const c10::IValue* arguments) const {
  const ir::Op& op = pending.op;
  for (ir::StorageId storage : pending.written) {
    const ir::StorageKind kind = graph_.storages[storage.value].kind;
    if (kind == ir::StorageKind::kVariable) {
      refuse(
          op,
          "writes a parameter inside of the step; only its update may. Write a copy (clone()), or "
          "keep it as a buffer.");
    }
    for (const ir::Constant& each : graph_.constants) {
      if (each.name.empty() || graph_.value(each.value).storage != storage) continue;
      refuse(op,
             "writes the frozen parameter '{}' inside of the step. Update it in the loop, between "
             "steps.",
             each.name);
    }
    if (kind == ir::StorageKind::kConstant ||
        (storage.value < states_.size() && states_[storage.value].host_number)) {
      refuse(op,
             "writes a tensor that is neither an input nor a buffer of the step. Register it as a "
             "buffer.");
    }
  }
  if (!pending.tainted) return;
  if (reads_boolean(handle, arguments)) {
    if (can_guard(op)) return;
    refuse(
        op,
        "reads on the host, in the backward pass, a Boolean that depends on gradients, which may "
        "be on their way by then, or on what that pass draws or overwrites. Write "
        "torch.where(condition, a, b).");
  }
  if (pending.reads_integer) return;
  if (tells_contents(handle, arguments)) {
    refuse(op,
           "reads on the host a number that depends on inputs, parameters or random numbers: a "
           "replay would use the old one. {}",
           kWithTheTensor);
  }
  if (op.name == "aten::_pack_padded_sequence" && depends_on_step(arguments[1].toTensor())) {
    refuse(op,
           "reads the lengths of sequences without an op: a replay would use the old ones. Give "
           "the padded sequences to the module, and take what belongs to each one's last element "
           "(torch.gather).");
  }
  if (takes_read_lengths(op)) {
    refuse(op,
           "takes lengths that libtorch's ctc_loss has read on the host: a replay would use the "
           "old ones. In Python call torch.nn.functional.ctc_loss by this name, which keeps them "
           "tensors.");
  }
  if (pending.has_size_of_data && pending.masks.empty() && !can_guard(op)) {
    refuse(op,
           "makes, in the backward pass, a tensor whose size depends on gradients, which may be on "
           "their way by then, or on what that pass draws or overwrites. {}",
           op.name == "aten::index" ? kByTheSameMask : "Keep all of it, and multiply by a mask.");
  }
}

void OpRecorder::keep_host_contents(const OpTraits& traits, const c10::IValue* arguments) {
  if (traits.leaves_uninitialised) return;
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    const ArgumentTraits& argument = traits.arguments[i];
    if (argument.viewed || (argument.written && traits.overwrites_target)) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const auto storage = table_.storage_of(tensor);
      if (!storage || tensor.numel() == 0) return;
      const bool since_an_op = state(*storage).uninitialised_since.has_value();
      if (since_an_op && !is_unwritten(tensor)) initialise_from_host(tensor);
    });
  }
}

void OpRecorder::digest_untouched(Pending& pending, const c10::IValue* arguments) const {
  for (std::size_t i = 0; i < pending.traits->arguments.size(); ++i) {
    if (pending.traits->arguments[i].written) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      const auto storage = table_.storage_of(tensor);
      const bool also_written =
          storage && std::binary_search(pending.written.begin(), pending.written.end(), *storage);
      if (also_written || tensor.is_meta()) return;
      pending.untouched.emplace_back(tensor, digest_of_memory(tensor));
    });
  }
}

OpRecorder::Pending OpRecorder::begin(const c10::OperatorHandle& handle,
                                      const torch::jit::Stack& stack) {
  const OpTraits& traits = options_.traits->of(handle);
  const c10::IValue* arguments = &*stack.end() - traits.arguments.size();
  Pending pending;
  pending.traits = &traits;
  ir::Op& op = pending.op;
  op.name = handle.schema().name();
  op.overload = handle.schema().overload_name();
  op.phase = phase_;
  op.random = traits.random;
  pending.tainted = op.random;
  keep_host_contents(traits, arguments);
  op.arguments.reserve(traits.arguments.size());
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    if (!traits.arguments[i].generator) {
      op.arguments.push_back(argument(op, arguments[i], pending));
      continue;
    }
    const bool is_own =
        arguments[i].isGenerator() &&
        arguments[i].toGenerator() != at::globalContext().defaultGenerator(options_.device);
    if (is_own) {
      refuse(op,
             "draws from a generator of the step's own, which a replay does not have. Leave "
             "generator= out: the job's seed decides what is drawn.");
    }
    op.arguments.push_back(ir::RankGenerator{});
  }
  op.scope = phase_ == ir::Phase::kForward
                 ? scopes_.forward(pending.read, at::sequence_number::peek())
                 : scopes_.backward(pending.read, node_);
  note_writes(traits, pending);
  pending.has_size_of_data =
      pending.tainted && has_data_dependent_shape(handle, arguments) && !is_known_index(op);
  if (pending.has_size_of_data && !can_guard(op)) pending.masks = masks_of_forward(op, arguments);
  pending.reads_integer = pending.tainted && reads_integer(handle, arguments) && can_guard(op);
  check_refusals(handle, pending, arguments);
  if (options_.check_writes) digest_untouched(pending, arguments);
  if (op.random) before_drawing(pending);
  return pending;
}

// Undefined where there is no generator (tensors without contents).
at::Tensor OpRecorder::generator_state() const {
  if (options_.device.is_meta()) return {};
  return at::globalContext().defaultGenerator(options_.device).get_state();
}

std::optional<ir::ValueId> OpRecorder::add_generator_op(const char* name, ir::ScopeId scope,
                                                        std::optional<ir::ValueId> state,
                                                        const at::Tensor& result) {
  ir::Op op;
  op.name = name;
  op.arguments = {ir::RankDevice{}, ir::RankGenerator{}};
  if (state) op.arguments.emplace_back(*state);
  std::optional<ir::ValueId> value;
  if (result.defined()) value = table_.add(result, ir::StorageKind::kIntermediate);
  op.results = {value ? ir::Result(*value) : ir::Result(ir::None{})};
  op.random = true;
  op.phase = phase_;
  op.scope = scope;
  graph_.ops.push_back(std::move(op));
  return value;
}

// Code that computes something again puts the generator's state of then in its place, and not by an
// op. So a state that is not the last op's, but was an earlier one's, becomes that of then.
void OpRecorder::before_drawing(Pending& pending) {
  const at::Tensor now = generator_state();
  if (!now.defined()) return;
  const std::string digest = to_string(digest_of(now));
  const auto known = drawn_from_.find(digest);
  if (known == drawn_from_.end()) {
    drawn_from_[digest] =
        *add_generator_op(ir::kKeepGeneratorOp, pending.op.scope, std::nullopt, now);
  } else if (after_last_draw_ && digest != *after_last_draw_) {
    pending.drawn_again =
        add_generator_op(ir::kSetGeneratorOp, pending.op.scope, known->second, now.clone());
  }
}

void OpRecorder::after_drawing(std::optional<ir::ValueId> drawn_again, ir::ScopeId scope) {
  if (drawn_again) {
    add_generator_op(ir::kSetGeneratorOp, scope, drawn_again, {});
  } else if (const at::Tensor now = generator_state(); now.defined()) {
    after_last_draw_ = to_string(digest_of(now));
  }
}

std::optional<ir::ValueId> OpRecorder::tensor_result(const at::Tensor& tensor,
                                                     const Pending& pending, bool& any_new) {
  if (!tensor.defined()) return std::nullopt;
  const bool known = table_.storage_of(tensor).has_value();
  const std::size_t values = graph_.values.size();
  const ir::ValueId value =
      known ? table_.value_of(tensor) : table_.add(tensor, ir::StorageKind::kIntermediate);
  any_new |= graph_.values.size() > values;
  const ir::StorageId storage = graph_.value(value).storage;
  if (!known) {
    state(storage).tainted = pending.tainted;
    if (pending.traits->leaves_uninitialised) {
      state(storage).uninitialised_since = graph_.ops.size();
      leave_unwritten(tensor);
    }
  }
  scopes_.made(storage, pending.op.scope);
  return value;
}

ir::Result OpRecorder::result(const c10::IValue& value, const Pending& pending, bool& any_new) {
  if (value.isTensor()) {
    const auto id = tensor_result(value.toTensor(), pending, any_new);
    return id ? ir::Result(*id) : ir::Result(ir::None{});
  }
  if (value.isTensorList()) {
    ir::Values values;
    for (const at::Tensor& each : value.toTensorVector()) {
      values.push_back(tensor_result(each, pending, any_new));
    }
    return values;
  }
  return ir::None{};
}

void OpRecorder::end(const c10::OperatorHandle& handle, Pending pending,
                     const torch::jit::Stack& stack) {
  for (const auto& [tensor, digest] : pending.untouched) {
    if (digest_of_memory(tensor) != digest) {
      const bool one_dnn = pending.op.name.find("mkldnn") != std::string::npos;
      refuse(pending.op,
             "writes an argument that its schema does not declare as written; a replay cannot "
             "order it.{}",
             one_dnn ? " Without oneDNN (torch.backends.mkldnn.enabled = False; in C++ "
                       "at::globalContext().setUserEnabledMkldnn(false)) the module has other ops."
                     : " Use another op, or give it a copy (clone()).");
    }
  }
  if (pending.traits->makes_no_tensor) return;  // it yields nothing that a replay needs
  for (ir::StorageId storage : pending.written) {
    table_.next_version(storage);
    state(storage).tainted |= pending.tainted;
    state(storage).uninitialised_since.reset();
  }
  const std::size_t count = handle.schema().returns().size();
  bool any_new = count == 0 || pending.op.random || !pending.written.empty();
  for (std::size_t i = 0; i < count; ++i) {
    pending.op.results.push_back(result(stack[stack.size() - count + i], pending, any_new));
  }
  // An op that only yields what is there already (detach, a second t(weight)) is none.
  const bool draws = pending.op.random;
  const ir::ScopeId scope = pending.op.scope;
  std::vector<ir::Result> results;
  if (pending.has_size_of_data) {
    results = pending.op.results;
    if (pending.op.name == "aten::index") {
      guarded_indices_.insert(std::get<ir::Values>(pending.op.arguments.at(1)));
    }
  }
  if (any_new) graph_.ops.push_back(std::move(pending.op));
  if (draws) after_drawing(pending.drawn_again, scope);
  if (pending.masks.empty()) return guard_sizes(results, scope);
  for (const at::Tensor& mask : pending.masks) guard_count(mask, scope);
}

}  // namespace autodist::capture
