// From a step in Python to the library's.
//
// A room's own header: takes torch along.

#pragma once

#include <torch/torch.h>
// After torch's own: it brings the casters of tensors.
#include <torch/csrc/utils/pybind.h>

#include "autodist/app/python/bindings.h"
#include "autodist/capture/training_step.h"

namespace autodist::python {

// `step` has name, parameters and buffers (lists of (name, tensor)), returned (a function of the
// batch's tensors: the loss, and what else the step returns), outputs (the same in evaluation
// mode), example, input_names (or empty), batched (a list, or empty), host_changes (a function, to
// a sentence), trains (names, or empty) and sum (whether the loss is a sum), as _model.Step does.
// Both functions may be called and dropped without the interpreter's lock.
TrainingStep training_step(const py::object& step);

// The tensors of a Python sequence.
Batch batch_of(const py::sequence& tensors);

}  // namespace autodist::python
