// Steps that a replay would get wrong: each must be refused, by name.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/capture/testing/models.h"

namespace autodist::capture {
namespace {

using LossFunction = std::function<at::Tensor(torch::nn::LinearImpl&, const Batch&)>;

TrainingStep linear_step(const LossFunction& loss, std::int64_t batch = 4) {
  torch::manual_seed(5);
  return make_training_step("linear", std::make_shared<torch::nn::LinearImpl>(6, 3), loss,
                            {torch::randn({batch, 6}), torch::randn({batch, 3})});
}

void expect_refused(const TrainingStep& step, const std::string& expected) {
  try {
    capture_step(step);
    FAIL() << "captured; expected a refusal with '" << expected << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
}

TEST(Refusals, ANumberReadFromDataThatSteersTheStep) {
  const auto loss = [](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    return y.mean().item<float>() > 0 ? y.pow(2).mean() : y.abs().mean();
  };
  expect_refused(linear_step(loss), "aten::_local_scalar_dense");
  expect_refused(linear_step(loss), "without item(), or return it from the step");
}

TEST(Refusals, AGeneratorOfTheStepsOwn) {
  const at::Generator own = at::detail::createCPUGenerator(3);
  const auto loss = [own](torch::nn::LinearImpl& net, const Batch& batch) {
    return (net.forward(batch[0]) + at::randn({4, 3}, own)).pow(2).mean();
  };
  expect_refused(linear_step(loss), "aten::randn.generator draws from a generator");
  const auto default_one = [](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    return (net.forward(batch[0]) + at::randn({4, 3}, generator)).pow(2).mean();
  };
  EXPECT_NO_THROW(capture_step(linear_step(default_one)));
}

struct ReadsInBackward : torch::autograd::Function<ReadsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    if ((gradients[0] > 0).all().item<bool>()) return {gradients[0] * 2};
    return {gradients[0]};
  }
};

TEST(Refusals, ABooleanThatTheBackwardPassReads) {
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   return ReadsInBackward::apply(net.forward(batch[0])).pow(2).mean();
                 }),
                 "in the backward pass, a Boolean that depends on gradients");
}

struct SelectsInBackward : torch::autograd::Function<SelectsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * gradients[0].masked_select(gradients[0] > 0).sum()};
  }
};

TEST(Refusals, ASizeOfDataInTheBackwardPass) {
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   return SelectsInBackward::apply(net.forward(batch[0])).pow(2).mean();
                 }),
                 "makes, in the backward pass, a tensor whose size depends on gradients");
}

TEST(Refusals, LengthsThatAreReadWithoutAnOp) {
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   const at::Tensor y = net.forward(batch[0]);
                   const at::Tensor lengths = (batch[1] > 0).sum(1).clamp(1, 3);
                   const auto longest_first = std::get<0>(lengths.sort(0, true));
                   const at::Tensor packed =
                       std::get<0>(at::_pack_padded_sequence(y.unsqueeze(2), longest_first, true));
                   return packed.pow(2).mean();
                 }),
                 "reads the lengths of sequences without an op");
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   const at::Tensor y = net.forward(batch[0]).log_softmax(1);
                   const at::Tensor lengths = (batch[1] > 0).sum(1).clamp(1, 3);
                   const at::Tensor labels = at::ones({y.size(0), 1}, at::kLong);
                   const at::Tensor one = at::ones_like(lengths);
                   return at::ctc_loss(at::stack({y, y, y}), labels, lengths, one);
                 }),
                 "takes lengths that libtorch's ctc_loss has read on the host");
}

TEST(Refusals, AMaskThatTheHostMakesFromTheBatch) {
  const auto loss = [](torch::nn::LinearImpl& net, const Batch& batch) {
    std::vector<float> mask;
    const at::Tensor x = batch[0].contiguous();
    for (std::int64_t i = 0; i < x.numel(); i += 6) {
      mask.push_back(x.data_ptr<float>()[i] > 0 ? 1.0F : 0.5F);
    }
    const at::Tensor weights = torch::tensor(mask);
    return (net.forward(batch[0]).pow(2).sum(1) * weights).mean();
  };
  expect_refused(linear_step(loss), "made on the host and differs between two runs");
}

