// What a device has no memory or no kernel for, in words of the job: of a capture and of a step.

#pragma once

#include <string>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/units.h"
#include "autodist/capture/training_step.h"

namespace autodist::capture {

// Lack of a kernel (kUsage) refuses every batch; lack of memory (kInfeasible) those of as many rows
// and more.
class DeviceRefusal : public Error {
 public:
  using Error::Error;
  [[nodiscard]] bool lacks_memory() const { return code() == ErrorCode::kInfeasible; }
};

// What takes memory of a device.
struct Taken {
  std::string what;  // "parameters and buffers"
  Bytes bytes;
};

// One line. `who`: "step 3: cuda:0 of rank 1"; `where`: "at op 12 (aten::mm in 'head')". `taken`
// begins the sentence that follows the device's own, which is why its first word has a capital.
// `remedy`: a sentence.
std::string no_memory(const std::string& who, const std::string& where, const c10::Error& error,
                      const std::vector<Taken>& taken, const std::string& remedy);
std::string no_kernel(const std::string& who, const std::string& where, const c10::Error& error);

// Of a step that is captured, or that is moved to the device for its capture.
DeviceRefusal refusal_of(const TrainingStep& step, at::Device device, const std::string& where,
                         const c10::OutOfMemoryError& error);
DeviceRefusal refusal_of(const TrainingStep& step, at::Device device, const std::string& where,
                         const c10::NotImplementedError& error);

}  // namespace autodist::capture
