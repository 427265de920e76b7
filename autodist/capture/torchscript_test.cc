#include "autodist/capture/torchscript.h"

#include <gtest/gtest.h>
#include <torch/script.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "autodist/base/error.h"
#include "autodist/capture/testing/models.h"

namespace autodist::capture {
namespace {

// A scripted module with a branch, a loop, a buffer and dropout, saved and read back.
class TorchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(4);
    torch::jit::Module module("Scripted");
    module.register_parameter("weight", torch::randn({5, 6}, torch::requires_grad()), false);
    module.register_parameter("bias", torch::zeros({5}, torch::requires_grad()), false);
    module.register_buffer("seen", torch::zeros({1}));
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(R"(
      def forward(self, x):
        if self.training:
          self.seen.add_(1)
        for i in range(2):
          x = torch.relu(x) + x * 0.5
        x = torch.dropout(x, 0.25, self.training)
        return torch.linear(x, self.weight, self.bias)
    )");
    path_ = ::testing::TempDir() + "scripted.pt";
    module.save(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
};

TEST_F(TorchScript, IsCapturedAsAnyOtherStep) {
  const TrainingStep step = training_step_from_torchscript(
      path_, ScriptLoss::kCrossEntropy, {torch::randn({4, 6}), torch::randint(0, 5, {4})});
  ASSERT_EQ(step.parameters.size(), 2u);
  EXPECT_EQ(step.parameters[0].name, "weight");
  expect_replays_at_any_batch(step, 7);
  EXPECT_TRUE(capture_step(step).buffers[0].mutated);
}

TEST_F(TorchScript, TakesAnotherLoss) {
  const TrainingStep step = training_step_from_torchscript(
      path_, ScriptLoss::kMse, {torch::randn({4, 6}), torch::randn({4, 5})});
  expect_replays_at_any_batch(step, 7);
}

TEST_F(TorchScript, RefusesADamagedFile) {
  std::ifstream file(path_, std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(file)), {});
  const std::string broken = path_ + ".broken";
  int refused = 0;
  for (std::size_t at = 0; at < sound.size(); at += 31) {
    std::string bytes = sound;
    for (std::size_t i = at; i < std::min(at + 8, bytes.size()); ++i) bytes[i] ^= 0x55;
    std::ofstream(broken, std::ios::binary) << bytes;
    try {
      training_step_from_torchscript(broken, ScriptLoss::kMse,
                                     {torch::ones({4, 6}), torch::ones({4, 5})});
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
    }
  }
  std::filesystem::remove(broken);
  EXPECT_GT(refused, 10);
}

TEST_F(TorchScript, RefusesWhatIsNoModule) {
  EXPECT_THROW(training_step_from_torchscript(path_ + ".missing", ScriptLoss::kMse,
                                              {torch::ones({1}), torch::ones({1})}),
               Error);
  EXPECT_THROW(script_loss_from_name("hinge"), Error);
}

}  // namespace
}  // namespace autodist::capture
