#include "autodist/exec/replay.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/ir/graph_builder.h"

namespace autodist::exec {
namespace {

constexpr DType kType = DType::kFloat64;

// loss = sum(dropout(x w)), with the mask from native_dropout, whose schema takes no generator.
std::shared_ptr<const ir::Graph> dropout_step() {
  using ir::batch;
  using ir::contiguous;
  ir::GraphBuilder step("dropout", 4);
  const ir::ValueId x = step.input("x", contiguous({batch(), 8}, kType));
  const ir::ValueId w = step.variable("w", contiguous({8, 16}, kType));
  const auto wide = contiguous({batch(), 16}, kType);
  const ir::Argument none = ir::None{};
  const ir::ValueId y = step.op("aten::mm", {x, w}, wide);
  ir::Effects draws;
  draws.random = true;
  const auto dropped =
      step.op("aten::native_dropout", {y, 0.5, true},
              std::vector<ir::TensorType>{wide, contiguous({batch(), 16}, DType::kBool)}, draws);
  step.output(step.op("aten::sum", {dropped[0], none}, contiguous({}, kType)));
  step.backward();
  const ir::ValueId ones =
      step.op("aten::ones_like", {dropped[0], none, none, none, none, none}, wide);
  const ir::ValueId dy = step.op("aten::native_dropout_backward", {ones, dropped[1], 2.0}, wide);
  auto transposed = contiguous({batch(), 8}, kType);
  std::swap(transposed.sizes[0], transposed.sizes[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  const ir::ValueId x_t = step.view("aten::t", x, transposed);
  step.gradient(w, step.op("aten::mm", {x_t, dy}, contiguous({8, 16}, kType)));
  return std::make_shared<ir::Graph>(step.finish());
}

struct Gradient {
  double loss = 0;
  torch::Tensor of_w;
};

Gradient replayed(Replay& replay, const ir::Graph& graph, const torch::Tensor& x,
                  std::uint64_t seed) {
  const capture::BelowAutograd below;
  replay.begin({x}, seed);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) replay.run(ir::OpId(i));
  Gradient result{replay.output(0).item<double>(), replay.take_gradient(ir::VariableId(0))};
  replay.end();
  return result;
}

Gradient eager(const torch::Tensor& values, const torch::Tensor& x, std::uint64_t seed) {
  torch::Tensor w = values.clone().requires_grad_();
  torch::manual_seed(seed);
  const torch::Tensor loss = torch::dropout(x.mm(w), 0.5, true).sum();
  loss.backward();
  return {loss.item<double>(), w.grad()};
}

TEST(Replay, RandomOpsDrawWhatEagerLibtorchDraws) {
  const auto graph = dropout_step();
  const torch::Tensor w = torch::randn({8, 16}, torch::kFloat64);
  Replay replay(graph, capture::Bindings{{w}, {}, {}}, torch::kCPU);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const torch::Tensor x = torch::randn({4, 8}, torch::kFloat64);
    const std::uint64_t seed = step_seed(11, 0, step);
    const Gradient expected = eager(w, x, seed);
    const Gradient got = replayed(replay, *graph, x, seed);
    EXPECT_EQ(got.loss, expected.loss);
    EXPECT_TRUE(torch::equal(got.of_w, expected.of_w));
  }
}

TEST(Replay, RanksAsThreadsDrawIndependently) {
  const auto graph = dropout_step();
  const torch::Tensor w = torch::randn({8, 16}, torch::kFloat64);
  const torch::Tensor x = torch::randn({4, 8}, torch::kFloat64);
  std::vector<Gradient> expected;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    expected.push_back(eager(w, x, step_seed(5, rank, 9)));
  }
  EXPECT_NE(expected[0].loss, expected[1].loss);
  std::vector<int> wrong(3);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Replay replay(graph, capture::Bindings{{w}, {}, {}}, torch::kCPU);
      for (int i = 0; i < 50; ++i) {
        const Gradient got = replayed(replay, *graph, x, step_seed(5, rank, 9));
        wrong[rank] += got.loss != expected[rank].loss;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0, 0}));
}

