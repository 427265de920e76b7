// A training step as a TorchScript file, which loads in any PyTorch of its version or later,
// without this program and without the model's code.
//
// Opt-in: includes torch through capture/training_step.h.

#pragma once

#include <string>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

// What a caller of the file may rely on; also in the file, as extra file "signatures.json".
struct ExportedSignatures {
  bool has_forward = false;  // the step has an `evaluate` function
  // The traced functions gave the model's own results for another number of samples, too; else they
  // are made for the example's.
  bool any_batch = true;
  std::string json;
};

// Writes a module with the model's parameters and buffers under their names, as they are now, and
//   forward(inputs…)    -> outputs: TrainingStep::evaluate, of those tensors of a batch that it
//                          reads (no labels, say); a tuple where there are several outputs
//   train_step(batch…)  -> loss: TrainingStep::loss, differentiable, for fine-tuning with
//                          torch.optim
// traced with the example by torch::jit::tracer. Then reads the file back, compares both with the
// model's own on other rows, and puts it in its place; until then what was at `path` stays.
// Throws Error(kUsage) where a function cannot be traced or the file computes something else
// (control flow that depends on the data is frozen by a trace), Error(kEnvironment) where it cannot
// be written.
ExportedSignatures export_torchscript(const TrainingStep& step, const std::string& path);

}  // namespace autodist::capture
