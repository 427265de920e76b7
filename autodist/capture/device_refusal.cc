#include "autodist/capture/device_refusal.h"

#include <set>

#include "autodist/capture/op_call.h"

namespace autodist::capture {
namespace {

// One tensor under two names counts once.
Bytes strided_bytes(const std::vector<at::Tensor>& tensors) {
  Bytes bytes;
  std::set<const void*> counted;
  for (const at::Tensor& each : tensors) {
    const bool is_plain = each.defined() && each.layout() == at::kStrided;
    if (!is_plain || !counted.insert(each.unsafeGetTensorImpl()).second) continue;
    bytes += Bytes(static_cast<std::int64_t>(each.nbytes()));
  }
  return bytes;
}

std::vector<Taken> taken_by(const TrainingStep& step) {
  std::vector<at::Tensor> model;
  for (const auto* tensors : {&step.parameters, &step.buffers}) {
    for (const NamedTensor& each : *tensors) model.push_back(each.tensor);
  }
  return {{"Parameters and buffers", strided_bytes(model)},
          {"the example", strided_bytes(step.example)}};
}

std::string capture_on(const TrainingStep& step, at::Device device) {
  return fmt::format("capture: '{}': {}", step.name, device.str());
}

}  // namespace

std::string no_memory(const std::string& who, const std::string& where, const c10::Error& error,
                      const std::vector<Taken>& taken, const std::string& remedy) {
  std::string list;
  for (const Taken& each : taken) {
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", each.what,
                        list.empty() ? "take " : "", to_string(each.bytes));
  }
  return fmt::format(
      "{} has no memory left {}: {} {}; the rest is what the step keeps for its gradients, and "
      "other programs'. {}",
      who, where, first_line(error), list, remedy);
}

std::string no_kernel(const std::string& who, const std::string& where, const c10::Error& error) {
  return fmt::format(
      "{} has no kernel for what the step asks for {}: {} Replace the op in the model, or take "
      "--devices cpu.",
      who, where, first_line(error));
}

DeviceRefusal refusal_of(const TrainingStep& step, at::Device device, const std::string& where,
                         const c10::OutOfMemoryError& error) {
  return {ErrorCode::kInfeasible,
          no_memory(capture_on(step, device), where, error, taken_by(step),
                    "Capture with fewer rows in the example (what is captured serves any number), "
                    "take a device with more memory, or take --devices cpu.")};
}

DeviceRefusal refusal_of(const TrainingStep& step, at::Device device, const std::string& where,
                         const c10::NotImplementedError& error) {
  return {ErrorCode::kUsage, no_kernel(capture_on(step, device), where, error)};
}

}  // namespace autodist::capture
