// What the device lacks for a step that is captured there, with libtorch 2.x alone: a capture on it
// needs more of libtorch than 1.13 has.

#include <gtest/gtest.h>
#include <torch/version.h>

#include <string>

#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/module_scope.h"
#include "tests/device/test_device.h"
#include "tests/reference.h"

namespace autodist::test_device {
namespace {

#if TORCH_VERSION_MAJOR >= 2
std::string refusal_of_capture(const TrainingStep& step, ErrorCode code) {
  try {
    capture::capture(step, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "captured";
}

TEST(RefusalsOfCapture, NameTheOpThatMemoryIsMissingForAndWhatHoldsIt) {
  begin({1, 0});
  TrainingStep step = testing_jobs::make_step("gpt-small", 16);
  move_to_device(step);
  std::int64_t parameters = 0;
  for (const NamedTensor& each : step.parameters) {
    parameters += static_cast<std::int64_t>(each.tensor.nbytes());
  }
  begin({1, 0, {}, use().device_bytes + parameters});  // the gradients alone take as much
  const std::string refusal = refusal_of_capture(step, ErrorCode::kInfeasible);
  begin({1, 0});
  EXPECT_NE(refusal.find(" has no memory left at op aten::"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("the test device has no "), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("Parameters and buffers take "), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find("does not run with"), std::string::npos) << refusal;
}

TEST(RefusalsOfCapture, NameAnOpWithoutAKernelAndItsModule) {
  begin({1, 0});
  TrainingStep step;
  step.name = "erf";
  step.parameters = {{"w", torch::full({4}, 0.25).set_requires_grad(true)}};
  step.example = {torch::ones({8, 4})};
  move_to_device(step);
  step.loss = [w = step.parameters.front().tensor](const Batch& batch) {
    const capture::ModuleScope layer("encoder.layer.0");
    return (w * batch[0]).erfinv().mean();
  };
  const std::string refusal = refusal_of_capture(step, ErrorCode::kUsage);
  EXPECT_NE(refusal.find(" has no kernel for what the step asks for at op aten::erfinv in "
                         "encoder.layer.0: "),
            std::string::npos)
      << refusal;
}
#endif

}  // namespace
}  // namespace autodist::test_device
