#include "autodist/capture/subject.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/capture/bindings.h"
#include "autodist/capture/gradients_aside.h"
#include "autodist/capture/plain_ops.h"
#include "autodist/capture/tensor_type.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {
namespace {

bool has_generator(at::Device device) { return device.is_cpu() || device.is_cuda(); }

at::Tensor generator_state(at::Device device) {
  return at::globalContext().defaultGenerator(device).get_state();
}

void set_generator_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor select_rows(const at::Tensor& tensor, std::int64_t start, std::int64_t count) {
  const std::int64_t size = tensor.size(0);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back((start + i) % size);
  const at::Tensor index =
      torch::tensor(indices, at::TensorOptions().dtype(at::kLong)).to(tensor.device());
  at::Tensor rows = tensor.index_select(0, index);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t round = (start + i) / size;
    if (round == 0 || rows.dim() < 2) continue;
    const at::Tensor row = rows[i];
    row.copy_(row.flatten().roll(round).view_as(row));  // roll() makes another tensor
  }
  return rows.contiguous(tensor.suggest_memory_format());
}

const TrainingStep& checked(const TrainingStep& step, bool training) {
  if (training && !step.loss) {
    fail(ErrorCode::kUsage, "capture: '{}' has no loss. Give it one: a function of its batch.",
         step.name);
  }
  if (!training && !step.evaluate) {
    fail(ErrorCode::kUsage,
         "capture: '{}' has no evaluation function. Give it one, or do not evaluate.", step.name);
  }
  for (std::size_t i = 0; i < step.example.size(); ++i) {
    if (step.example[i].defined()) continue;
    fail(ErrorCode::kUsage,
         "capture: input {} of the example of '{}' is an undefined tensor; values expected.", i,
         step.name);
  }
  if (step.batched.empty()) return step;
  if (step.batched.size() != step.example.size()) {
    fail(ErrorCode::kUsage,
         "capture: '{}' says of {} inputs whether they are split, it has {}. Say it of each "
         "(batched).",
         step.name, step.batched.size(), step.example.size());
  }
  for (std::size_t i = 0; i < step.example.size(); ++i) {
    const at::Tensor& input = step.example[i];
    const std::int64_t rows = example_rows(step);
    if (!step.batched[i] || (input.dim() > 0 && input.size(0) == rows)) continue;
    fail(ErrorCode::kUsage,
         "capture: '{}' splits input {} of size [{}], the batch has {} rows. Give it as many, or "
         "say that it is not split (batched).",
         step.name, i, fmt::join(input.sizes(), ", "), rows);
  }
  return step;
}

// The parameter itself, or one of the module with this name.
bool is_of(const std::string& parameter, const std::string& name) {
  return parameter == name || parameter.rfind(name + ".", 0) == 0;
}

// Tensors that require a gradient and that the step only reads. A tied one is trained under any of
// its names.
std::vector<at::Tensor> untrained(const TrainingStep& step) {
  if (step.trains.empty()) return {};
  std::set<const void*> trained;
  for (const std::string& name : step.trains) {
    bool found = false;
    for (const NamedTensor& each : step.parameters) {
      if (!is_of(each.name, name)) continue;
      found = true;
      trained.insert(each.tensor.unsafeGetTensorImpl());
    }
    if (found) continue;
    std::vector<std::string> names;
    for (const NamedTensor& each : step.parameters) names.push_back(each.name);
    const std::string near = nearest(name, names);
    fail(ErrorCode::kUsage, "capture: '{}' trains '{}', which is no parameter and no module{}",
         step.name, name,
         near.empty() ? ". Name some of its own." : fmt::format("; did you mean '{}'?", near));
  }
  std::vector<at::Tensor> others;
  for (const NamedTensor& each : step.parameters) {
    const bool is_trained = trained.count(each.tensor.unsafeGetTensorImpl()) != 0;
    if (!is_trained && each.tensor.requires_grad()) others.push_back(each.tensor);
  }
  return others;
}

Outcome digests_of(const std::vector<NamedTensor>& tensors) {
  Outcome digests;
  for (const NamedTensor& each : tensors) digests.push_back(digest_of(each.tensor));
  return digests;
}

