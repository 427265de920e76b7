#include "autodist/exec/replay.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <set>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/ir/history.h"
#include "autodist/ir/own_ops.h"

namespace autodist::exec {
namespace {

constexpr std::uint32_t kForEver = 1U << 30;

std::uint64_t split_mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

// A generator of the rank's own, of the kind that its device wants; every step seeds it. None where
// nothing draws, for libtorch has none for some devices. Not a clone where there is another way:
// libtorch 1.13 never frees one.
at::Generator own_generator(const ir::Graph& graph, const torch::Device& device) {
  const bool draws =
      std::any_of(graph.ops.begin(), graph.ops.end(), [](const ir::Op& op) { return op.random; });
  if (!draws) return {};
  if (device.is_cpu()) return at::detail::createCPUGenerator();
  return at::globalContext().defaultGenerator(device).clone();
}

ReplayPart whole(const ir::Graph& graph) {
  ReplayPart part;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) part.ops.emplace_back(i);
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    if (graph.variables[i].gradient) part.variables.emplace_back(i);
  }
  return part;
}

// A tensor over the memory of `tensor`, which it does not keep alive.
torch::Tensor without_memory(const torch::Tensor& tensor) {
  if (tensor.is_sparse()) {
    return torch::_sparse_coo_tensor_unsafe(without_memory(tensor._indices()),
                                            without_memory(tensor._values()), tensor.sizes());
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

// Where launches would read what is bound.
std::vector<const void*> places_of(const capture::Bindings& bindings) {
  std::vector<const void*> places;
  for (const auto* tensors : {&bindings.variables, &bindings.buffers, &bindings.constants}) {
    for (const torch::Tensor& each : *tensors) {
      places.push_back(each.layout() == torch::kStrided ? each.data_ptr() : nullptr);
    }
  }
  return places;
}

}  // namespace

std::uint64_t step_seed(std::uint64_t job_seed, std::uint32_t rank, std::uint64_t step,
                        std::uint32_t micro_batch) {
  const std::uint64_t seed = split_mix(split_mix(job_seed + rank * 0x9e3779b97f4a7c15U) ^ step);
  return micro_batch == 0 ? seed : split_mix(seed + micro_batch);
}

Replay::Replay(std::shared_ptr<const ir::Graph> graph, capture::Bindings bindings,
               torch::Device device, const std::optional<ReplayPart>& part)
    : graph_(std::move(graph)),
      bindings_(std::move(bindings)),
      place_{device, own_generator(*graph_, device)},
      prepared_for_(graph_->example_batch),
      slots_(graph_->slot_count),
      holders_at_begin_(graph_->slot_count) {
  const ReplayPart own = part ? *part : whole(*graph_);
  steps_.resize(graph_->ops.size());
  for (const ir::OpId op : own.ops) {
    steps_[op.value].call.emplace(*graph_, graph_->op(op), place_, prepared_for_);
  }
  plan_slots(own);
  if (std::any_of(graph_->ops.begin(), graph_->ops.end(), ir::is_guard)) {
    find_undone();
  } else if (!part) {  // values of other stages lie where they happen to
    recordings_.recorder = make_recorder(device, place_.generator);
  }
}

void Replay::find_undone() {
  std::set<ir::StorageId> written;
  for (const ir::Op& op : graph_->ops) {
    for (const ir::StorageId each : ir::written_storages(*graph_, op)) written.insert(each);
  }
  const auto add = [&](ir::ValueId id) {
    const ir::Value& value = graph_->value(id);
    if (written.count(value.storage) != 0) undone_.push_back(value.slot.value);
  };
  for (const ir::Buffer& each : graph_->buffers) add(each.value);
  for (const ir::Input& each : graph_->inputs) add(each.value);
}

void Replay::plan_slots(const ReplayPart& part) {
  const auto slot_of = [&](ir::ValueId value) { return graph_->value(value).slot.value; };
  const auto keep = [&](const auto& named, const std::vector<torch::Tensor>& tensors) {
    for (std::size_t i = 0; i < named.size(); ++i) {
      slots_[slot_of(named[i].value)] = tensors[i];
      holders_at_begin_[slot_of(named[i].value)] = kForEver;
    }
  };
  keep(graph_->variables, bindings_.variables);
  keep(graph_->buffers, bindings_.buffers);
  keep(graph_->constants, bindings_.constants);

  constexpr std::size_t kUnused = ~std::size_t{0};
  std::vector<std::size_t> last_use(graph_->slot_count, kUnused);
  for (const ir::OpId op : part.ops) {
    const auto use = [&](ir::ValueId value) { last_use[slot_of(value)] = op.value; };
    ir::for_each_read(graph_->op(op), use);
    ir::for_each_result(graph_->op(op), use);
  }
  for (std::uint32_t slot = 0; slot < graph_->slot_count; ++slot) {
    if (holders_at_begin_[slot] == kForEver) continue;
    freed_at_end_.push_back(slot);
    if (last_use[slot] == kUnused) continue;
    ++holders_at_begin_[slot];
    steps_[last_use[slot]].last_uses.push_back(slot);
  }
  is_read_by_others_.resize(graph_->slot_count);
  const auto give = [&](ir::ValueId value) {
    ++holders_at_begin_[slot_of(value)];
    is_read_by_others_[slot_of(value)] = true;
  };
  for (const ir::VariableId each : part.variables) give(*graph_->variable(each).gradient);
  for (const ir::ValueId each : part.sent) give(each);
  for (const ir::ValueId each : graph_->outputs) give(each);
  holders_ = holders_at_begin_;
}

std::int64_t Replay::samples_of(const Batch& batch) const {
  return capture::samples_of(*graph_, batch);
}

bool Replay::fits(std::size_t index, const torch::Tensor& tensor, std::int64_t samples) const {
  const ir::TensorType& type = graph_->value(graph_->inputs[index].value).type;
  return tensor.sizes() == torch::IntArrayRef(ir::integers_at(type.sizes, samples)) &&
         dtype_of(tensor.scalar_type()) == type.dtype;
}

bool Replay::accepts(const Batch& batch) const {
  if (batch.size() != graph_->inputs.size()) return false;
  const std::int64_t samples = samples_of(batch);
  if (!graph_->batch_fixed_reason.empty() && samples != prepared_for_) return false;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!fits(i, batch[i], samples)) return false;
  }
  return true;
}

