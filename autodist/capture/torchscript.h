// A scripted or traced module in a file as a training step.

#pragma once

#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::capture {

// How outputs and the last tensor of a batch make the loss.
enum class ScriptLoss {
  kNone,          // the module returns the loss itself and takes the whole batch
  kCrossEntropy,  // outputs [samples, classes, …], targets are classes
  kMse,
};

// "none", "cross_entropy", "mse". Throws Error(kUsage) for another name.
ScriptLoss script_loss_from_name(const std::string& name);

// Reads a TorchScript file. With a loss, the module takes all tensors of the batch but the last,
// which holds the targets. Parameters and buffers keep the module's names. Evaluation returns the
// module's output. Throws Error(kUsage) where the file cannot be read as a module.
TrainingStep training_step_from_torchscript(const std::string& path, ScriptLoss loss,
                                            Batch example);

}  // namespace autodist::capture
