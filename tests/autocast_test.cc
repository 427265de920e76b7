// Steps under autocast: what it casts is captured as ops, and trains as plain libtorch does.

#include <gtest/gtest.h>

#include "autodist/capture/capture.h"
#include "tests/autocast.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

struct Mlp : torch::nn::Module {
  Mlp() {
    fc1 = register_module("fc1", torch::nn::Linear(8, 16));
    fc2 = register_module("fc2", torch::nn::Linear(16, 3));
  }
  // The first layer twice: autocast keeps its cast weight for the second time.
  torch::Tensor forward(const torch::Tensor& x) {
    return fc2(torch::relu(fc1(x)) + torch::tanh(fc1(2 * x)));
  }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

constexpr std::int64_t kRows = 12;

// A generator of its own: ranks are threads, which share torch's.
Batch batch_of(int step) {
  torch::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step));
  return {torch::randn({kRows, 8}, random), torch::randint(0, 3, {kRows}, random, torch::kInt64)};
}

TrainingStep mixed_step(std::int64_t rows) {
  torch::manual_seed(kSeed);
  return make_training_step(
      "mixed", std::make_shared<Mlp>(),
      [](Mlp& mlp, const Batch& batch) {
        torch::Tensor logits;
        {
          const AutocastToBf16 autocast;
          logits = mlp.forward(batch[0]);
        }
        return torch::cross_entropy_loss(logits.to(torch::kFloat32), batch[1]);
      },
      rows_of(batch_of(0), 0, static_cast<std::uint32_t>(kRows / rows)));
}

Parameters plain(std::uint32_t replicas, int steps) {
  const TrainingStep step = mixed_step(kRows);
  for (int i = 0; i < steps; ++i) {
    std::vector<torch::Tensor> sums(step.parameters.size());
    for (std::uint32_t r = 0; r < replicas; ++r) {
      for (const NamedTensor& each : step.parameters) each.tensor.mutable_grad() = torch::Tensor();
      step.loss(rows_of(batch_of(i), r, replicas)).backward();
      for (std::size_t p = 0; p < sums.size(); ++p) {
        const torch::Tensor part = step.parameters[p].tensor.grad() / static_cast<double>(replicas);
        sums[p] = sums[p].defined() ? sums[p] + part : part;
      }
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < sums.size(); ++p) {
      torch::Tensor parameter = step.parameters[p].tensor;
      parameter.sub_(sums[p], 0.1);
    }
  }
  return copies_of(step);
}

TEST(Autocast, ItsCastsAreOpsOfTheGraph) {
  const ir::Graph graph = capture::capture_step(mixed_step(4), {});
  int to_bf16 = 0;
  for (const ir::Op& op : graph.ops) {
    ir::for_each_result(op, [&](ir::ValueId value) {
      if (op.name == "aten::_to_copy" && graph.value(value).type.dtype == DType::kBFloat16) {
        ++to_bf16;
      }
    });
  }
  EXPECT_GE(to_bf16, 4);  // two layers' weights and biases
  for (const ir::Variable& variable : graph.variables) {
    EXPECT_EQ(graph.value(variable.value).type.dtype, DType::kFloat32) << variable.name;
  }
}

// Both compute in bf16 and add gradients in f32; one rounding of a sum may differ.
TEST(Autocast, TrainsAsPlainLibtorch) {
  for (const char* builder : {"PartitionedPS", "AllReduce"}) {
    for (const std::uint32_t ranks : {1U, 2U}) {
      std::vector<TrainingStep> steps;
      for (std::uint32_t r = 0; r < ranks; ++r) steps.push_back(mixed_step(kRows / ranks));
      const Parameters ours = run_job(
          steps, builder, "sgd:lr=0.1", 5,
          [&](int step, std::uint32_t rank) { return rows_of(batch_of(step), rank, ranks); });
      const Parameters theirs = plain(ranks, 5);
      for (std::size_t i = 0; i < ours.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-4, 1e-5))
            << builder << " on " << ranks << ", parameter " << i << ": "
            << (ours[i] - theirs[i]).abs().max().item<double>();
      }
    }
  }
}

}  // namespace
}  // namespace autodist