void Replay::check_input(std::size_t index, const torch::Tensor& tensor,
                         std::int64_t samples) const {
  if (fits(index, tensor, samples)) return;
  const ir::Input& input = graph_->inputs[index];
  const ir::TensorType& type = graph_->value(input.value).type;
  fail(ErrorCode::kUsage,
       "step: input '{}' is {} in the batch, graph '{}' expects {} [{}]. Give it that, or capture "
       "with an example like this batch.",
       input.name, autodist::describe(tensor), graph_->name, name_of(type.dtype),
       fmt::join(ir::integers_at(type.sizes, samples), ", "));
}

// Views of the input were recorded with the strides of the example; other ones are copied.
torch::Tensor Replay::as_recorded(std::size_t index, const torch::Tensor& tensor) const {
  const torch::Tensor here = tensor.detach().to(place_.device);
  const ir::TensorType& type = graph_->value(graph_->inputs[index].value).type;
  const std::vector<std::int64_t> strides = ir::integers_at(type.strides, prepared_for_);
  if (here.strides() == torch::IntArrayRef(strides)) return here;
  return torch::empty_strided(here.sizes(), strides, here.options()).copy_(here);
}

void Replay::begin(const Batch& batch, std::uint64_t seed, bool op_by_op) {
  if (batch.size() != graph_->inputs.size()) {
    fail(ErrorCode::kUsage,
         "step: the batch has {} tensors, graph '{}' has {} inputs. Give as many, in the order of "
         "the example.",
         batch.size(), graph_->name, graph_->inputs.size());
  }
  const std::int64_t samples = samples_of(batch);
  if (samples != prepared_for_) {
    if (!graph_->batch_fixed_reason.empty()) {
      fail(ErrorCode::kUsage,
           "step: graph '{}' holds for batches of {} samples only ({}), got {}. Give as many, or "
           "leave the last, smaller batch out.",
           graph_->name, prepared_for_, graph_->batch_fixed_reason, samples);
    }
    for (Step& step : steps_) {
      if (step.call) step.call->set_batch(samples);
    }
    prepared_for_ = samples;
    forget_recordings();
  }
  begin_recordings(op_by_op);
  holders_ = holders_at_begin_;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    check_input(i, batch[i], samples);
    torch::Tensor& slot = slots_[graph_->value(graph_->inputs[i].value).slot.value];
    slot = as_recorded(i, batch[i]);
    if (!recordings_.in_use) continue;
    if (recordings_.inputs.size() <= i) recordings_.inputs.push_back(torch::empty_like(slot));
    slot = recordings_.inputs[i].copy_(slot);
  }
  if (place_.generator.defined()) place_.generator.set_current_seed(seed);
  before_.clear();
  for (const std::uint32_t slot : undone_) before_.emplace_back(slots_[slot], slots_[slot].clone());
}

void Replay::forget_recordings() {
  const bool records = recordings_.recorder != nullptr;
  recordings_ = Recordings();
  if (records) recordings_.recorder = make_recorder(place_.device, place_.generator);
}

