#include "autodist/capture/export.h"

#include <gtest/gtest.h>
#include <torch/script.h>

#include <cstdio>

#include "autodist/base/error.h"
#include "autodist/capture/testing/models.h"

namespace autodist::capture {
namespace {

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(1);
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    head->push_back(torch::nn::Linear(4 * 4 * 4, 8));
    head->push_back(torch::nn::Linear(8, 3));
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(conv(x))), 2).flatten(1);
    x = torch::dropout(torch::relu(head[0]->as<torch::nn::Linear>()->forward(x)), 0.5,
                       is_training());
    return head[1]->as<torch::nn::Linear>()->forward(x);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::ModuleList head;
};

Batch images(std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(count));
  return {torch::randn({count, 1, 8, 8}), torch::randint(0, 3, {count}, torch::kInt64)};
}

TrainingStep net_step(const std::shared_ptr<Net>& net) {
  TrainingStep step = make_training_step(
      "net", net,
      [](Net& model, const Batch& batch) {
        model.train();
        return torch::nn::functional::cross_entropy(model.forward(batch[0]), batch[1]);
      },
      images(6));
  step.evaluate = [net](const Batch& batch) {
    net->eval();
    return std::vector<torch::Tensor>{net->forward(batch[0])};
  };
  return step;
}

class Export : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_ = ::testing::TempDir() + "/export_test.pt";
};

TEST_F(Export, ForwardNeedsNoLabelsAndTakesAnyBatch) {
  const auto net = std::make_shared<Net>();
  const torch::Tensor mean = net->norm->running_mean.clone();
  const ExportedSignatures signatures = export_torchscript(net_step(net), path_);
  EXPECT_TRUE(signatures.has_forward);
  EXPECT_TRUE(signatures.any_batch);
  EXPECT_EQ(signatures.json,
            R"({"any_batch":true,"forward":[{"name":"x0","dtype":"f32","shape":[-1,1,8,8]}],)"
            R"("train_step":[{"name":"x0","dtype":"f32","shape":[-1,1,8,8]},)"
            R"({"name":"x1","dtype":"i64","shape":[-1]}]})");
  EXPECT_TRUE(net->norm->running_mean.equal(mean)) << "an export changes the model";

  torch::jit::Module file = torch::jit::load(path_);
  net->eval();
  const Batch other = images(11);
  EXPECT_TRUE(torch::allclose(file.forward({other[0]}).toTensor(), net->forward(other[0])));
  std::vector<std::string> names;
  for (const auto& each : file.named_parameters()) names.push_back(each.name);
  std::vector<std::string> own;
  for (const auto& each : net->named_parameters()) own.push_back(each.key());
  EXPECT_EQ(names, own);
}

TEST_F(Export, TrainStepFineTunesWithoutTheModelsCode) {
  const auto net = std::make_shared<Net>();
  export_torchscript(net_step(net), path_);
  torch::jit::Module file = torch::jit::load(path_);
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& each : file.parameters()) parameters.push_back(each);
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1));
  const Batch batch = images(6);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 100; ++step) {
    sgd.zero_grad();
    const torch::Tensor loss = file.get_method("train_step")({batch[0], batch[1]}).toTensor();
    loss.backward();
    sgd.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 2);
}

TEST_F(Export, SaysWhereTheBatchIsFixed) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(4, 2);
  const TrainingStep step =
      make_training_step("fixed", net,
                         [](torch::nn::LinearImpl& model, const Batch& batch) {
                           const std::int64_t rows = batch[0].size(0);
                           return model.forward(batch[0]).view({rows * 2}).mean();
                         },
                         {torch::randn({6, 4})});
  const ExportedSignatures signatures = export_torchscript(step, path_);
  EXPECT_FALSE(signatures.has_forward);
  EXPECT_FALSE(signatures.any_batch);
}

TEST_F(Export, RefusesWhatATraceFreezes) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(4, 2);
  const TrainingStep step =
      make_training_step("branch", net,
                         [](torch::nn::LinearImpl& model, const Batch& batch) {
                           const torch::Tensor y = model.forward(batch[0]);
                           return batch[0][0][0].item<double>() > 0 ? y.mean() : 2 * y.mean();
                         },
                         {torch::tensor({{1.0F, 0.F, 0.F, 0.F}, {-1.0F, 0.F, 0.F, 0.F}})});
  try {
    export_torchscript(step, path_);
    FAIL() << "nothing is thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("does not compute what the model does"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace autodist::capture
