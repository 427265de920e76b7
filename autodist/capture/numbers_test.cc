// Steps with numbers that follow from data: sizes of tensors, and integers that the host reads.

#include <gtest/gtest.h>

#include <algorithm>

#include "autodist/capture/other_way.h"
#include "autodist/capture/testing/models.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {
namespace {

using LossFunction = std::function<at::Tensor(torch::nn::LinearImpl&, const Batch&)>;

// Rows, and which of them count: `counted` from the first on.
TrainingStep linear_step(const LossFunction& loss, std::int64_t counted, std::int64_t rows = 6) {
  torch::manual_seed(5);
  const at::Tensor counts = torch::arange(rows) < counted;
  return make_training_step("numbers", std::make_shared<torch::nn::LinearImpl>(6, 3), loss,
                            {torch::randn({rows, 6}), counts});
}

at::Tensor of_chosen(torch::nn::LinearImpl& net, const Batch& batch) {
  return net.forward(batch[0]).index({batch[1]}).pow(2).mean();
}

at::Tensor up_to_number(torch::nn::LinearImpl& net, const Batch& batch) {
  const auto count = batch[1].sum().item<std::int64_t>();
  return net.forward(batch[0]).slice(0, 0, count).pow(2).sum() / static_cast<double>(count);
}

// What a replay of `captured` finds on a batch in which another number of rows counts.
ir::Way other_way(const TrainingStep& step, const CapturedStep& captured, std::int64_t counted) {
  Batch batch = step.example;
  batch[1] = torch::arange(batch[1].size(0)) < counted;
  try {
    verify_replay(step, captured.graph, captured.tensors, batch, 3);
  } catch (const OtherWay& other) {
    return way_of(captured.graph, batch[1].size(0), other);
  }
  return {};
}

TEST(Numbers, ASizeOfDataIsTheExamplesAndHasAGuard) {
  const TrainingStep step = linear_step(of_chosen, 4);
  const CapturedStep captured = capture(step);
  EXPECT_NE(captured.graph.batch_fixed_reason, "");
  EXPECT_TRUE(ir::has_number_guards(captured.graph));
  EXPECT_EQ(ir::way_of(captured.graph, 6).numbers, std::vector<std::int64_t>{4 + 3});
  verify_replay(step, captured.graph, captured.tensors, step.example, 3);
  EXPECT_EQ(other_way(step, captured, 4), ir::Way());
  EXPECT_EQ(other_way(step, captured, 5), (ir::Way{{}, {5 + 3}}));
  EXPECT_EQ(other_way(step, captured, 0), (ir::Way{{}, {3}}));
}

TEST(Numbers, AnIntegerThatTheHostReadsIsTheExamplesAndHasAGuard) {
  const TrainingStep step = linear_step(up_to_number, 4);
  const CapturedStep captured = capture(step);
  EXPECT_EQ(ir::way_of(captured.graph, 6).numbers, std::vector<std::int64_t>{4});
  verify_replay(step, captured.graph, captured.tensors, step.example, 3);
  EXPECT_EQ(other_way(step, captured, 2), (ir::Way{{}, {2}}));
}

// nonzero() of a scalar has the sizes [0 or 1, 0].
TEST(Numbers, ASizeBesideOneThatIsZeroHasAGuard) {
  const TrainingStep step = linear_step(
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        const bool many = (batch[1].sum() > 3).nonzero().size(0) != 0;
        return net.forward(batch[0]).pow(many ? 2 : 4).mean();
      },
      4);
  const CapturedStep captured = capture(step);
  EXPECT_EQ(other_way(step, captured, 5), ir::Way());
  EXPECT_EQ(other_way(step, captured, 2), (ir::Way{{}, {0}}));
}

TEST(Numbers, ThoseThatFollowFromTheNumberOfSamplesServeAnyBatch) {
  for (const LossFunction& loss : {LossFunction(of_chosen), LossFunction(up_to_number)}) {
    const TrainingStep step = linear_step(loss, 6);
    const CapturedStep captured = capture(step);
    EXPECT_EQ(captured.graph.batch_fixed_reason, "");
    for (const std::int64_t rows : {3, 9}) {
      const TrainingStep other = linear_step(loss, rows, rows);
      verify_replay(step, captured.graph, captured.tensors, other.example, 3);
    }
    EXPECT_EQ(other_way(step, captured, 5).numbers.size(), 1u);
  }
}

// Nine rows of ten are chosen, whichever they are; the small recording has three of three.
TEST(Numbers, ThoseOfTheExampleAreNotTakenForThoseOfItsRows) {
  const TrainingStep step = linear_step(of_chosen, 9, 10);
  const CapturedStep captured = capture(step);
  verify_replay(step, captured.graph, captured.tensors, step.example, 3);
  EXPECT_EQ(other_way(step, captured, 9), ir::Way());
}

TEST(Numbers, OfWhatIsDrawnAreThoseOfTheSeed) {
  const TrainingStep step = linear_step(
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        const at::Tensor y = net.forward(batch[0]);
        return y.index({torch::rand({y.size(0)}) < 0.5}).pow(2).sum();
      },
      0, 20);
  Options options;
  options.seed = 11;
  const CapturedStep captured = capture(step, options);
  verify_replay(step, captured.graph, captured.tensors, step.example, 11);
  EXPECT_THROW(verify_replay(step, captured.graph, captured.tensors, step.example, 12), OtherWay);
}

