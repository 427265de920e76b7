// A user's Python function as a training step, and its capture.

#include "autodist/capture/capture.h"

#include "autodist/app/python/training_step.h"

namespace autodist::python {
namespace {

std::vector<NamedTensor> named_tensors(const py::object& pairs) {
  std::vector<NamedTensor> tensors;
  for (auto& [name, tensor] : pairs.cast<std::vector<std::pair<std::string, torch::Tensor>>>()) {
    tensors.push_back({name, tensor});
  }
  return tensors;
}

// Under the interpreter's lock.
py::object call(const Kept& function, const Batch& batch) {
  py::tuple arguments(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) arguments[i] = py::cast(batch[i]);
  try {
    return (*function)(*arguments);
  } catch (const py::error_already_set& error) {
    if (error.matches(PyExc_Exception)) throw;
    throw Interrupted(error);
  }
}

// Of a batch's tensors, one by one, to a list of tensors.
std::function<std::vector<torch::Tensor>(const Batch&)> function_of(py::object function) {
  return [kept = keep(std::move(function))](const Batch& batch) {
    const py::gil_scoped_acquire lock;
    return call(kept, batch).cast<std::vector<torch::Tensor>>();
  };
}

std::function<std::string()> text_function_of(py::object function) {
  return [kept = keep(std::move(function))] {
    const py::gil_scoped_acquire lock;
    return (*kept)().cast<std::string>();
  };
}

std::shared_ptr<ir::Graph> captured(const py::object& python_step, bool symbolic_batch,
                                    int cost_repetitions, std::uint64_t seed) {
  const TrainingStep step = training_step(python_step);
  capture::Options options;
  options.symbolic_batch = symbolic_batch;
  options.cost_repetitions = cost_repetitions;
  options.seed = seed;
  const py::gil_scoped_release unlocked;
  return std::make_shared<ir::Graph>(capture::capture_step(step, options));
}

}  // namespace

Batch batch_of(const py::sequence& tensors) {
  Batch batch;
  for (const py::handle each : tensors) batch.push_back(each.cast<torch::Tensor>());
  return batch;
}

TrainingStep training_step(const py::object& step) {
  TrainingStep result;
  result.name = step.attr("name").cast<std::string>();
  result.parameters = named_tensors(step.attr("parameters"));
  result.buffers = named_tensors(step.attr("buffers"));
  result.example = batch_of(step.attr("example"));
  result.batched = step.attr("batched").cast<std::vector<bool>>();
  result.trains = step.attr("trains").cast<std::vector<std::string>>();
  result.reduction = step.attr("sum").cast<bool>() ? LossReduction::kSum : LossReduction::kMean;
  result.input_names = step.attr("input_names").cast<std::vector<std::string>>();
  result.loss_and_more = function_of(step.attr("returned"));
  result.loss = [more = result.loss_and_more](const Batch& batch) { return more(batch).at(0); };
  result.evaluate = function_of(step.attr("outputs"));
  result.host_changes = text_function_of(step.attr("host_changes"));
  result.where = text_function_of(step.attr("where"));
  return result;
}

void bind_capture(py::module_& module) {
  module.def("capture", &captured, py::arg("step"), py::arg("symbolic_batch"),
             py::arg("cost_repetitions"), py::arg("seed"));
}

}  // namespace autodist::python
