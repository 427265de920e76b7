// A device that is not there: libtorch's PrivateUse1, with memory that the host cannot touch,
// queues that are threads, and the CPU's kernels, run late. A wait that the engine forgets shows as
// a report, as a value that is not there yet, or as a fault.
//
// What it does not show: libtorch's own waits for other devices, real allocators, real speed.

#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::test_device {

// When queues run what they are handed: before an op, a pause of random length in some cases.
struct Schedule {
  std::uint64_t seed = 0;
  double pauses = 0.25;  // part of the ops
  std::chrono::microseconds longest{300};
  std::int64_t device_bytes = std::int64_t{1} << 33;  // that there are
  bool records = false;  // its queues can be recorded, where nothing is drawn
};

// The device begins anew: what was handed in is done, reports are forgotten. First of all it is
// made known to libtorch and to the engine. By one thread, between two jobs.
void begin(const Schedule& schedule);

torch::Device device();

// Parameters and buffers in place, and the example: as libtorch's set_data() moves a model to CUDA.
// With libtorch 2.x alone.
void move_to_device(TrainingStep& step);

// Kernels and copies of the calling thread go to a queue of its own while this lives.
class OwnQueue {
 public:
  OwnQueue();
  ~OwnQueue();
  OwnQueue(const OwnQueue&) = delete;
  OwnQueue& operator=(const OwnQueue&) = delete;

 private:
  c10::Stream before_;
};

// Accesses that nothing orders, each once, in words; and what kernels threw.
std::vector<std::string> reports();

struct Use {
  std::int64_t ops = 0;           // since begin()
  std::int64_t device_bytes = 0;  // now
  std::int64_t pinned_bytes = 0;
  std::int64_t launches = 0;  // of recordings, of all time
};
Use use();

}  // namespace autodist::test_device