// Which are added as a recording adds them.
bool has_sparse_gradients(const ir::Graph& graph) {
  return std::any_of(graph.variables.begin(), graph.variables.end(),
                     [](const ir::Variable& each) { return each.sparse_gradient; });
}

}  // namespace

Outcome digests_of(const Values& values) {
  Outcome digests;
  for (const at::Tensor& each : values) digests.push_back(digest_of(each));
  return digests;
}

std::string name_of_value(const ir::Graph& graph, std::size_t index) {
  if (index == 0) return "the loss";
  if (index < graph.outputs.size()) return fmt::format("output {}", index);
  index -= graph.outputs.size();
  if (index < graph.variables.size()) {
    return fmt::format("the gradient of '{}'", graph.variables[index].name);
  }
  return fmt::format("buffer '{}'", graph.buffers.at(index - graph.variables.size()).name);
}

Subject::Subject(const TrainingStep& step, bool training, bool scaled_loss,
                 std::function<void()> look_around)
    : step_(checked(step, training)),
      training_(training),
      scaled_loss_(scaled_loss),
      look_around_(std::move(look_around)),
      device_(device_of(step)) {
  for (const NamedTensor& each : step_.buffers) buffers_.push_back(each.tensor.detach().clone());
  host_generator_ = generator_state(at::kCPU);
  if (!device_.is_cpu() && has_generator(device_)) device_generator_ = generator_state(device_);
  frozen_ = untrained(step);
  for (at::Tensor& each : frozen_) each.set_requires_grad(false);
}

Subject::~Subject() {
  for (at::Tensor& each : frozen_) each.set_requires_grad(true);
  restore_buffers();
  set_generator_state(at::kCPU, host_generator_);
  if (device_generator_.defined()) set_generator_state(device_, device_generator_);
}

std::int64_t Subject::example_rows() const { return autodist::example_rows(step_); }

Batch Subject::rows(std::int64_t start, std::int64_t count) const {
  Batch batch;
  for (std::size_t i = 0; i < step_.example.size(); ++i) {
    const at::Tensor input = step_.example[i].detach();
    batch.push_back(is_batched(step_, i) ? select_rows(input, start, count) : input.clone());
  }
  return batch;
}

void Subject::restore_buffers() const {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    at::Tensor tensor = step_.buffers[i].tensor;
    if (tensor.is_meta()) continue;
    if (tensor.sizes() != buffers_[i].sizes()) tensor.resize_(buffers_[i].sizes());
    tensor.copy_(buffers_[i]);
  }
}

void Subject::check_buffers() const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const NamedTensor& each = step_.buffers[i];
    if (each.tensor.sizes() == buffers_[i].sizes()) continue;
    fail(ErrorCode::kUsage,
         "capture: the step gives buffer '{}' another shape, [{}] in the place of [{}]. Let the "
         "model set it up before: call it once.",
         each.name, fmt::join(each.tensor.sizes(), ", "), fmt::join(buffers_[i].sizes(), ", "));
  }
}

void Subject::seed(std::uint64_t seed) const { at::manual_seed(seed); }

bool Subject::call_on_example(std::uint64_t seed_of_run) const {
  look_around();
  seed(seed_of_run);
  const PlainOps plain_ops;
  try {
    static_cast<void>(forward(rows(0, std::max<std::int64_t>(example_rows(), 1))));
    return true;
  } catch (const Error&) {  // as where Ctrl-C was pressed
    throw;
  } catch (const std::exception&) {  // its recording names the op
    return false;
  }
}