TEST(Refusals, AMaskOverForeignMemory) {
  const auto memory = std::make_shared<std::vector<float>>();
  const auto loss = [memory](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor x = batch[0].contiguous();
    memory->assign(x.data_ptr<float>(), x.data_ptr<float>() + 3);
    return (net.forward(batch[0]) * torch::from_blob(memory->data(), {3})).mean();
  };
  expect_refused(linear_step(loss), "made on the host and differs between two runs");
}

TEST(Refusals, ALossWeightThatChangesWithEveryStep) {
  const auto weight = std::make_shared<double>(1.0);
  expect_refused(linear_step([weight](torch::nn::LinearImpl& net, const Batch& batch) {
                   *weight *= 0.9;
                   return (net.forward(batch[0]).pow(2).mean() * *weight);
                 }),
                 "aten::mul has the number");
}

// A counter goes through the first two recordings as "a * B + c"; a third run tells.
TEST(Refusals, ACounterOfCallsIsNotTakenForTheBatch) {
  const auto calls = std::make_shared<std::int64_t>(0);
  expect_refused(linear_step([calls](torch::nn::LinearImpl& net, const Batch& batch) {
                   ++*calls;
                   return net.forward(batch[0]).pow(2).mean() * *calls;
                 }),
                 "aten::mul");
}

TEST(Refusals, NumbersReadBehindTheDispatchersBack) {
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   const double first = *batch[0].contiguous().data_ptr<float>();
                   return net.forward(batch[0]).pow(2).mean() * first;
                 }),
                 "aten::mul has the number");
}

TEST(Refusals, AStepThatWritesAParameter) {
  expect_refused(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                   {
                     const at::NoGradGuard no_gradients;
                     net.weight.clamp_(-1, 1);
                   }
                   return net.forward(batch[0]).pow(2).mean();
                 }),
                 "writes a parameter");
}

TEST(Refusals, AStepThatWritesATensorNobodyNamed) {
  const at::Tensor hidden = torch::zeros({3});
  expect_refused(linear_step([hidden](torch::nn::LinearImpl& net, const Batch& batch) {
                   const at::Tensor y = net.forward(batch[0]);
                   at::Tensor state = hidden;
                   state.add_(y.detach().mean(0));
                   return (y + state).pow(2).mean();
                 }),
                 "Register it as a buffer");
}

TEST(Refusals, AFrozenParameterThatTheStepWrites) {
  const at::Tensor frozen = torch::zeros({3});
  TrainingStep step = linear_step([frozen](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    at::Tensor average = frozen;
    average.mul_(0.9).add_(y.detach().mean(0));
    return (y + average).pow(2).mean();
  });
  step.parameters.push_back({"average", frozen});
  expect_refused(step, "writes the frozen parameter 'average'");
}

TEST(Refusals, ABufferThatTheStepResizes) {
  const at::Tensor seen = torch::empty({0});
  TrainingStep step = linear_step([seen](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    at::Tensor buffer = seen;
    buffer.resize_({3}).copy_(y.detach().amax(0));
    return y.pow(2).mean();
  });
  step.buffers.push_back({"seen", seen});
  expect_refused(step, "gives buffer 'seen' another shape, [3] in the place of [0]");
  EXPECT_EQ(seen.numel(), 0);
}

TEST(Refusals, AParameterThatTheStepDoesNotName) {
  const at::Tensor scale = torch::ones({3}, torch::requires_grad());
  expect_refused(linear_step([scale](torch::nn::LinearImpl& net, const Batch& batch) {
                   return (net.forward(batch[0]) * scale).pow(2).mean();
                 }),
                 "gets a gradient but is not among the step's parameters");
  EXPECT_FALSE(scale.grad().defined());
}

