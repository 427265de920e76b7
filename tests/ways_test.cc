// Steps whose host reads Booleans and integers of tensors, or whose tensors have sizes that follow
// from data, which go another way at every rank and in every step, against plain libtorch.

#include <gtest/gtest.h>

#include "autodist/base/error.h"
#include "autodist/exec/replay.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using testing_jobs::expect_close;
using testing_jobs::Parameters;
using testing_jobs::tensors_of;

constexpr int kSteps = 8;
const char* const kBuilders[] = {"PS", "PartitionedPS", "AllReduce", "AllReduce:algorithm=library"};

// The batch has a mask. Where all of it is set, the host leaves masking out; where the batch norm's
// mean of the first feature is above 0, a further layer is used.
struct WayfarerImpl : torch::nn::Module {
  WayfarerImpl() {
    in = register_module("in", torch::nn::Linear(3, 5));
    norm = register_module("norm", torch::nn::BatchNorm1d(5));
    extra = register_module("extra", torch::nn::Linear(5, 5));
    out = register_module("out", torch::nn::Linear(5, 1));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {  // [B, 3], [B, 3]
    const torch::Tensor seen = mask.all().item<bool>() ? x : x * mask;
    torch::Tensor h = torch::dropout(norm(in(seen)), 0.2, is_training());
    const bool deeper = (seen.select(1, 0).mean() > 0).item<bool>();
    if (deeper) h = torch::tanh(extra(h));
    return out(torch::dropout(h, 0.2, is_training())).squeeze(1);
  }
  torch::nn::Linear in{nullptr}, extra{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Wayfarer);

// The same step goes other ways at other ranks. At step 0 rank 0 takes the extra layer.
Batch rows_of(int step, std::uint32_t rank) {
  torch::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(100 + 10 * static_cast<std::uint64_t>(step) + rank);
  const auto real = torch::TensorOptions().dtype(torch::kFloat64);
  const std::int64_t count = 6 - static_cast<std::int64_t>(rank);
  torch::Tensor x = torch::randn({count, 3}, generator, real);
  x.select(1, 0) += (step + rank) % 2 == 0 ? 2 : -2;
  torch::Tensor mask = torch::ones({count, 3}, torch::kBool);
  if ((step / 2 + rank) % 2 == 0) mask[1][2] = false;
  return {x, mask, torch::randn({count}, generator, real)};
}

TrainingStep wayfarer() {
  torch::manual_seed(7);
  Wayfarer net;
  return make_training_step(
      "wayfarer", net.ptr(),
      [](WayfarerImpl& module, const Batch& batch) {
        return torch::mse_loss(module.forward(batch[0], batch[1]), batch[2]);
      },
      rows_of(0, 0));
}

// Every rank's part with the random numbers and the buffers that it has in the job.
Parameters plain_job(const std::vector<TrainingStep>& ranks, std::uint32_t micro_batches) {
  const TrainingStep& step = ranks.front();
  torch::optim::SGD optimizer(tensors_of(step), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int i = 0; i < kSteps; ++i) {
    optimizer.zero_grad();
    std::int64_t all = 0;
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) all += rows_of(i, rank)[0].size(0);
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
      const Batch batch = rows_of(i, rank);
      const std::vector<NamedTensor>& own = ranks[rank].parameters;
      {
        const torch::NoGradGuard no_gradients;
        for (std::size_t k = 0; rank > 0 && k < own.size(); ++k) {
          torch::Tensor copy = own[k].tensor;
          copy.copy_(step.parameters[k].tensor);
        }
      }
      for (std::uint32_t micro = 0; micro < micro_batches; ++micro) {
        const Batch part = testing_jobs::rows_of(batch, micro, micro_batches);
        torch::manual_seed(exec::step_seed(testing_jobs::kSeed, rank, i, micro));
        const double share = static_cast<double>(part[0].size(0)) / static_cast<double>(all);
        (ranks[rank].loss(part) * share).backward();
      }
      for (std::size_t k = 0; rank > 0 && k < own.size(); ++k) {
        torch::Tensor gradient = own[k].tensor.grad();
        torch::Tensor sum = step.parameters[k].tensor;
        if (gradient.defined()) {
          sum.mutable_grad() = sum.grad().defined() ? sum.grad() + gradient : gradient.clone();
          own[k].tensor.mutable_grad() = torch::Tensor();
        }
      }
    }
    optimizer.step();
  }
  return testing_jobs::copies_of(step);
}

