#include "autodist/exec/library_all_reduce.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/ir/graph_builder.h"

namespace autodist::exec {
namespace {

// Ranks as threads, which add up in double.
class Sums : public comm::Collectives {
 public:
  explicit Sums(int ranks) : ranks_(ranks) {}

  void all_reduce(void* data, std::size_t count, DType dtype) override {
    ASSERT_EQ(dtype, DType::kFloat64);
    auto* values = static_cast<double*>(data);
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t round = round_;
    if (there_ == 0) sum_.assign(count, 0);
    ASSERT_EQ(sum_.size(), count) << "ranks bring different amounts";
    for (std::size_t i = 0; i < count; ++i) sum_[i] += values[i];
    if (++there_ == ranks_) {
      result_ = sum_;
      there_ = 0;
      ++round_;
      all_there_.notify_all();
    }
    all_there_.wait(lock, [&] { return round_ != round; });
    for (std::size_t i = 0; i < count; ++i) values[i] = result_[i];
  }
  [[nodiscard]] std::string describe() const override { return "threads"; }

 private:
  int ranks_;
  int there_ = 0;
  std::uint64_t round_ = 0;
  std::mutex mutex_;
  std::condition_variable all_there_;
  std::vector<double> sum_;
  std::vector<double> result_;
};

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 20;

// A matrix, and a vector that no factoring pays for, in one collective.
program::Program job(int ranks, const program::Compression& compression) {
  ir::GraphBuilder step("matrix", 2);
  const ir::ValueId x = step.input("x", ir::contiguous({ir::batch(), kRows}));
  for (const auto& [name, type] :
       {std::pair("w", ir::contiguous({kRows, 4, kColumns / 4}, DType::kFloat64)),
        std::pair("b", ir::contiguous({kColumns}, DType::kFloat64))}) {
    const ir::ValueId w = step.variable(name, type);
    step.gradient(w, step.op("aten::ones_like", {w}, type));
  }
  step.output(step.op("aten::sum", {x}, ir::contiguous({})));
  program::Program program;
  program.graph = std::make_shared<const ir::Graph>(step.finish());
  std::vector<program::Rank> members;
  for (int i = 0; i < ranks; ++i) members.emplace_back(i);
  program.collectives = {
      {{ir::VariableId(0), ir::VariableId(1)}, DType::kFloat64, members, "AUTO", compression}};
  return program;
}

torch::Tensor random(std::int64_t seed, std::vector<std::int64_t> sizes) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  return torch::randn(sizes, generator, torch::kFloat64);
}

// A job of some ranks, each a thread, for one call after the other.
class Job {
 public:
  Job(int ranks, const program::Compression& compression)
      : program_(job(ranks, compression)), sums_(ranks) {
    for (int i = 0; i < ranks; ++i) {
      ranks_.push_back(std::make_unique<LibraryAllReduce>(program_, program::CollectiveId(0),
                                                          &sums_, 5, staging_, false));
    }
  }

