// What is handed to a device's queue, kept instead of done, and then done as often as wanted by one
// call: a CUDA graph.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <memory>

namespace autodist::exec {

class Recording {
 public:
  virtual ~Recording() = default;
  // Hands it to the calling thread's queue, with the memory that it was recorded with.
  virtual void launch() = 0;
};

// By one thread.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // What this thread hands to the device from now on is kept. Memory for it comes from a pool of
  // this recorder's recordings: what is freed meanwhile is handed out again to later ones alone, so
  // they are launched in the order in which they were recorded. An op that cannot be recorded (one
  // that waits for the device) throws c10::Error.
  virtual void begin() = 0;
  virtual std::unique_ptr<Recording> end() = 0;
  // In the place of end(), after an error.
  virtual void abandon() = 0;
};

// Null where queues of this kind of device are not recorded, or not with such a generator, which
// what is recorded draws from (it may be undefined: nothing is drawn).
std::unique_ptr<Recorder> make_recorder(torch::Device device, const at::Generator& generator);

// Before the first Runner: how queues of this kind of device are recorded; null: not at all.
using MakeRecorder = std::unique_ptr<Recorder> (*)(torch::Device device,
                                                   const at::Generator& generator);
void set_recorder(torch::DeviceType kind, MakeRecorder make);

}  // namespace autodist::exec