Parameters buffers_of(const TrainingStep& step) {
  Parameters buffers;
  for (const NamedTensor& each : step.buffers) buffers.push_back(each.tensor.to(torch::kFloat64));
  return buffers;
}

std::vector<TrainingStep> three_ranks() { return {wayfarer(), wayfarer(), wayfarer()}; }

TEST(Ways, ThreeRanksThatGoDifferentWaysEqualPlainLibtorch) {
  for (const std::uint32_t micro_batches : {1U, 2U}) {
    const std::vector<TrainingStep> plain_ranks = three_ranks();
    const Parameters plain = plain_job(plain_ranks, micro_batches);
    for (const char* builder : kBuilders) {
      if (testing_jobs::is_left_out(builder)) continue;
      const std::vector<TrainingStep> ranks = three_ranks();
      const Parameters ours = testing_jobs::run_job(ranks, builder, "sgd:lr=0.05,momentum=0.9",
                                                    kSteps, rows_of, nullptr, micro_batches);
      expect_close(ours, plain, fmt::format("{}, {} micro-batches", builder, micro_batches));
      // What a way that was left had written into the statistics is gone.
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        expect_close(buffers_of(ranks[rank]), buffers_of(plain_ranks[rank]),
                     fmt::format("buffers of rank {}", rank));
      }
    }
  }
}

// The rows whose mask is all set count, as far as the shortest mask goes, and a row that is drawn.
TrainingStep selecting() {
  torch::manual_seed(7);
  Wayfarer net;
  return make_training_step(
      "selecting", net.ptr(),
      [](WayfarerImpl& module, const Batch& batch) {
        const torch::Tensor whole = batch[1].all(1);
        // torch::rand draws from the one generator of the process, in which three ranks are here.
        const torch::Tensor drawn = torch::dropout(torch::ones_like(batch[2]), 0.5, true) > 0;
        const auto shortest = batch[1].sum(1).min().item<std::int64_t>();
        const torch::Tensor out = module.forward(batch[0], batch[1]) - batch[2];
        const torch::Tensor seen = module.in(batch[0]).slice(1, 0, shortest);
        const torch::Tensor low = out.detach() < 0;  // follows from variables
        const torch::Tensor kept = out.index({whole.logical_or(drawn).logical_or(low)});
        return (kept.square().sum() + seen.square().sum()) / batch[0].size(0);
      },
      rows_of(0, 0));
}

TEST(Ways, ThreeRanksWithOtherSizesAndNumbersOfDataEqualPlainLibtorch) {
  const auto ranks = [] {
    return std::vector<TrainingStep>{selecting(), selecting(), selecting()};
  };
  for (const std::uint32_t micro_batches : {1U, 2U}) {
    const Parameters plain = plain_job(ranks(), micro_batches);
    for (const char* builder : kBuilders) {
      if (testing_jobs::is_left_out(builder)) continue;
      const Parameters ours = testing_jobs::run_job(ranks(), builder, "sgd:lr=0.05,momentum=0.9",
                                                    kSteps, rows_of, nullptr, micro_batches);
      expect_close(ours, plain, fmt::format("{}, {} micro-batches", builder, micro_batches));
    }
  }
}

// A graph that is left holds no variable: a newer version may be waiting to go in.
TEST(Ways, StaleRanksThatGoDifferentWaysEnd) {
  for (const auto make : {wayfarer, selecting}) {
    const std::vector<TrainingStep> ranks{make(), make(), make()};
    const Parameters ours = testing_jobs::run_job(ranks, "PS:staleness=2", "sgd:lr=0.01",
                                                  3 * kSteps, rows_of, nullptr, 2);
    for (const torch::Tensor& each : ours) EXPECT_TRUE(each.isfinite().all().item<bool>());
  }
}