  // By rank; a rank without samples brings nothing.
  std::vector<LibraryAllReduce::Average> run(const std::vector<torch::Tensor>& matrices,
                                             const std::vector<std::int64_t>& samples) {
    std::vector<LibraryAllReduce::Average> averages(ranks_.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] {
        std::vector<torch::Tensor> gradients(2);
        if (samples[i] != 0) {
          gradients = {matrices[i], torch::full({kColumns}, double(i + 1), torch::kFloat64)};
        }
        averages[i] = ranks_[i]->run(gradients, samples[i], step_);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ++step_;
    return averages;
  }

  LibraryAllReduce& rank(std::size_t i) { return *ranks_[i]; }
  torch::Tensor state(std::size_t i, const std::string& name) {
    for (const NamedTensor& each : rank(i).state()) {
      if (each.name == name) return each.tensor.clone();
    }
    return {};
  }

 private:
  program::Program program_;
  Sums sums_;
  Staging staging_{torch::kCPU, Bytes{}};
  std::vector<std::unique_ptr<LibraryAllReduce>> ranks_;
  std::uint64_t step_ = 0;
};

program::Compression power_sgd(std::int32_t rank, bool feedback = true, bool warm = true) {
  return {program::Codec::kPowerSgd, feedback, 0, rank, warm};
}

torch::Tensor gradient(std::int64_t seed) { return random(seed, {kRows, 4, kColumns / 4}); }

TEST(LibraryAllReduce, AveragesBySamples) {
  Job job(3, {});
  const std::vector<torch::Tensor> gradients{gradient(1), gradient(2), gradient(3)};
  for (const auto& average : job.run(gradients, {1, 0, 3})) {
    EXPECT_EQ(average.samples, 4);
    EXPECT_TRUE(torch::allclose(average.gradients[0].view_as(gradients[0]),
                                0.25 * gradients[0] + 0.75 * gradients[2], 1e-14, 1e-14));
    EXPECT_NEAR(average.gradients[1][0].item<double>(), 0.25 * 1 + 0.75 * 3, 1e-14);
  }
}

TEST(LibraryAllReduce, WithoutSamplesIsZeros) {
  Job job(2, power_sgd(2));
  for (const auto& average : job.run({gradient(1), gradient(2)}, {0, 0})) {
    EXPECT_EQ(average.samples, 0);
    EXPECT_EQ(average.gradients[0].abs().max().item<double>(), 0);
  }
}

// The gradients of all ranks together have as many independent columns as the factors.
TEST(PowerSgd, IsExactForGradientsOfItsRank) {
  Job job(2, power_sgd(2));
  for (int step = 0; step < 5; ++step) {
    const auto outer = [&](int seed) {
      return random(seed, {kRows, 1}).mm(random(seed + 50, {1, kColumns})).view({kRows, 4, -1});
    };
    const std::vector<torch::Tensor> gradients{outer(2 * step), outer(2 * step + 1)};
    for (const auto& average : job.run(gradients, {3, 1})) {
      EXPECT_TRUE(torch::allclose(average.gradients[0], 0.75 * gradients[0] + 0.25 * gradients[1],
                                  1e-11, 1e-11));
    }
  }
}

TEST(PowerSgd, SendsTwoFactorsAndWhatDoesNotPayAsItIs) {
  Job job(2, power_sgd(2));
  const auto averages = job.run({gradient(1), gradient(2)}, {1, 1});
  EXPECT_EQ(averages[0].reduced.value, 8 * ((kRows + kColumns) * 2 + kColumns + 1));
  EXPECT_NEAR(averages[1].gradients[1][3].item<double>(), 1.5, 1e-15);
  EXPECT_TRUE(torch::equal(averages[0].gradients[0], averages[1].gradients[0]));
}

// What every step leaves behind is owed, so nothing of the gradients is ever lost.
TEST(PowerSgd, OwesExactlyWhatItHasNotSent) {
  Job job(3, power_sgd(1));
  const std::vector<std::int64_t> samples{2, 1, 1};
  torch::Tensor sent = torch::zeros({kRows, 4, kColumns / 4}, torch::kFloat64);
  torch::Tensor asked = sent.clone();
  for (int step = 0; step < 7; ++step) {
    const std::vector<torch::Tensor> gradients{gradient(10 * step), gradient(10 * step + 1),
                                               gradient(10 * step + 2)};
    sent += job.run(gradients, samples)[1].gradients[0];
    asked += 0.5 * gradients[0] + 0.25 * gradients[1] + 0.25 * gradients[2];
  }
  const torch::Tensor owed =
      0.5 * job.state(0, "w.owed") + 0.25 * job.state(1, "w.owed") + 0.25 * job.state(2, "w.owed");
  EXPECT_TRUE(torch::allclose(sent + owed, asked, 1e-11, 1e-11));
  EXPECT_GT(owed.abs().max().item<double>(), 0.1) << "nothing was compressed";
}

// Of one and the same gradient, a warm start finds the best approximation of its rank, as the power
// iteration does; a cold one starts over every time.
TEST(PowerSgd, WarmStartsIterateToTheLeadingSingularVector) {
  const torch::Tensor matrix = gradient(3);
  const torch::Tensor singular =
      std::get<1>(torch::svd(matrix.view({kRows, kColumns}))).to(torch::kFloat64);
  const double best = std::sqrt((singular.square().sum() - singular[0].square()).item<double>());
  const auto error_after = [&](bool warm) {
    Job job(1, power_sgd(1, /*feedback=*/false, warm));
    double error = 0;
    for (int step = 0; step < 200; ++step) {
      error = (job.run({matrix}, {1})[0].gradients[0] - matrix).norm().item<double>();
    }
    return error;
  };
  EXPECT_NEAR(error_after(true), best, 1e-3 * best);
  EXPECT_GT(error_after(false), 1.005 * best);
}

TEST(PowerSgd, RecoversFromAGradientOfZeros) {
  Job job(1, power_sgd(2));
  job.run({torch::zeros({kRows, 4, kColumns / 4}, torch::kFloat64)}, {1});
  const torch::Tensor outer =
      random(1, {kRows, 1}).mm(random(2, {1, kColumns})).view({kRows, 4, -1});
  job.run({outer}, {1});  // one column only: the other one came out zero
  const auto averages = job.run({gradient(5)}, {1});
  EXPECT_GT(averages[0].gradients[0].abs().max().item<double>(), 0.01);
  const torch::Tensor singular =
      std::get<1>(torch::svd(averages[0].gradients[0].view({kRows, kColumns})));
  EXPECT_GT(singular[1].item<double>(), 1e-3) << "a column stayed zero";
}

TEST(PowerSgd, GoesOnFromItsStateToTheLastBit) {
  Job straight(2, power_sgd(2));
  Job first(2, power_sgd(2));
  for (int step = 0; step < 4; ++step) {
    const std::vector<torch::Tensor> gradients{gradient(step), gradient(step + 20)};
    straight.run(gradients, {1, 1});
    first.run(gradients, {1, 1});
  }
  Job second(2, power_sgd(2));
  for (std::size_t i = 0; i < 2; ++i) second.rank(i).load(first.rank(i).state());
  const std::vector<torch::Tensor> next{gradient(71), gradient(72)};
  EXPECT_TRUE(torch::equal(straight.run(next, {1, 1})[0].gradients[0],
                           second.run(next, {1, 1})[0].gradients[0]));
}

TEST(PowerSgd, RefusesAStateOfAnotherShape) {
  Job job(1, power_sgd(2));
  try {
    job.rank(0).load({{"w.factor", torch::zeros({3, 3})}});
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_EQ(
        std::string(error.what()),
        "checkpoint: 'w.factor' has 9 elements, expected 40. Take a checkpoint of this model.");
  }
}

}  // namespace
}  // namespace autodist::exec