// The first step makes what kernels make once; it is not recorded.
void Replay::begin_recordings(bool op_by_op) {
  if (recordings_.recorder == nullptr) recordings_ = Recordings();
  if (recordings_.recorder != nullptr) {
    std::vector<const void*> places = places_of(bindings_);
    if (places != recordings_.places) forget_recordings();
    recordings_.places = std::move(places);
  }
  recordings_.in_use = recordings_.recorder != nullptr && !op_by_op && recordings_.steps > 0;
  ++recordings_.steps;
}

void Replay::run(const std::vector<ir::OpId>& ops) {
  if (recordings_.in_use) {
    const auto found = recordings_.by_first.find(ops.front());
    if (found != recordings_.by_first.end()) return launch(found->second, ops);
    if (recordings_.recorder != nullptr) return record(ops);
  }
  for (const ir::OpId op : ops) run(op);
}

void Replay::launch(const Recorded& recorded, const std::vector<ir::OpId>& ops) {
  recorded.recording->launch();
  for (const ir::OpId op : ops) {
    for (const std::uint32_t slot : steps_[op.value].last_uses) drop(slot);
  }
  for (const auto& [slot, tensor] : recorded.made) slots_[slot] = tensor;
}

void Replay::record(const std::vector<ir::OpId>& ops) {
  const std::vector<torch::Tensor> slots = slots_;
  const std::vector<std::uint32_t> holders = holders_;
  Recorded recorded;
  ir::OpId current = ops.front();
  recordings_.recorder->begin();
  try {
    for (const ir::OpId op : ops) run(current = op);
    if (const auto of_host = note_made(ops, recorded)) {
      unrecorded_ = fmt::format("{}: its result lies on the host", describe(*of_host));
    }
  } catch (const c10::Error& error) {
    unrecorded_ = fmt::format("{}: {}", describe(current), capture::first_line(error));
  }
  if (unrecorded_.empty()) {
    recorded.recording = recordings_.recorder->end();
    recorded.recording->launch();
    recordings_.by_first.emplace(ops.front(), std::move(recorded));
    return;
  }
  // What was being recorded has not run, so it runs op by op. Other recordings keep their memory:
  // their values are still read in this step.
  recordings_.recorder->abandon();
  recordings_.recorder.reset();
  slots_ = slots;
  holders_ = holders;
  for (const ir::OpId op : ops) run(op);
}

std::string Replay::describe(ir::OpId id) const {
  const ir::Op& op = graph_->op(id);
  return fmt::format("op {} ({} in '{}')", id, op.name, graph_->scopes[op.scope.value]);
}

std::optional<ir::OpId> Replay::note_made(const std::vector<ir::OpId>& ops, Recorded& recorded) {
  std::map<std::uint32_t, ir::OpId> slots;  // and the last op that makes something there
  for (const ir::OpId op : ops) {
    ir::for_each_result(graph_->op(op),
                        [&](ir::ValueId value) { slots[graph_->value(value).slot.value] = op; });
  }
  for (const auto& [slot, op] : slots) {
    const torch::Tensor& tensor = slots_[slot];
    if (!tensor.defined() || holders_at_begin_[slot] >= kForEver) continue;
    if (tensor.device() != place_.device) return op;
    recorded.made.emplace_back(slot, without_memory(tensor));
    if (is_read_by_others_[slot]) recordings_.kept.push_back(tensor);
  }
  return std::nullopt;
}

void Replay::abandon() {
  for (auto& [tensor, before] : before_) tensor.copy_(before);
  end();
}

// A later step may write memory that outlives this one while the value is still on its way.
torch::Tensor Replay::take(ir::ValueId id) {
  const ir::Value& value = graph_->value(id);
  torch::Tensor tensor = slots_[value.slot.value];
  drop(value.slot.value);
  const bool outlives = ir::exists_before_step(graph_->storages[value.storage.value]);
  return outlives ? tensor.clone() : tensor;
}

torch::Tensor Replay::take_gradient(ir::VariableId id) {
  const ir::Variable& variable = graph_->variable(id);
  AD_CHECK(variable.gradient) << variable.name << " has no gradient";
  AD_CHECK(tensor(*variable.gradient).defined()) << variable.name << " has no gradient yet";
  return take(*variable.gradient);
}

torch::Tensor Replay::take_sent(ir::ValueId value) {
  AD_CHECK(tensor(value).defined()) << "value " << value << " is not there to be sent";
  return take(value);
}

const torch::Tensor& Replay::output(std::size_t index) const {
  return slots_[graph_->value(graph_->outputs.at(index)).slot.value];
}

void Replay::end() {
  for (const std::uint32_t slot : freed_at_end_) slots_[slot].reset();
  before_.clear();
}

}  // namespace autodist::exec
