#include "autodist/models/catalogue.h"

#include <gtest/gtest.h>

#include "autodist/base/error.h"

namespace autodist::models {
namespace {

// Plain gradient descent with libtorch; returns the loss before every step.
std::vector<double> losses_of(const TrainingStep& step, int steps, double rate) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    for (const NamedTensor& each : step.parameters) each.tensor.mutable_grad() = torch::Tensor();
    const torch::Tensor loss = step.loss(step.example);
    loss.backward();
    losses.push_back(loss.item<double>());
    const torch::NoGradGuard no_grad;
    for (const NamedTensor& each : step.parameters) {
      each.tensor.detach().sub_(each.tensor.grad().to_dense() * rate);
    }
  }
  return losses;
}

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, LearnsItsSyntheticData) {
  const TrainingStep step = make_model(GetParam(), {});
  const std::vector<double> losses = losses_of(step, 20, 0.5);
  EXPECT_TRUE(std::isfinite(losses.back()));
  EXPECT_LT(losses.back(), 0.99 * losses.front());
}

TEST_P(EveryModel, RunsInDoublePrecisionAndEvaluates) {
  ModelOptions options;
  options.dtype = torch::kFloat64;
  options.batch = 3;
  const TrainingStep step = make_model(GetParam(), options);
  for (const NamedTensor& each : step.parameters) {
    EXPECT_EQ(each.tensor.scalar_type(), torch::kFloat64) << each.name;
  }
  EXPECT_EQ(step.loss(step.example).scalar_type(), torch::kFloat64);
  EXPECT_EQ(step.evaluate(step.example).front().size(0), 3);
}

TEST_P(EveryModel, IsTheSameForTheSameSeed) {
  ModelOptions options;
  options.seed = 5;
  const TrainingStep a = make_model(GetParam(), options);
  const TrainingStep b = make_model(GetParam(), options);
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(a.parameters[i].tensor.equal(b.parameters[i].tensor)) << a.parameters[i].name;
  }
  for (std::size_t i = 0; i < a.example.size(); ++i) {
    EXPECT_TRUE(a.example[i].equal(b.example[i]));
  }
}

std::vector<std::string> small_models() {
  std::vector<std::string> names;
  for (const ModelInfo& model : catalogue()) {
    if (model.small) names.push_back(model.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryModel, testing::ValuesIn(small_models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Catalogue, AMisspeltNameIsCorrected) {
  try {
    find_model("digit");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'digits'?"), std::string::npos);
  }
}

}  // namespace
}  // namespace autodist::models