// A step that writes its input before the host reads of it.
TrainingStep scales_its_input() {
  torch::manual_seed(7);
  Wayfarer net;
  return make_training_step(
      "scales-its-input", net.ptr(),
      [](WayfarerImpl& module, const Batch& batch) {
        torch::Tensor x = batch[0];
        x.mul_(0.5);
        torch::Tensor h = module.in(x);
        if ((x.select(1, 0).mean() > 0).item<bool>()) h = torch::tanh(module.extra(h));
        return torch::mse_loss(module.out(h).squeeze(1), batch[2]);
      },
      rows_of(0, 0));
}

TEST(Ways, AnInputThatAWayHasWrittenIsAsItWas) {
  const Parameters plain = plain_job({scales_its_input(), scales_its_input()}, 1);
  const Parameters ours = testing_jobs::run_job({scales_its_input(), scales_its_input()}, "PS",
                                                "sgd:lr=0.05,momentum=0.9", kSteps, rows_of);
  expect_close(ours, plain, "PS");
}

// A layer that is left out at random, as its host decides by a number that the step draws.
TrainingStep drops_a_layer() {
  torch::manual_seed(7);
  Wayfarer net;
  return make_training_step(
      "drops-a-layer", net.ptr(),
      [](WayfarerImpl& module, const Batch& batch) {
        torch::Tensor h = torch::dropout(module.in(batch[0]), 0.2, true);
        if ((torch::rand({}) > 0.4).item<bool>()) h = torch::tanh(module.extra(h));
        return torch::mse_loss(module.out(torch::dropout(h, 0.2, true)).squeeze(1), batch[2]);
      },
      rows_of(0, 0));
}

TEST(Ways, ALayerThatIsLeftOutAtRandomDrawsAsPlainLibtorchDoes) {
  const std::vector<TrainingStep> plain_ranks{drops_a_layer(), drops_a_layer()};
  const Parameters plain = plain_job(plain_ranks, 1);
  const Parameters ours = testing_jobs::run_job({drops_a_layer(), drops_a_layer()}, "PS",
                                                "sgd:lr=0.05,momentum=0.9", kSteps, rows_of);
  expect_close(ours, plain, "PS");
}

// Rows of a table are asked for before the host reads a Boolean.
struct LooksUpImpl : torch::nn::Module {
  LooksUpImpl() {
    const auto sparse = torch::nn::EmbeddingOptions(40, 4).sparse(true);
    table = register_module("table", torch::nn::Embedding(sparse));
    out = register_module("out", torch::nn::Linear(4, 1));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& ids) {  // [B, 3]
    const torch::Tensor h = table(ids).mean(1);
    const bool some = (ids == 0).any().item<bool>();
    return out(some ? torch::tanh(h) : h).squeeze(1);
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear out{nullptr};
};
TORCH_MODULE(LooksUp);

Batch ids_of(int step, std::uint32_t rank) {
  torch::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(300 + 10 * static_cast<std::uint64_t>(step) + rank);
  torch::Tensor ids = torch::randint(1, 40, {4, 3}, generator, torch::kInt64);
  if ((step + rank) % 2 == 0) ids[0][0] = 0;
  return {ids, torch::randn({4}, generator, torch::TensorOptions().dtype(torch::kFloat64))};
}

TrainingStep looks_up() {
  torch::manual_seed(7);
  LooksUp net;
  return make_training_step(
      "looks-up", net.ptr(),
      [](LooksUpImpl& module, const Batch& batch) {
        return torch::mse_loss(module.forward(batch[0]), batch[1]);
      },
      ids_of(0, 0));
}

TEST(Ways, RowsOfATableAreAskedForOnce) {
  const TrainingStep plain = looks_up();
  torch::optim::SGD optimizer(tensors_of(plain), torch::optim::SGDOptions(0.1));
  for (int i = 0; i < kSteps; ++i) {
    optimizer.zero_grad();
    for (std::uint32_t rank = 0; rank < 2; ++rank) (plain.loss(ids_of(i, rank)) * 0.5).backward();
    optimizer.step();
  }
  for (const char* builder : {"PS", "PS:local_proxy_variable=true"}) {
    const Parameters ours =
        testing_jobs::run_job({looks_up(), looks_up()}, builder, "sgd:lr=0.1", kSteps, ids_of);
    expect_close(ours, testing_jobs::copies_of(plain), builder);
  }
}

}  // namespace
}  // namespace autodist