// As of a teacher, which no gradient reaches.
TEST(Refusals, AParameterOfAnotherModelThatIsOnlyReadIsNone) {
  const auto teacher = std::make_shared<torch::nn::LinearImpl>(6, 3);
  const at::Tensor before = torch::ones({3});
  teacher->bias.mutable_grad() = before;
  const TrainingStep step = linear_step([&](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor detached = teacher->forward(batch[0]).detach();
    const torch::NoGradGuard no_gradients;
    const at::Tensor without = teacher->forward(batch[0] + 1);
    const torch::AutoGradMode gradients(true);
    return (net.forward(batch[0]) - detached - without).pow(2).mean();
  });
  EXPECT_NO_THROW(capture_step(step));
  EXPECT_TRUE(teacher->bias.grad().is_same(before));
  EXPECT_FALSE(teacher->weight.grad().defined());
}

TEST(Refusals, ALossWithoutParameters) {
  expect_refused(linear_step([](torch::nn::LinearImpl&, const Batch& batch) {
                   return batch[0].pow(2).mean();
                 }),
                 "depends on no parameter");
}

TEST(Refusals, ARefusedCaptureLeavesParametersGradientsBuffersAndGeneratorsAlone) {
  TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = torch::dropout(net.forward(batch[0]), 0.5, true);
    return y.sum() * y.sum().item<float>();
  });
  step.parameters[0].tensor.mutable_grad() = torch::full({3, 6}, 7.0);
  torch::manual_seed(123);
  const at::Tensor expected = torch::rand({5});
  torch::manual_seed(123);
  expect_refused(step, "aten::_local_scalar_dense");
  EXPECT_TRUE(torch::equal(torch::rand({5}), expected));
  EXPECT_TRUE(torch::equal(step.parameters[0].tensor.grad(), torch::full({3, 6}, 7.0)));
}

// Not refused, but said: the graph serves one batch size.
TEST(BatchFixed, AFunctionOfTheBatchThatIsNotAffineNamesOpAndSize) {
  const TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    return torch::mm(y, y.t()).pow(2).mean();  // B * B numbers
  });
  const CapturedStep captured = capture(step);
  EXPECT_NE(captured.graph.batch_fixed_reason, "");
  EXPECT_NE(captured.graph.batch_fixed_reason.find("aten::"), std::string::npos)
      << captured.graph.batch_fixed_reason;
  expect_replays(step, captured, 4);
}

TEST(BatchFixed, AHostMaskOfTheBatchsSizeServesThatSizeAlone) {
  const TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    std::vector<float> ramp;
    for (std::int64_t i = 0; i < batch[0].size(0); ++i) ramp.push_back(static_cast<float>(i));
    return (net.forward(batch[0]).pow(2).sum(1) * torch::tensor(ramp)).mean();
  });
  const CapturedStep captured = capture(step);
  EXPECT_NE(captured.graph.batch_fixed_reason.find("made on the host"), std::string::npos)
      << captured.graph.batch_fixed_reason;
  expect_replays(step, captured, 4);
}

TEST(BatchFixed, AModelThatNeedsAnEvenBatchSaysSo) {
  const TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]).view({-1, 2, 3});
    return (y.select(1, 0) - y.select(1, 1)).pow(2).mean();
  });
  const CapturedStep captured = capture(step);
  EXPECT_NE(captured.graph.batch_fixed_reason.find("does not run with 3 samples"),
            std::string::npos)
      << captured.graph.batch_fixed_reason;
  expect_replays(step, captured, 4);
}

TEST(BatchFixed, WhenAskedFor) {
  Options options;
  options.symbolic_batch = false;
  const TrainingStep step = convolutional_network();
  const CapturedStep captured = capture(step, options);
  EXPECT_EQ(captured.graph.batch_fixed_reason, "asked for");
  expect_replays(step, captured, 4);
}

}  // namespace
}  // namespace autodist::capture
