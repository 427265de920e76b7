#include "autodist/capture/recorder.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>
#include <torch/version.h>

#include <map>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/compact.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/capture/gradients_aside.h"
#include "autodist/capture/op_recorder.h"
#include "autodist/capture/op_traits.h"
#include "autodist/capture/plain_ops.h"
#include "autodist/capture/tensor_type.h"
#include "autodist/capture/torch_version.h"
#include "autodist/ir/history.h"
#include "autodist/ir/loss_scaling.h"

namespace autodist::capture {

// The Booleans that the host reads: those that it is told, then what the tensors hold.
struct HostBooleans {
  explicit HostBooleans(std::vector<bool> answers) : answers(std::move(answers)) {}

  // On top of the stack is the next one.
  bool answer(torch::jit::Stack& stack) {
    const bool held = stack.back().toScalar().toBool();
    read.push_back(read.size() < answers.size() ? answers[read.size()] : held);
    stack.back() = c10::IValue(read.back());
    return read.back();
  }

  std::vector<bool> answers;
  std::vector<bool> read;
};

namespace {

struct RecorderState : c10::DebugInfoBase {
  // A step that is not recorded.
  explicit RecorderState(std::vector<bool> answers) : booleans(std::move(answers)) {}
  RecorderState(const RecordOptions& options, const TrainingStep& step)
      : ops(std::in_place, options, step.where),
        look_around(options.look_around),
        step(&step),
        device(options.device),
        booleans(options.booleans) {}

