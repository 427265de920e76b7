#include "tests/device/kernels.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/device/queues.h"
#include "tests/device/test_device.h"

namespace autodist::test_device {
namespace {

using Stack = torch::jit::Stack;

bool is_here(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

const void* address(const at::Tensor& tensor) { return tensor.storage().data(); }

// The memory of a tensor as kernels see it, as a tensor of the CPU that does not hold it.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  }
  return at::from_blob(Queues::instance().for_kernels(tensor.data_ptr()), tensor.sizes(),
                       tensor.strides(), tensor.options().device(at::kCPU));
}

// A tensor of the same strides, with zeros for contents.
at::Tensor dummy_of(const at::Tensor& tensor) {
  const auto size = static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return at::zeros({std::max<std::int64_t>(size, 1)}, tensor.options().device(at::kCPU))
      .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

// What one argument of an op becomes for the CPU's kernel.
template <typename Convert>
c10::IValue converted(const c10::IValue& value, Convert convert) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return is_here(tensor) ? c10::IValue(convert(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(is_here(each) ? convert(each) : each);
    }
    return list;
  }
  if (value.isDevice()) return at::Device(at::kCPU);
  if (value.isList()) {
    const auto list = value.toList();
    if (list.elementType()->kind() != c10::TypeKind::OptionalType) return value;
    c10::List<c10::optional<at::Tensor>> optionals;
    for (const c10::IValue& each : value.toListRef()) {
      if (each.isNone()) {
        optionals.push_back(c10::nullopt);
      } else if (!each.isTensor()) {
        return value;
      } else {
        const at::Tensor& tensor = each.toTensor();
        optionals.push_back(is_here(tensor) ? convert(tensor) : tensor);
      }
    }
    return optionals;
  }
  return value;
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (is_here(value.toTensor())) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) for_each_tensor(each, visit);
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Which arguments a result is another handle of.
std::optional<std::size_t> aliased(const c10::FunctionSchema& schema, std::size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  if (alias == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

struct Output {
  bool defined = false;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type = at::kFloat;
};

Output output_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

// By result of the op; a list has several.
using Outputs = std::vector<std::vector<Output>>;

std::string torch_text(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string signature(const c10::OperatorHandle& op, const Stack& arguments) {
  std::ostringstream text;
  text << op.schema().name() << '.' << op.schema().overload_name();
  for (const c10::IValue& each : arguments) {
    text << ';';
    bool tensors = false;
    for_each_tensor(each, [&](const at::Tensor& tensor) {
      tensors = true;
      text << tensor.scalar_type() << tensor.sizes() << tensor.strides() << tensor.storage_offset()
           << ',';
    });
    const bool host = each.isTensor() && each.toTensor().defined();
    if (host && !tensors) text << each.toTensor().scalar_type() << each.toTensor().sizes();
    if (!each.isTensor() && !each.isGenerator()) text << (tensors ? "" : torch_text(each));
  }
  return text.str();
}

// What the CPU's kernel makes of these arguments, found by running it on zeros: once for arguments
// of one kind.
const Outputs& outputs_of(const c10::OperatorHandle& op, const Stack& arguments) {
  static std::mutex mutex;
  static std::map<std::string, Outputs> known;
  const std::string kind = signature(op, arguments);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = known.find(kind);
    if (found != known.end()) return found->second;
  }
  Stack stack;
  for (const c10::IValue& each : arguments) {
    // What is drawn for shapes alone is not the job's.
    stack.push_back(each.isGenerator() ? at::detail::createCPUGenerator()
                                       : converted(each, dummy_of));
  }
  op.callBoxed(&stack);
  Outputs outputs;
  for (const c10::IValue& each : stack) {
    std::vector<Output>& own = outputs.emplace_back();
    if (each.isTensor()) {
      own.push_back(output_of(each.toTensor()));
    } else if (each.isTensorList()) {
      for (const at::Tensor& tensor : each.toTensorVector()) own.push_back(output_of(tensor));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return known.emplace(kind, std::move(outputs)).first->second;
}

Touched touched_by(const c10::FunctionSchema& schema, const Stack& arguments) {
  Touched touched;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& list = is_written(schema.arguments()[i]) ? touched.writes : touched.reads;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.numel() != 0) list.push_back(address(tensor));
    });
  }
  return touched;
}

// The host's tensors may be written to before the op runs; numbers that Python wrapped are not.
c10::IValue kept(const c10::IValue& value) {
  if (!value.isTensor()) return value;
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined() || is_here(tensor)) return value;
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() ? value : c10::IValue(tensor.clone());
}

Stack taken_arguments(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  Stack arguments(std::make_move_iterator(stack->end() - static_cast<std::ptrdiff_t>(count)),
                  std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - count);
  return arguments;
}

// Sizes and strides change, and no memory is touched.
void view(const c10::OperatorHandle& op, Stack* stack) {
  const Stack arguments = taken_arguments(op, stack);
  const at::Tensor& self = arguments.front().toTensor();
  Stack call;
  for (const c10::IValue& each : arguments) call.push_back(converted(each, dummy_of));
  op.callBoxed(&call);
  for (const c10::IValue& each : call) {
    const at::Tensor& like = each.toTensor();
    at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), like.dtype());
    auto* implementation = result.unsafeGetTensorImpl();
    implementation->set_storage_offset(like.storage_offset());
    implementation->set_sizes_and_strides(like.sizes(), like.strides());
    stack->push_back(std::move(result));
  }
}

