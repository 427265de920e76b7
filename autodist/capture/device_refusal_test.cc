// What a device lacks is said in words of the job, wherever in a capture it shows.

#include "autodist/capture/device_refusal.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>

#include "autodist/capture/capture.h"
#include "autodist/capture/module_scope.h"

namespace autodist::capture {
namespace {

// Has memory for so many rows.
std::int64_t most_rows = 0;

torch::Tensor greedy(const torch::Tensor& x) {
  TORCH_CHECK_WITH(OutOfMemoryError, x.size(0) <= most_rows, "No room for ", x.size(0), " rows.");
  return x.clone();
}

TORCH_LIBRARY(device_refusal_test, library) {
  library.def("greedy(Tensor x) -> Tensor");
  library.impl("greedy", torch::dispatch(c10::DispatchKey::CPU, &greedy));
}

torch::Tensor call_greedy(const torch::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("device_refusal_test::greedy", "")
                             .typed<torch::Tensor(const torch::Tensor&)>();
  return op.call(x);
}

// Eight rows of six numbers.
TrainingStep step_with(const std::function<torch::Tensor(const torch::Tensor&)>& function) {
  const torch::Tensor w = torch::full({6}, 0.25).set_requires_grad(true);
  TrainingStep step;
  step.name = "small";
  step.parameters = {{"w", w}, {"tied", w}};
  step.example = {torch::arange(48.F).view({8, 6})};
  step.loss = [w, function](const Batch& batch) { return (function(batch[0]) * w).mean(); };
  return step;
}

std::string refusal_of_capture(const TrainingStep& step) {
  try {
    capture_step(step);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInfeasible) << error.what();
    return error.what();
  }
  return "captured";
}

TEST(DeviceRefusals, SayWhatIsMissingAndWhatIsThere) {
  const c10::OutOfMemoryError memory({"f", "file.cc", 1}, "Tried to allocate 20 MiB.\nMore.");
  EXPECT_EQ(no_memory("step 3: cuda:0 of rank 1", "at op 7 (aten::mm in 'head')", memory,
                      {{"Parameters", Bytes(1 << 20)}, {"states", Bytes(2 << 20)}}, "Take less."),
            "step 3: cuda:0 of rank 1 has no memory left at op 7 (aten::mm in 'head'): Tried to "
            "allocate 20 MiB. Parameters take " +
                to_string(Bytes(1 << 20)) + ", states " + to_string(Bytes(2 << 20)) +
                "; the rest is what the step keeps for its gradients, and other programs'. Take "
                "less.");
  const TrainingStep step = step_with([](const torch::Tensor& x) { return x; });
  const c10::NotImplementedError kernel({"f", "file.cc", 1}, "Could not run 'aten::x'.\nMore.");
  const DeviceRefusal refusal =
      refusal_of(step, torch::Device("cuda:1"), "at op aten::x in layer.0", kernel);
  EXPECT_EQ(refusal.code(), ErrorCode::kUsage);
  EXPECT_STREQ(refusal.what(),
               "capture: 'small': cuda:1 has no kernel for what the step asks for at op aten::x in "
               "layer.0: Could not run 'aten::x'. Replace the op in the model, or take --devices "
               "cpu.");
}

// As a step does that runs with few rows and not with many, or the other way round.
TEST(DeviceRefusals, AreNotTakenForABatchThatTheStepRefuses) {
  const TrainingStep step = step_with([](const torch::Tensor& x) {
    const ModuleScope layer("encoder");
    return call_greedy(x);
  });
  for (const std::int64_t rows : {0, 2, 3, 7}) {
    most_rows = rows;
    const std::string refusal = refusal_of_capture(step);
    EXPECT_NE(refusal.find("capture: 'small': cpu has no memory left at op "
                           "device_refusal_test::greedy in encoder: No room for "),
              std::string::npos)
        << refusal;
    EXPECT_NE(refusal.find("Parameters and buffers take 24 B, the example 192 B;"),
              std::string::npos)
        << refusal;
  }
  most_rows = 8;
  EXPECT_EQ(refusal_of_capture(step), "captured");
}

// The sizes at which a small example is recorded beside its own have more rows than it.
TEST(DeviceRefusals, LeaveASmallExampleAtItsOwnSize) {
  TrainingStep step = step_with(call_greedy);
  const torch::Tensor eight = step.example[0];
  for (const std::int64_t rows : {1, 2, 3}) {
    step.example = {eight.narrow(0, 0, rows)};
    most_rows = rows;
    const std::string reason = capture_step(step).batch_fixed_reason;
    EXPECT_NE(reason.find("the step does not run with "), std::string::npos) << reason;
    EXPECT_NE(reason.find("No room for "), std::string::npos) << reason;
    most_rows = 4;
    EXPECT_EQ(capture_step(step).batch_fixed_reason, "");
    most_rows = 0;
    EXPECT_NE(refusal_of_capture(step).find("No room for "), std::string::npos);
  }
}

// As Python makes an exception of its own of it.
TEST(DeviceRefusals, PassThroughCodeThatThrowsSomethingElse) {
  most_rows = 0;
  const std::string refusal = refusal_of_capture(step_with([](const torch::Tensor& x) {
    try {
      return call_greedy(x);
    } catch (const c10::Error&) {
      throw std::runtime_error("something else");
    }
  }));
  EXPECT_NE(refusal.find("no memory left at op device_refusal_test::greedy"), std::string::npos)
      << refusal;
}

TEST(DeviceRefusals, AreNoneWhereTheStepGoesAnotherWay) {
  most_rows = 0;
  EXPECT_EQ(refusal_of_capture(step_with([](const torch::Tensor& x) {
              try {
                return call_greedy(x);
              } catch (const c10::Error&) {
                return x * 2;
              }
            })),
            "captured");
}

TEST(DeviceRefusals, NameRunsBesideTheRecording) {
  const std::string refusal = refusal_of_capture(step_with([](const torch::Tensor& x) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "No room.");
    return x;
  }));
  EXPECT_NE(refusal.find("has no memory left outside of recorded ops: No room."), std::string::npos)
      << refusal;
}

}  // namespace
}  // namespace autodist::capture