TEST(Numbers, SayWhatHasAFixedSize) {
  const auto labels = [](const Batch& batch) { return (batch[0].select(1, 0) > 0).to(at::kLong); };
  const char* const mask = "torch.where(mask, x, 0).sum() / mask.sum()";
  const char* const counts = "(x.reshape(-1, 1) == torch.arange(n)).sum(0)";
  const auto expect_said = [](const LossFunction& loss, const std::string& expected) {
    const std::string said = number_of_data(capture_step(linear_step(loss, 4)), 0);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  };
  expect_said(of_chosen, mask);
  expect_said(up_to_number, "without item()");
  expect_said(
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        return net.forward(batch[0]).masked_select(batch[1].unsqueeze(1)).mean();
      },
      mask);
  expect_said(
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        return net.forward(batch[0]).sum() * (batch[0] > 0).nonzero().size(0);
      },
      "torch.where(mask, a, b)");
  expect_said(
      [=](torch::nn::LinearImpl& net, const Batch& batch) {
        return net.forward(batch[0]).repeat_interleave(labels(batch), 0).sum();
      },
      "output_size=");
  expect_said(
      [=](torch::nn::LinearImpl& net, const Batch& batch) {
        return net.forward(batch[0]).sum() * labels(batch).bincount().sum();
      },
      counts);
  expect_said(
      [=](torch::nn::LinearImpl& net, const Batch& batch) {
        const at::Tensor unique = std::get<0>(at::_unique2(labels(batch)));
        return net.forward(batch[0]).sum() * unique.sum();
      },
      counts);
  // And what it says has no such number.
  const auto of_fixed_size = [=](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor chosen = batch[1].unsqueeze(1);
    const at::Tensor mean = at::where(chosen, net.forward(batch[0]), 0.0).sum() / chosen.sum();
    return mean * labels(batch).reshape({-1, 1}).eq(at::arange(2)).sum(0).amax();
  };
  EXPECT_FALSE(ir::has_number_guards(capture_step(linear_step(of_fixed_size, 4))));
}

using Reduction = std::function<at::Tensor(const at::Tensor&)>;

TrainingStep reducing_step(const Reduction& reduction, std::int64_t counted = 6) {
  return linear_step(
      [reduction](torch::nn::LinearImpl& net, const Batch& batch) {
        const at::Tensor y = net.forward(batch[0]) * batch[1].unsqueeze(1);
        return (y - reduction(y + 4)).pow(2).mean();
      },
      counted);
}

// libtorch's own backward passes of these ask whether the result is NaN, or for zeros among what
// was reduced.
TEST(Numbers, WhatABackwardPassReadsOfTheForwardPassAloneIsAGuardBeforeIt) {
  const std::vector<Reduction> reductions = {
      [](const at::Tensor& x) { return x.max(); },
      [](const at::Tensor& x) { return x.min(); },
      [](const at::Tensor& x) { return x.median(); },
      [](const at::Tensor& x) { return x.prod() / 1e6; },
      [](const at::Tensor& x) { return x.prod(1, /*keepdim=*/true) / 1e2; },
      [](const at::Tensor& x) { return x.cumprod(1) / 1e2; },
  };
  for (const Reduction& reduction : reductions) {
    const TrainingStep step = reducing_step(reduction);
    const CapturedStep captured = capture(step);
    expect_replays(step, captured, 6);
    const auto& ops = captured.graph.ops;
    EXPECT_TRUE(std::is_sorted(ops.begin(), ops.end(),
                               [](const ir::Op& a, const ir::Op& b) { return a.phase < b.phase; }));
    for (const ir::Op& op : ops) {
      EXPECT_TRUE(!ir::is_guard(op) || op.phase == ir::Phase::kForward) << op.name;
    }
  }
}

TEST(Numbers, ZerosThatABackwardPassMeetsAreAnotherWay) {
  const TrainingStep step =
      reducing_step([](const at::Tensor& x) { return (x - 4).prod(1, /*keepdim=*/true); });
  const CapturedStep captured = capture(step);
  EXPECT_EQ(ir::way_of(captured.graph, 6).numbers, std::vector<std::int64_t>{0});
  EXPECT_EQ(other_way(step, captured, 6), ir::Way());
  EXPECT_EQ(other_way(step, captured, 4), (ir::Way{{}, {2 * 3}}));
}

TEST(Numbers, AStepWithZerosIsCapturedAsOneWithout) {
  const std::vector<Reduction> reductions = {
      [](const at::Tensor& x) { return (x - 4).prod(); },
      [](const at::Tensor& x) { return (x - 4).prod(1, /*keepdim=*/true); },
      [](const at::Tensor& x) { return (x - 4).cumprod(1); },
  };
  for (const Reduction& reduction : reductions) {
    for (const std::int64_t counted : {4, 6}) {
      const TrainingStep step = reducing_step(reduction, counted);
      const CapturedStep captured = capture(step);
      verify_replay(step, captured.graph, captured.tensors, step.example, 3);
      EXPECT_FALSE(other_way(step, captured, 10 - counted) == ir::Way());
    }
  }
}

}  // namespace
}  // namespace autodist::capture