// Its results depend on what is in memory, so the host waits.
void blocking(const c10::OperatorHandle& op, Stack* stack) {
  const Stack arguments = taken_arguments(op, stack);
  const int queue = Queues::instance().current();
  Touched touched = touched_by(op.schema(), arguments);
  Queues::instance().hand_in(queue, op.schema().name(), touched, [] {});
  Queues::instance().drain(queue);
  Stack call;
  for (const c10::IValue& each : arguments) call.push_back(converted(each, on_cpu));
  op.callBoxed(&call);
  for (const c10::IValue& each : call) {
    if (!each.isTensor() || !each.toTensor().defined()) {
      stack->push_back(each);
      continue;
    }
    const at::Tensor& result = each.toTensor();
    at::Tensor here = empty_on_device(result.sizes(), result.strides(), result.scalar_type());
    if (here.numel() != 0) {
      Queues::instance().hand_in(queue, op.schema().name(), {{}, {address(here)}},
                                 [to = on_cpu(here), result] { to.copy_(result); });
    }
    stack->push_back(std::move(here));
  }
}

void later(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const Stack arguments = taken_arguments(op, stack);
  const Outputs& outputs = outputs_of(op, arguments);
  Touched touched = touched_by(schema, arguments);
  std::vector<std::vector<at::Tensor>> to(outputs.size());  // undefined: nothing to be copied
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const auto argument = aliased(schema, i)) {
      stack->push_back(arguments[*argument]);
      continue;
    }
    c10::List<at::Tensor> list;
    for (const Output& output : outputs[i]) {
      at::Tensor here;
      if (output.defined) here = empty_on_device(output.sizes, output.strides, output.type);
      const bool any = here.defined() && here.numel() != 0;
      if (any) touched.writes.push_back(address(here));
      to[i].push_back(any ? on_cpu(here) : at::Tensor());
      list.push_back(here);
    }
    const bool is_list = schema.returns()[i].type()->kind() == c10::TypeKind::ListType;
    stack->push_back(is_list ? c10::IValue(list) : c10::IValue(list.get(0)));
  }
  Stack call;
  for (const c10::IValue& each : arguments) call.push_back(converted(kept(each), on_cpu));
  Queues::instance().hand_in(
      Queues::instance().current(), op.schema().name(), touched, [op, arguments = call, to] {
        Stack call = arguments;  // a recording's ops run again
        op.callBoxed(&call);
        for (std::size_t i = 0; i < to.size(); ++i) {
          for (std::size_t j = 0; j < to[i].size(); ++j) {
            if (!to[i][j].defined()) continue;
            const at::Tensor result =
                call[i].isTensor() ? call[i].toTensor() : call[i].toTensorVector()[j];
            TORCH_CHECK(result.sizes() == to[i][j].sizes(), op.schema().name(), " gives ",
                        result.sizes(), ", on zeros ", to[i][j].sizes());
            at::Tensor here = to[i][j];
            here.copy_(result);
          }
        }
      });
}