  std::optional<OpRecorder> ops;
  std::function<void()> look_around;
  const TrainingStep* step = nullptr;
  at::Device device = at::kCPU;
  HostBooleans booleans;
  bool in_backward = false;
  std::exception_ptr refusal;  // the first; autograd's engine may wrap what passes through it
  // Of the last op, where the device lacks something for it. Code of another language, which the
  // exception passes through, makes one of its own of it.
  std::exception_ptr lack;
};

RecorderState* recorder_of_this_thread() {
  return static_cast<RecorderState*>(c10::ThreadLocalDebugInfo::get(recorder_kind()));
}

// " At model.py:12", behind a message; empty where that is not known. A backward pass is run by no
// line of the user's.
std::string place_of(const RecorderState& recorder) {
  if (!recorder.step->where || !recorder.ops->in_forward()) return "";
  const std::string place = recorder.step->where();
  return place.empty() ? "" : " At " + place;
}

// One of a class of its own is caught by that class: what a signal raised, say.
std::exception_ptr with_its_place(const Error& refusal, const RecorderState& recorder) {
  const std::string place = place_of(recorder);
  if (place.empty() || typeid(refusal) != typeid(Error)) return std::current_exception();
  return std::make_exception_ptr(Error(refusal.code(), refusal.what() + place));
}

void run_kernel(RecorderState& recorder, const OpRecorder::Pending& pending,
                const c10::OperatorHandle& op, c10::DispatchKeySet below,
                torch::jit::Stack* stack) {
  const auto note = [&](const auto& error) {
    const std::string where = "at op " + recorder.ops->describe(pending.op);
    const DeviceRefusal refusal = refusal_of(*recorder.step, recorder.device, where, error);
    recorder.lack =
        std::make_exception_ptr(DeviceRefusal(refusal.code(), refusal.what() + place_of(recorder)));
  };
  try {
    op.redispatchBoxed(below, stack);
  } catch (const c10::OutOfMemoryError& error) {
    note(error);
    throw;
  } catch (const c10::NotImplementedError& error) {
    if (!recorder.device.is_cpu() && !recorder.device.is_meta()) note(error);
    throw;
  }
}

// Marks a stretch of a profile, as torch.profiler.record_function does: no part of a step.
bool is_of_profiler(const c10::OperatorHandle& op) {
  return op.schema().name().rfind("profiler::", 0) == 0;
}

// Asked for its counts, it runs no op.
const at::SparseTensorImpl& sparse(const at::Tensor& tensor) {
  return *static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

// A sum of two sparse gradients, as of a table that is looked up twice. libtorch merges entries
// with equal indices where these happen to meet, so that the size of the sum follows from data.
bool adds_sparse_gradients(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto is_of_kind = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_sparse();
  };
  const auto& name = op.operator_name();
  if (name.name != "aten::add" || name.overload_name != "Tensor") return false;
  const c10::IValue* const arguments = &*stack.end() - 3;  // two tensors, and a factor
  if (!is_of_kind(arguments[0]) || !is_of_kind(arguments[1])) return false;
  const at::Tensor& a = arguments[0].toTensor();
  const at::Tensor& b = arguments[1].toTensor();
  // Gradients of one row each are coalesced, too; other sums of coalesced tensors are the user's.
  const bool are_coalesced = sparse(a).coalesced() && sparse(b).coalesced();
  const bool have_one_row = sparse(a).nnz() == 1 && sparse(b).nnz() == 1;
  return (!are_coalesced || have_one_row) && sparse(a).sparse_dim() == sparse(b).sparse_dim() &&
         a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         arguments[2].toScalar().equal(1);
}

// The same sum: the entries of both.
void add_sparse_gradients(torch::jit::Stack& stack) {
  const at::Tensor a = torch::jit::peek(stack, 0, 3).toTensor();
  const at::Tensor b = torch::jit::peek(stack, 1, 3).toTensor();
  torch::jit::drop(stack, 3);
  torch::jit::push(
      stack, at::_sparse_coo_tensor_unsafe(at::cat({a._indices(), b._indices()}, 1),
                                           at::cat({a._values(), b._values()}, 0), a.sizes()));
}

void record_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  RecorderState* recorder = recorder_of_this_thread();
  if (recorder != nullptr && recorder->in_backward && adds_sparse_gradients(op, *stack)) {
    return add_sparse_gradients(*stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard nested_calls_are_part_of_this_one(kCaptureKey);
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kCaptureKey);
  if (recorder == nullptr || is_of_profiler(op)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const bool reads = reads_boolean(op, &*stack->end() - op.schema().arguments().size());
  if (!recorder->ops) {
    op.redispatchBoxed(below, stack);
    if (reads) recorder->booleans.answer(*stack);
    return;
  }
  try {
    recorder->lack = nullptr;
    if (recorder->look_around) recorder->look_around();
    OpRecorder& ops = *recorder->ops;
    OpRecorder::Pending pending = ops.begin(op, *stack);
    run_kernel(*recorder, pending, op, below, stack);
    if (reads && ops.can_guard(pending.op)) {
      ops.end_guard(std::move(pending), recorder->booleans.answer(*stack));
    } else if (pending.reads_integer) {
      ops.end_integer_guard(std::move(pending), stack->back().toScalar().toLong());
    } else {
      ops.end(op, std::move(pending), *stack);
    }
  } catch (const Error& error) {
    if (!recorder->refusal) recorder->refusal = with_its_place(error, *recorder);
    throw;
  }
}

struct OuterNode : at::ObserverContext {
  explicit OuterNode(std::int64_t node) : node(node) {}
  std::int64_t node;
};

std::unique_ptr<at::ObserverContext> enter_node(const at::RecordFunction& function) {
  RecorderState* recorder = recorder_of_this_thread();
  if (recorder == nullptr || !recorder->ops) return nullptr;
  auto outer = std::make_unique<OuterNode>(recorder->ops->node());
  recorder->ops->enter_node(function.seqNr());
  return outer;
}

void leave_node(const at::RecordFunction&, at::ObserverContext* outer) {
  RecorderState* recorder = recorder_of_this_thread();
  if (recorder == nullptr || outer == nullptr) return;
  recorder->ops->enter_node(static_cast<OuterNode*>(outer)->node);
}

// Switches recording on for this thread and for the autograd threads that work for it.
class Recorded {
 public:
  explicit Recorded(std::shared_ptr<RecorderState> recorder)
      : state_(recorder_kind(), std::move(recorder)),
        node_callback_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(enter_node, leave_node)
                                           .scopes({at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~Recorded() { at::removeCallback(node_callback_); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  c10::DebugInfoGuard state_;
  c10::impl::IncludeDispatchKeyGuard key_{kCaptureKey};
  at::CallbackHandle node_callback_;
  PlainOps plain_ops_;
};

void declare_parameters(OpRecorder& ops, const TrainingStep& step) {
  ir::Graph& graph = ops.graph();
  std::map<ir::ValueId, std::size_t> seen;
  for (const NamedTensor& each : step.parameters) {
    if (!each.tensor.requires_grad()) {
      const ir::ValueId value = ops.declare(each.tensor, ir::StorageKind::kConstant, each.name);
      graph.constants.push_back({each.name, value, digest_of(each.tensor), ""});
      ops.constants().push_back(each.tensor);
      continue;
    }
    const ir::ValueId value = ops.declare(each.tensor, ir::StorageKind::kVariable, each.name);
    const auto [variable, first] = seen.try_emplace(value, graph.variables.size());
    if (first) {
      graph.variables.push_back({});
      graph.variables.back().name = each.name;
      graph.variables.back().value = value;
    } else {
      graph.variables[variable->second].aliases.push_back(each.name);
    }
  }
}

void declare_all(OpRecorder& ops, const TrainingStep& step, const Batch& batch, bool scaled_loss) {
  ir::Graph& graph = ops.graph();
  graph.name = step.name;
  graph.libtorch_version = TORCH_VERSION;
  graph.reduction =
      step.reduction == LossReduction::kSum ? ir::Reduction::kSum : ir::Reduction::kMean;
  declare_parameters(ops, step);
  for (const NamedTensor& each : step.buffers) {
    graph.buffers.push_back(
        {each.name, ops.declare(each.tensor, ir::StorageKind::kBuffer, each.name), false});
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const bool is_scale = scaled_loss && i + 1 == batch.size();
    const std::string name = is_scale                   ? ir::kLossScaleInput
                             : step.input_names.empty() ? fmt::format("input{}", i)
                                                        : step.input_names.at(i);
    graph.inputs.push_back(
        {name, ops.declare(batch[i], ir::StorageKind::kInput, name), is_batched(step, i)});
    if (is_batched(step, i)) graph.example_batch = batch[i].size(0);
  }
}

void note_output(OpRecorder& ops, const at::Tensor& output) {
  const auto value = ops.find(output);
  if (!value) {
    fail(ErrorCode::kUsage,
         "capture: '{}' returns a tensor that no op of the step made. Return what it computes from "
         "its batch or its parameters.",
         ops.graph().name);
  }
  ops.graph().outputs.push_back(*value);
}

// What a step returns beside its loss. Its owner may write a variable while the step still runs:
// one that is returned is copied by an op of the step.
void note_more(OpRecorder& ops, const std::vector<at::Tensor>& returned) {
  const ir::Graph& graph = ops.graph();
  for (std::size_t i = 1; i < returned.size(); ++i) {
    const auto value = ops.find(returned[i]);
    const bool is_variable = value && graph.storages[graph.value(*value).storage.value].kind ==
                                          ir::StorageKind::kVariable;
    note_output(ops, is_variable ? returned[i].clone() : returned[i]);
  }
}

void note_gradients(OpRecorder& ops, const TrainingStep& step) {
  for (ir::Variable& variable : ops.graph().variables) {
    for (const NamedTensor& each : step.parameters) {
      if (each.name != variable.name || !each.tensor.grad().defined()) continue;
      variable.gradient = ops.find(each.tensor.grad());
      variable.sparse_gradient = each.tensor.grad().is_sparse();
      if (!variable.gradient) {
        fail(ErrorCode::kUsage,
             "capture: the gradient of '{}' is made outside of libtorch's ops. Write it with them, "
             "in an autograd function, too.",
             variable.name);
      }
    }
  }
}

void run_training(RecorderState& recorder, const TrainingStep& step, const Batch& batch,
                  bool scaled_loss) {
  const at::AutoGradMode gradients(true);
  const std::vector<at::Tensor> returned =
      returned_by(step, scaled_loss ? without_scale(batch) : batch);
  at::Tensor loss = returned.empty() ? at::Tensor() : returned.front();
  if (!loss.defined() || loss.numel() != 1) {
    fail(ErrorCode::kUsage,
         "capture: the loss of '{}' is not a scalar. Return one number: its mean() or sum(), say.",
         step.name);
  }
  if (!loss.requires_grad()) {
    fail(ErrorCode::kUsage,
         "capture: the loss of '{}' depends on no parameter that requires a gradient. Let some "
         "require one (requires_grad_(true)), and compute the loss without detach() or no_grad.",
         step.name);
  }
  note_output(*recorder.ops, loss);
  note_more(*recorder.ops, returned);
  if (scaled_loss) loss = loss * batch.back();
  recorder.ops->enter_backward();
  recorder.in_backward = true;
  loss.backward();
}

template <typename Run>
Recording record(const TrainingStep& step, const Batch& batch, const RecordOptions& options,
                 Run run) {
  auto recorder = std::make_shared<RecorderState>(options, step);
  OpRecorder& ops = *recorder->ops;
  declare_all(ops, step, batch, options.scaled_loss);
  const GradientsAside aside(step);
  try {
    const Recorded recorded(recorder);
    run(*recorder);
  } catch (...) {
    if (recorder->refusal) std::rethrow_exception(recorder->refusal);
    if (recorder->lack) std::rethrow_exception(recorder->lack);
    throw;
  }
  // A step may catch what it is told (Python code does), and go on without the op.
  if (recorder->refusal) std::rethrow_exception(recorder->refusal);
  ops.check_gradients_of_others();
  note_gradients(ops, step);
  Recording result{std::move(ops.graph()), std::move(ops.constants())};
  compact(result.graph);
  ir::analyse(result.graph);
  return result;
}

}  // namespace

class AnsweredBooleans::Impl {
 public:
  explicit Impl(const std::shared_ptr<RecorderState>& state)
      : booleans(state->booleans),
        in_backward(state->in_backward),
        state_(recorder_kind(), state) {}

  const HostBooleans& booleans;
  bool& in_backward;

 private:
  c10::DebugInfoGuard state_;
  c10::impl::IncludeDispatchKeyGuard key_{kCaptureKey};
};

AnsweredBooleans::AnsweredBooleans(std::vector<bool> answers)
    : impl_(std::make_unique<Impl>(std::make_shared<RecorderState>(std::move(answers)))) {}
AnsweredBooleans::~AnsweredBooleans() = default;
const std::vector<bool>& AnsweredBooleans::read() const { return impl_->booleans.read; }
void AnsweredBooleans::enter_backward() { impl_->in_backward = true; }

Batch without_scale(const Batch& batch) { return {batch.begin(), batch.end() - 1}; }

Recording record_training(const TrainingStep& step, const Batch& batch,
                          const RecordOptions& options) {
  return record(step, batch, options, [&](RecorderState& recorder) {
    run_training(recorder, step, batch, options.scaled_loss);
  });
}

Recording record_evaluation(const TrainingStep& step, const Batch& batch,
                            const RecordOptions& options) {
  return record(step, batch, options, [&](RecorderState& recorder) {
    const at::NoGradGuard no_gradients;
    for (const at::Tensor& output : evaluated_by(step, batch)) note_output(*recorder.ops, output);
  });
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record_op>());
}

}  // namespace autodist::capture
