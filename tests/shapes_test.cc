// Batches whose shapes change, between steps and between the ranks of one step, against plain
// libtorch.

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/job/torch/shape_cache.h"
#include "autodist/models/catalogue.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using testing_jobs::expect_close;
using testing_jobs::Parameters;
using testing_jobs::tensors_of;

constexpr int kSteps = 6;
const char* const kBuilders[] = {"PS", "PartitionedPS", "AllReduce", "AllReduce:algorithm=library"};

// Sequences of three lengths, another one at every rank in every step; 4, 3 and 2 rows.
std::int64_t length_of(int step, std::uint32_t rank) { return 16 - 5 * ((step + rank) % 3); }

Batch tokens(int step, std::uint32_t rank) {
  models::ModelOptions options;
  options.seed = 50 + 10 * static_cast<std::uint64_t>(step) + rank;
  Batch batch = models::find_model("gpt-small").synthetic(options, 4 - rank);
  for (torch::Tensor& each : batch) each = each.slice(1, 0, length_of(step, rank)).contiguous();
  return batch;
}

// Each replica's loss counts by its rows.
void plain_step(const TrainingStep& step, torch::optim::Optimizer& optimizer,
                const std::vector<Batch>& ranks) {
  std::int64_t rows = 0;
  for (const Batch& batch : ranks) rows += batch.front().size(0);
  optimizer.zero_grad();
  for (const Batch& batch : ranks) {
    const double share = static_cast<double>(batch.front().size(0)) / static_cast<double>(rows);
    (step.loss(batch) * share).backward();
  }
  optimizer.step();
}

TrainingStep gpt() {
  models::ModelOptions options;
  options.dtype = torch::kFloat64;
  options.batch = 4;
  options.seed = 3;
  return models::make_model("gpt-small", options);
}

TEST(Shapes, ThreeLengthsOnThreeRanksInOneStepEqualPlainLibtorch) {
  const TrainingStep step = gpt();
  torch::optim::SGD optimizer(tensors_of(step), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int i = 0; i < kSteps; ++i) {
    plain_step(step, optimizer, {tokens(i, 0), tokens(i, 1), tokens(i, 2)});
  }
  const Parameters plain = testing_jobs::copies_of(step);
  for (const char* builder : kBuilders) {
    if (testing_jobs::is_left_out(builder)) continue;
    const std::vector<TrainingStep> ranks{gpt(), gpt(), gpt()};
    const Parameters ours =
        testing_jobs::run_job(ranks, builder, "sgd:lr=0.1,momentum=0.9", kSteps, tokens);
    expect_close(ours, plain, builder);
  }
}

// A layer that long sequences alone go through.
struct LongShortImpl : torch::nn::Module {
  LongShortImpl() {
    in = register_module("in", torch::nn::Linear(3, 5));
    extra = register_module("extra", torch::nn::Linear(5, 5));
    out = register_module("out", torch::nn::Linear(5, 1));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) {  // [batch, tokens, 3] -> [batch]
    torch::Tensor h = torch::tanh(in(x));
    if (x.size(1) > 4) h = torch::tanh(extra(h));
    return out(h.mean(1)).squeeze(1);
  }
  torch::nn::Linear in{nullptr}, extra{nullptr}, out{nullptr};
};
TORCH_MODULE(LongShort);

Batch regression(std::int64_t rows, std::int64_t length, std::uint64_t seed) {
  torch::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto real = torch::TensorOptions().dtype(torch::kFloat64);
  return {torch::randn({rows, length, 3}, generator, real), torch::randn({rows}, generator, real)};
}

TrainingStep long_short(std::int64_t example_length) {
  torch::manual_seed(7);
  LongShort net;
  return make_training_step(
      "long-short", net.ptr(),
      [](LongShortImpl& module, const Batch& batch) {
        return torch::mse_loss(module.forward(batch[0]), batch[1]);
      },
      regression(4, example_length, 1));
}

TEST(Shapes, AVariableThatAShapeDoesNotUseContributesNothing) {
  const auto rows = [](int step, std::uint32_t rank) {
    const std::int64_t length = (step + static_cast<int>(rank)) % 3 == 0 ? 6 : 2;
    return regression(3, length, 20 + 2 * static_cast<std::uint64_t>(step) + rank);
  };
  const TrainingStep step = long_short(6);
  torch::optim::SGD optimizer(tensors_of(step), torch::optim::SGDOptions(0.2));
  for (int i = 0; i < kSteps; ++i) plain_step(step, optimizer, {rows(i, 0), rows(i, 1)});
  const Parameters plain = testing_jobs::copies_of(step);
  for (const char* builder : kBuilders) {
    if (testing_jobs::is_left_out(builder)) continue;
    const Parameters ours =
        testing_jobs::run_job({long_short(6), long_short(6)}, builder, "sgd:lr=0.2", kSteps, rows);
    expect_close(ours, plain, builder);
  }
}

// The plan was made without the variable; the message says which example would do.
TEST(Shapes, AVariableThatThePlanDoesNotKnowIsRefusedByName) {
  try {
    testing_jobs::run_job({long_short(2)}, "PS", "sgd:lr=0.2", 1,
                          [](int, std::uint32_t) { return regression(3, 6, 1); });
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'extra."), std::string::npos) << error.what();
  }
}

TEST(Shapes, AnotherNumberOfDimensionsIsAMistake) {
  EXPECT_THROW(testing_jobs::run_job({long_short(2)}, "PS", "sgd:lr=0.2", 1,
                                     [](int, std::uint32_t) {
                                       Batch batch = regression(3, 2, 1);
                                       batch[1] = batch[1].unsqueeze(1);
                                       return batch;
                                     }),
               Error);
}

}  // namespace
}  // namespace autodist