// Between the device and the host, or on the device. Beside the host where the host's memory is
// pinned.
void copy(const c10::OperatorHandle& op, Stack* stack) {
  const Stack arguments = taken_arguments(op, stack);
  const at::Tensor& to = arguments[0].toTensor();
  const at::Tensor& from = arguments[1].toTensor();
  const bool non_blocking = arguments[2].toBool();
  stack->push_back(to);
  if (to.numel() == 0) return;
  Queues& queues = Queues::instance();
  const bool both_here = is_here(to) && is_here(from);
  const at::Tensor& on_host = is_here(to) ? from : to;
  const bool waits = !both_here && !(non_blocking && queues.is_pinned(on_host.data_ptr()));
  queues.hand_in(queues.current(), op.schema().name(), {{address(from)}, {address(to)}},
                 [to = on_cpu(to), from = on_cpu(from)] {
                   at::Tensor there = to;
                   there.copy_(from);
                 });
  if (waits) queues.drain(queues.current());
}

using Kernel = void (*)(const c10::OperatorHandle&, Stack*);

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), [](const auto& each) {
    const auto kind = each.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
  });
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& each) {
    return each.alias_info() != nullptr && !each.alias_info()->isWrite();
  });
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const auto& each) {
    return each.type()->repr_str().find("Tensor") != std::string::npos;
  });
}

// Sizes of their results depend on what is in memory.
bool depends_on_values(const std::string& name) {
  static const std::set<std::string> names{"aten::nonzero",
                                           "aten::masked_select",
                                           "aten::_unique2",
                                           "aten::unique_dim",
                                           "aten::unique_consecutive",
                                           "aten::repeat_interleave",
                                           "aten::bincount",
                                           "aten::_unique"};
  return names.count(name) != 0;
}

// An op that every device but this one has.
constexpr const char* kMissing = "aten::erfinv";

// Their composite kernels fit any device, and hand in what needs a kernel.
bool is_generic(const std::string& name) {
  static const std::set<std::string> names{"aten::clone",
                                           "aten::_to_copy",
                                           "aten::empty_like",
                                           "aten::new_empty",
                                           "aten::zeros_like",
                                           "aten::ones_like",
                                           "aten::full_like",
                                           "aten::new_empty_strided",
                                           "aten::new_zeros",
                                           "aten::new_ones",
                                           "aten::new_full",
                                           "aten::resize_",
                                           "aten::resize_as_",
                                           "aten::set_",
                                           "aten::item",
                                           "aten::is_pinned",
                                           "aten::_pin_memory",
                                           "aten::record_stream",
                                           "aten::lift",
                                           "aten::lift_fresh",
                                           "aten::contiguous",
                                           "aten::_copy_from",
                                           "aten::_copy_from_and_resize"};
  return names.count(name) != 0;
}

template <Kernel kKernel>
void add(torch::Library& library, const std::string& name) {
  library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<kKernel>());
}

}  // namespace

void register_kernels() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1,
                                __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    const bool cpu = op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    const bool composite =
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    const c10::FunctionSchema& schema = op->schema();
    const std::string full =
        name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (name.name == "aten::copy_") {
      add<&copy>(library, full);
    } else if ((!cpu && !composite) || !takes_tensors(schema) || is_generic(name.name) ||
               name.name == kMissing || op->hasTag(at::Tag::inplace_view)) {
      continue;
    } else if (is_view(schema)) {
      if (cpu) add<&view>(library, full);
    } else if (!returns_tensors(schema) || depends_on_values(name.name)) {
      add<&blocking>(library, full);
    } else {
      add<&later>(library, full);
    }
  }
}

}  // namespace autodist::test_device
