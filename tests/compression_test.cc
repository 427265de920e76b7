// Jobs whose gradients travel compressed, against libtorch's own casts with the error feedback
// written down once more; and what top-k may and may not change. Ranks as threads.

#include <gtest/gtest.h>

#include <map>

#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// A cast by libtorch; with error feedback what it lost is added the next time.
struct Cast {
  torch::ScalarType type;
  bool error_feedback;
  std::map<std::pair<std::size_t, std::size_t>, torch::Tensor> residuals;

  torch::Tensor operator()(std::size_t sender, std::size_t parameter,
                           const torch::Tensor& gradient) {
    torch::Tensor& residual = residuals[{sender, parameter}];
    const torch::Tensor wanted =
        error_feedback && residual.defined() ? gradient + residual : gradient;
    const torch::Tensor sent = wanted.to(torch::kFloat32).to(type).to(gradient.scalar_type());
    residual = wanted - sent;
    return sent;
  }
};

struct CastCase {
  std::string builder;
  torch::ScalarType type;
  bool error_feedback;
  bool both_ways;  // whether averages come back, rather than parameters
};

class Casts : public ::testing::TestWithParam<CastCase> {};

TEST_P(Casts, EqualLibtorchsOwn) {
  const CastCase& each = GetParam();
  for (const std::uint32_t ranks : {2U, 3U}) {
    constexpr std::size_t kOwner = 1000;
    Cast cast{each.type, each.error_feedback, {}};
    Lossy lossy;
    lossy.contribution = [&](std::uint32_t replica, std::size_t parameter,
                             const torch::Tensor& gradient) {
      return cast(replica, parameter, gradient);
    };
    if (each.both_ways) {
      lossy.average = [&](std::size_t parameter, const torch::Tensor& gradient) {
        return cast(kOwner, parameter, gradient);
      };
    }
    const std::string model = "digits";
    const Parameters plain = train_plain(model, ranks, kBatch, sgd_of(model), &lossy);
    const Parameters ours = run_job({model, each.builder, ranks});
    // A gradient that lies between two values may be rounded the other way.
    EXPECT_LT(largest_difference(ours, plain), 3e-5) << ranks << " ranks";
    EXPECT_GT(largest_difference(ours, trained_by_sgd(model, ranks)), 1e-9)
        << "nothing was compressed";
    expect_equal(run_job({model, each.builder, ranks}), ours, "again");
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Casts,
    ::testing::Values(
        CastCase{"PSLoadBalancing:compressor=fp16", torch::kHalf, false, false},
        CastCase{"PartitionedPS:compressor=bf16+ef", torch::kBFloat16, true, false},
        CastCase{"AllReduce:compressor=HorovodCompressor", torch::kHalf, false, true},
        CastCase{"AllReduce:compressor=HorovodCompressorEF", torch::kHalf, true, true},
        CastCase{"RandomAxisPartitionAR:compressor=bf16", torch::kBFloat16, false, true},
        CastCase{"DDP-like:compressor=bf16+ef", torch::kBFloat16, true, true}));

TEST(TopK, DensityOneIsTheUncompressedTraining) {
  for (const char* builder :
       {"AllReduce:compressor=topk,density=1", "PartitionedPS:compressor=topk,density=1"}) {
    expect_close(run_job({"digits", builder}), trained_by_sgd("digits", 2), builder);
  }
}

TEST(TopK, TwoRunsAreEqualAndUnlikeTheUncompressedOne) {
  const SmallJob job{"digits", "AllReduce:compressor=topk,density=0.05", 3};
  const Parameters once = run_job(job);
  expect_equal(run_job(job), once, "again");
  EXPECT_GT(largest_difference(once, trained_by_sgd("digits", 3)), 1e-6);
}

// A linear loss has the same gradient g at every step: after n steps of SGD the parameters have
// moved by lr * (n * g - what is still owed), and no element is owed for ever.
TEST(TopK, WhatStaysBehindIsSentLater) {
  constexpr int kLong = 60;
  const auto options = torch::dtype(torch::kFloat64);
  const torch::Tensor slopes = torch::linspace(0.2, 1, 40, options);
  const auto make = [&] {
    torch::Tensor w = torch::zeros({40}, options).set_requires_grad(true);
    TrainingStep step;
    step.name = "linear";
    step.parameters = {{"w", w}};
    step.loss = [w](const Batch& batch) { return (batch[0] * w).sum(1).mean(); };
    step.example = {torch::ones({2, 40}, options)};
    return step;
  };
  const Parameters ours = run_job({make(), make()}, "AllReduce:compressor=topk,density=0.1",
                                  "sgd:lr=0.5", kLong, [&](int, std::uint32_t) {
                                    return Batch{slopes.expand({3, 40}).contiguous()};
                                  });
  const torch::Tensor all = -0.5 * kLong * slopes;
  const torch::Tensor owed = (ours[0] - all) / (0.5 * slopes);  // in steps
  EXPECT_GE(owed.min().item<double>(), -1e-9);
  // Four of forty leave a step; the smallest slope gathers five times as long as the largest.
  EXPECT_LT(owed.max().item<double>(), 35);
  EXPECT_LT(ours[0].max().item<double>(), 0) << "an element never left";
}

}  // namespace
}  // namespace autodist