TEST(Replay, TheUsersOwnGeneratorIsLeftAlone) {
  const auto graph = dropout_step();
  const torch::Tensor w = torch::randn({8, 16}, torch::kFloat64);
  const torch::Tensor x = torch::randn({4, 8}, torch::kFloat64);
  Replay replay(graph, capture::Bindings{{w}, {}, {}}, torch::kCPU);
  torch::manual_seed(3);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  replayed(replay, *graph, x, 1);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(Replay, AnyBatchSizeAndAnyStridesOfTheInput) {
  const auto graph = dropout_step();
  const torch::Tensor w = torch::randn({8, 16}, torch::kFloat64);
  Replay replay(graph, capture::Bindings{{w}, {}, {}}, torch::kCPU);
  for (const std::int64_t samples : {4, 1, 9, 4}) {
    const torch::Tensor x = torch::randn({8, samples}, torch::kFloat64).t();
    const Gradient expected = eager(w, x.contiguous(), 1);
    const Gradient got = replayed(replay, *graph, x, 1);
    EXPECT_NEAR(got.loss, expected.loss, 1e-10);
    EXPECT_TRUE(torch::allclose(got.of_w, expected.of_w, 1e-12, 1e-12)) << samples;
  }
}

TEST(Replay, RefusesInputsThatDoNotFit) {
  const auto graph = dropout_step();
  Replay replay(graph, capture::Bindings{{torch::zeros({8, 16}, torch::kFloat64)}, {}, {}},
                torch::kCPU);
  EXPECT_THROW(replay.begin({}, 0), Error);
  EXPECT_THROW(replay.begin({torch::zeros({4, 7}, torch::kFloat64)}, 0), Error);
  EXPECT_THROW(replay.begin({torch::zeros({4, 8}, torch::kFloat32)}, 0), Error);
}

TEST(Replay, AFixedBatchSaysWhy) {
  auto graph = std::make_shared<ir::Graph>(*dropout_step());
  graph->batch_fixed_reason = "aten::fold of 'unfold' is not affine";
  Replay replay(graph, capture::Bindings{{torch::zeros({8, 16}, torch::kFloat64)}, {}, {}},
                torch::kCPU);
  try {
    replay.begin({torch::zeros({5, 8}, torch::kFloat64)}, 0);
    FAIL() << "another batch was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("aten::fold"), std::string::npos);
  }
}

TEST(Replay, NoSeedOfAJobRepeats) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t job : {0, 1}) {
    for (std::uint32_t rank = 0; rank < 16; ++rank) {
      for (std::uint64_t step = 0; step < 64; ++step) {
        seen.insert(static_cast<std::uint32_t>(step_seed(job, rank, step)));
      }
    }
  }
  EXPECT_EQ(seen.size(), 2 * 16 * 64);
}

TEST(Bind, FindsParametersByNameAndSaysWhatIsWrong) {
  const auto graph = dropout_step();
  TrainingStep step;
  step.parameters = {{"w", torch::randn({8, 16}, torch::kFloat64).requires_grad_()}};
  const capture::Bindings bindings = capture::bind(*graph, step);
  EXPECT_TRUE(bindings.variables[0].is_alias_of(step.parameters[0].tensor));
  EXPECT_FALSE(bindings.variables[0].requires_grad());

  const auto message = [&](const NamedTensor& parameter) -> std::string {
    step.parameters = {parameter};
    try {
      capture::bind(*graph, step);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({"w", torch::zeros({8, 16})}),
            "bind: variable 'w' is f64 [8, 16] in graph 'dropout' and f32 [8, 16] in the model. "
            "Capture this model, or take the one that was captured.");
  EXPECT_EQ(message({"w", torch::zeros({16, 8}, torch::kFloat64)}),
            "bind: variable 'w' is f64 [8, 16] in graph 'dropout' and f64 [16, 8] in the model. "
            "Capture this model, or take the one that was captured.");
  EXPECT_NE(message({"v", torch::zeros({8, 16}, torch::kFloat64)}).find("has variable 'w'"),
            std::string::npos);
}

}  // namespace
}  // namespace autodist::exec
