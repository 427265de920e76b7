// The values of a model's tensors from files, by name: of a safetensors file, or of a checkpoint.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <functional>
#include <string>

#include "autodist/capture/training_step.h"
#include "autodist/exec/checkpoint.h"

namespace autodist::job {

// Told of what is passed over, a line each.
using Warn = std::function<void(const std::string& line)>;

// Values for the model from a safetensors file, by name; warns of names that only one side has.
// Throws Error(kCheckpoint) for a file that cannot be read, has no name in common with the model,
// or another shape of one.
void put_weights(const std::string& path, const TrainingStep& step, const Warn& warn);

// Parameters and buffers of the newest sound checkpoint of `directory`, by name, into the model's
// own. Warns of damaged newer ones. Throws Error(kCheckpoint).
exec::Checkpoint read_into(FileSystem& files, const TrainingStep& step,
                           const std::string& directory, const Warn& warn);

}  // namespace autodist::job