void Subject::set_up(std::uint64_t seed_of_run) {
  const Outcome before = digests_of(step_.buffers);
  const Outcome parameters = before.empty() ? Outcome() : digests_of(step_.parameters);
  const bool called = call_on_example(seed_of_run);
  const Outcome once = digests_of(step_.buffers);
  std::vector<std::size_t> changed;
  std::vector<at::Tensor> values(once.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    if (once[i] == before[i]) continue;
    changed.push_back(i);
    values[i] = step_.buffers[i].tensor.detach().clone();
  }
  restore_buffers();
  if (!called || changed.empty()) return;
  const auto keep = [&](std::size_t i) { buffers_[i] = values[i]; };
  // A graph cannot write parameters: such a call is not made again.
  if (digests_of(step_.parameters) != parameters) {
    for (const std::size_t i : changed) keep(i);
    return restore_buffers();
  }
  // What buffers alone say is said again when they are as they were. What is not, an attribute
  // knows to be there; others may follow from it, and are asked again when it is.
  for (int round = 0; round < 2 && !changed.empty(); ++round) {
    if (!call_on_example(seed_of_run)) break;
    const Outcome again = digests_of(step_.buffers);
    std::vector<std::size_t> unclear;
    for (const std::size_t i : changed) {
      if (again[i] == once[i]) continue;
      if (round == 0 && again[i] != before[i]) {
        unclear.push_back(i);
      } else {
        keep(i);
      }
    }
    restore_buffers();
    changed = std::move(unclear);
  }
  restore_buffers();
}

Recording Subject::record(const Batch& batch, std::uint64_t seed_of_run, bool check_writes) const {
  restore_buffers();
  seed(seed_of_run);
  RecordOptions options;
  options.device = device_;
  options.check_writes = check_writes;
  options.scaled_loss = scaled_loss_;
  options.look_around = look_around_;
  options.booleans = answers_;
  options.traits = traits_;
  Recording recording =
      training_ ? record_training(step_, batch, options) : record_evaluation(step_, batch, options);
  check_buffers();
  return recording;
}

std::vector<at::Tensor> Subject::forward(const Batch& batch) const {
  const at::AutoGradMode gradients(training_);
  if (!training_) return evaluated_by(step_, batch);
  return returned_by(step_, scaled_loss_ ? without_scale(batch) : batch);
}

std::vector<bool> Subject::booleans_of_example(std::uint64_t seed_of_run) const {
  restore_buffers();
  seed(seed_of_run);
  const GradientsAside aside(step_);
  const PlainOps plain_ops;
  const AnsweredBooleans booleans(answers_);
  const Batch batch = rows(0, std::max<std::int64_t>(example_rows(), 1));
  backward(forward(batch), batch);
  return booleans.read();
}

void Subject::backward(std::vector<at::Tensor> returned, const Batch& batch) const {
  if (!training_) return;
  const at::AutoGradMode gradients(true);
  at::Tensor loss = returned.front();
  if (scaled_loss_) loss = loss * batch.back();
  returned.clear();
  loss.backward();
}

Values Subject::run(const ir::Graph& graph, const Batch& batch, std::uint64_t seed_of_run) const {
  restore_buffers();
  seed(seed_of_run);
  const GradientsAside aside(step_);
  const PlainOps plain_ops;
  std::optional<AnsweredBooleans> booleans;
  const std::vector<bool> answers = ir::booleans_of(graph);
  if (!answers.empty() || has_sparse_gradients(graph)) booleans.emplace(answers);
  std::vector<at::Tensor> returned = forward(batch);
  Values values;
  for (const at::Tensor& output : returned) values.push_back(output.detach());
  if (booleans) booleans->enter_backward();
  backward(std::move(returned), batch);
  for (const at::Tensor& variable : bindings(graph, {}).variables) {
    values.push_back(variable.grad());
  }
  for (const NamedTensor& each : step_.buffers) values.push_back(each.tensor);
  return values;
}

Bindings Subject::bindings(const ir::Graph& graph, std::vector<at::Tensor> constants) const {
  Bindings result;
  for (const ir::Variable& variable : graph.variables) {
    for (const NamedTensor& each : step_.parameters) {
      if (each.name != variable.name) continue;
      result.variables.push_back(each.tensor);
      break;
    }
  }
  AD_CHECK(result.variables.size() == graph.variables.size()) << "a variable is not a parameter";
  for (const NamedTensor& each : step_.buffers) result.buffers.push_back(each.tensor);
  for (const at::Tensor& each : constants) result.constants.push_back(each.detach());
  result.of_user = std::move(constants);
  return result;
}

}  // namespace autodist::capture
