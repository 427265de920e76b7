#include "autodist/capture/op_call.h"

#include <ATen/ScalarOps.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/other_way.h"
#include "autodist/capture/torch_version.h"
#include "autodist/ir/text.h"

namespace autodist::capture {
namespace {

// The default generator is one per process and device; whoever lends it a state must be alone.
std::mutex default_generator_mutex;

c10::TypePtr without_optional(c10::TypePtr type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return optional->getElementType();
  return type;
}

bool wants_tensor(const c10::Argument& argument) {
  return without_optional(argument.type())->kind() == c10::TypeKind::TensorType;
}

bool wants_optional_elements(const c10::Argument& argument) {
  const auto list = without_optional(argument.type())->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// A number where the schema wants a tensor: what `x * 2` passes in Python.
c10::IValue wrapped_number(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue number(const at::Scalar& value, const c10::Argument& argument) {
  return wants_tensor(argument) ? wrapped_number(value) : c10::IValue(value);
}

template <typename To, typename From>
c10::IValue list_of(const std::vector<From>& values) {
  c10::List<To> list;
  list.reserve(values.size());
  for (const From& value : values) list.push_back(value);
  return list;
}

// What the dispatcher takes for an argument that is no tensor.
struct Prepare {
  const c10::Argument& schema;
  const ComputePlace& place;
  std::int64_t batch;

  c10::IValue operator()(ir::None) const {
    const bool undefined_tensor = schema.type()->kind() == c10::TypeKind::TensorType;
    return undefined_tensor ? c10::IValue(at::Tensor()) : c10::IValue();
  }
  c10::IValue operator()(ir::ValueId) const { return {}; }
  c10::IValue operator()(const ir::Values&) const { return {}; }
  c10::IValue operator()(const ir::Affine& value) const { return number(value.at(batch), schema); }
  c10::IValue operator()(const ir::Quotient& value) const {
    return number(value.at(batch), schema);
  }
  c10::IValue operator()(double value) const { return number(value, schema); }
  c10::IValue operator()(std::complex<double> value) const {
    return number(c10::complex<double>(value), schema);
  }
  c10::IValue operator()(bool value) const { return number(value, schema); }
  c10::IValue operator()(const std::string& value) const { return value; }
  c10::IValue operator()(const std::vector<ir::Affine>& values) const {
    c10::List<std::int64_t> list;
    list.reserve(values.size());
    for (const ir::Affine& value : values) list.push_back(value.at(batch));
    return list;
  }
  c10::IValue operator()(const std::vector<double>& values) const {
    return list_of<double>(values);
  }
  c10::IValue operator()(const std::vector<bool>& values) const { return list_of<bool>(values); }
  c10::IValue operator()(ir::RankDevice) const { return place.device; }
  c10::IValue operator()(ir::HostDevice) const { return at::Device(at::kCPU); }
  c10::IValue operator()(ir::RankGenerator) const {
    return place.generator.defined() ? c10::IValue(place.generator) : c10::IValue();
  }
};

bool depends_on_batch(const ir::Argument& argument) {
  const auto varies = [](const ir::Affine& value) { return value.per_sample != 0; };
  if (const auto* value = std::get_if<ir::Affine>(&argument)) return varies(*value);
  if (const auto* value = std::get_if<ir::Quotient>(&argument)) {
    return varies(value->numerator) || varies(value->denominator);
  }
  if (const auto* values = std::get_if<std::vector<ir::Affine>>(&argument)) {
    return std::any_of(values->begin(), values->end(), varies);
  }
  return false;
}

void guard(const at::Tensor& value, bool expected, std::int64_t before) {
  if (value.item<bool>() != expected) throw OtherWay(static_cast<std::size_t>(before), !expected);
}

void integer_guard(const at::Tensor& value, std::int64_t expected, std::int64_t before) {
  const auto found = value.item<std::int64_t>();
  if (found != expected) throw OtherWay(static_cast<std::size_t>(before), found);
}

void size_guard(const at::Tensor& value, std::int64_t expected, std::int64_t before) {
  const at::IntArrayRef sizes = value.sizes();
  const std::int64_t found = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (found != expected) throw OtherWay(static_cast<std::size_t>(before), found);
}

at::Generator generator_of(at::Device device, const c10::optional<at::Generator>& own) {
  return own && own->defined() ? *own : at::globalContext().defaultGenerator(device);
}

at::Tensor generator_state(at::Device device, c10::optional<at::Generator> own) {
  at::Generator generator = generator_of(device, own);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

at::Tensor set_generator_state(at::Device device, c10::optional<at::Generator> own,
                               const at::Tensor& state) {
  at::Generator generator = generator_of(device, own);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

}  // namespace

// The ops of a graph that libtorch has not (ir/own_ops.h).
TORCH_LIBRARY(autodist, library) {
  library.def("guard(Tensor value, bool expected, int before) -> ()");
  library.def("integer_guard(Tensor value, int expected, int before) -> ()");
  library.def("size_guard(Tensor value, int expected, int before) -> ()");
  library.def("generator_state(Device device, Generator? generator) -> Tensor");
  library.def("set_generator_state(Device device, Generator? generator, Tensor state) -> Tensor");
}
TORCH_LIBRARY_IMPL(autodist, CompositeExplicitAutograd, library) {
  library.impl("guard", &guard);
  library.impl("integer_guard", &integer_guard);
  library.impl("size_guard", &size_guard);
  library.impl("generator_state", &generator_state);
  library.impl("set_generator_state", &set_generator_state);
}

c10::OperatorHandle find_operator(const ir::Op& op) {
  const auto found = c10::Dispatcher::singleton().findSchema({op.name, op.overload});
  if (!found) {
    fail(ErrorCode::kUsage, "graph: this libtorch ({}) has no operator {}. Capture again here.",
         TORCH_VERSION, ir::full_name(op));
  }
  return *found;
}

OpCall::OpCall(const ir::Graph& graph, const ir::Op& op, const ComputePlace& place,
               std::int64_t batch)
    : operator_(find_operator(op)), place_(place), prepared_(op.arguments.size()) {
  const auto& schema = operator_.schema();
  if (schema.arguments().size() != op.arguments.size() ||
      schema.returns().size() != op.results.size()) {
    fail(ErrorCode::kUsage,
         "graph: {} takes {} arguments in this libtorch ({}), {} in the graph. Capture again here.",
         op.name, schema.arguments().size(), TORCH_VERSION, op.arguments.size());
  }
  add_tensors(graph, op);
  bool takes_generator = false;
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    takes_generator |= std::holds_alternative<ir::RankGenerator>(op.arguments[i]);
    if (depends_on_batch(op.arguments[i])) {
      batch_arguments_.push_back({static_cast<std::uint32_t>(i), op.arguments[i]});
    } else {
      prepared_[i] = std::visit(Prepare{schema.arguments()[i], place_, 0}, op.arguments[i]);
    }
  }
  borrows_generator_ = op.random && !takes_generator && place_.generator.defined();
  set_batch(batch);
}

void OpCall::add_tensors(const ir::Graph& graph, const ir::Op& op) {
  const auto slot_of = [&](const std::optional<ir::ValueId>& value) -> std::int64_t {
    return value ? static_cast<std::int64_t>(graph.value(*value).slot.value) : -1;
  };
  const bool changes_handle = operator_.hasTag(at::Tag::inplace_view);
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    const auto position = static_cast<std::uint32_t>(i);
    if (const auto* value = std::get_if<ir::ValueId>(&op.arguments[i])) {
      tensors_.push_back({position, graph.value(*value).slot.value, changes_handle && i == 0});
    } else if (const auto* values = std::get_if<ir::Values>(&op.arguments[i])) {
      TensorListArgument list{
          position, wants_optional_elements(operator_.schema().arguments()[i]), {}};
      for (const auto& each : *values) list.slots.push_back(slot_of(each));
      lists_.push_back(std::move(list));
    }
  }
  for (const ir::Result& result : op.results) {
    auto& slots = results_.emplace_back();
    if (const auto* value = std::get_if<ir::ValueId>(&result)) {
      slots.push_back(slot_of(*value));
    } else if (const auto* values = std::get_if<ir::Values>(&result)) {
      for (const auto& each : *values) slots.push_back(slot_of(each));
    }
  }
}

void OpCall::set_batch(std::int64_t batch) {
  for (const BatchArgument& each : batch_arguments_) {
    const c10::Argument& schema = operator_.schema().arguments()[each.position];
    prepared_[each.position] = std::visit(Prepare{schema, place_, batch}, each.argument);
  }
}

void OpCall::run(std::vector<at::Tensor>& slots, torch::jit::Stack& stack) const {
  stack.assign(prepared_.begin(), prepared_.end());
  for (const TensorArgument& each : tensors_) {
    const at::Tensor& tensor = slots[each.slot];
    // The slot goes on standing for the view that it had.
    stack[each.position] = each.detach_metadata ? at::alias(tensor) : tensor;
  }
  for (const TensorListArgument& each : lists_) {
    if (each.optional_elements) {
      c10::List<c10::optional<at::Tensor>> list;
      list.reserve(each.slots.size());
      for (std::int64_t slot : each.slots) {
        list.push_back(slot < 0 ? c10::optional<at::Tensor>() : slots[slot]);
      }
      stack[each.position] = std::move(list);
    } else {
      c10::List<at::Tensor> list;
      list.reserve(each.slots.size());
      for (std::int64_t slot : each.slots) list.push_back(slot < 0 ? at::Tensor() : slots[slot]);
      stack[each.position] = std::move(list);
    }
  }
  if (borrows_generator_) {
    call_with_borrowed_generator(stack);
  } else {
    operator_.callBoxed(&stack);
  }
  take_results(slots, stack);
  stack.clear();
}

void OpCall::call_with_borrowed_generator(torch::jit::Stack& stack) const {
  const std::lock_guard<std::mutex> alone(default_generator_mutex);
  const LentGenerator lent(at::globalContext().defaultGenerator(place_.device), place_.generator);
  operator_.callBoxed(&stack);
}

void OpCall::take_results(std::vector<at::Tensor>& slots, torch::jit::Stack& stack) const {
  AD_CHECK(stack.size() == results_.size())
      << operator_.schema().name() << " returned " << stack.size() << " results";
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const std::vector<std::int64_t>& wanted = results_[i];
    if (stack[i].isTensor()) {
      if (!wanted.empty() && wanted[0] >= 0) slots[wanted[0]] = std::move(stack[i]).toTensor();
    } else if (stack[i].isTensorList()) {
      const c10::List<at::Tensor> list = std::move(stack[i]).toTensorList();
      AD_CHECK(list.size() == wanted.size())
          << operator_.schema().name() << " returned a list of " << list.size();
      for (std::size_t j = 0; j < wanted.size(); ++j) {
        if (wanted[j] >= 0) slots[wanted[j]] = list[j];
      }
    }
  }
}

}  // namespace autodist::capture
