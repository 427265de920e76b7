#include "autodist/capture/recorder.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include <optional>
#include <set>

#include "autodist/base/error.h"
#include "autodist/capture/testing/models.h"

namespace autodist::capture {
namespace {

// Adds one to `target`, which its schema does not tell.
at::Tensor scribble(const at::Tensor& x, const at::Tensor& target) {
  *target.data_ptr<float>() += 1;
  return x.clone();
}

TORCH_LIBRARY(autodist_test, library) {
  library.def("scribble(Tensor x, Tensor target) -> Tensor");
}
TORCH_LIBRARY_IMPL(autodist_test, CPU, library) { library.impl("scribble", &scribble); }

at::Tensor call_scribble(const at::Tensor& x, const at::Tensor& target) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("autodist_test::scribble", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return op.call(x, target);
}

using LossFunction = std::function<at::Tensor(torch::nn::LinearImpl&, const Batch&)>;

TrainingStep linear_step(const LossFunction& loss) {
  torch::manual_seed(5);
  return make_training_step("linear", std::make_shared<torch::nn::LinearImpl>(4, 4), loss,
                            {torch::randn({4, 4})});
}

ir::Graph record(const LossFunction& loss) {
  const TrainingStep step = linear_step(loss);
  return record_training(step, step.example, {}).graph;
}

int count(const ir::Graph& graph, const std::string& name) {
  int result = 0;
  for (const ir::Op& op : graph.ops) result += op.name == name;
  return result;
}

TEST(Recorder, KeepsNoIntermediateAlive) {
  bool expired = false;
  record([&](torch::nn::LinearImpl& net, const Batch& batch) {
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> watched;
    {
      const at::Tensor temporary = batch[0] * 2;
      watched.emplace(temporary.storage().getWeakStorageImpl());
    }
    expired = watched->expired();
    return net.forward(batch[0]).pow(2).mean();
  });
  EXPECT_TRUE(expired);
}

TEST(Recorder, MemoryThatIsUsedAgainIsAnotherStorage) {
  const ir::Graph graph = record([](torch::nn::LinearImpl& net, const Batch& batch) {
    at::Tensor sum = torch::zeros({4, 4});
    for (int i = 1; i <= 20; ++i) sum = sum + (batch[0] * i).exp();  // each is freed at once
    return (net.forward(batch[0]) * sum).mean();
  });
  std::set<ir::StorageId> made;
  for (const ir::Op& op : graph.ops) {
    if (op.name != "aten::exp") continue;
    made.insert(graph.value(std::get<ir::ValueId>(op.results[0])).storage);
  }
  EXPECT_EQ(made.size(), 20u);
}

TEST(Recorder, AnOpThatYieldsWhatIsThereAlreadyIsNone) {
  const ir::Graph graph = record([](torch::nn::LinearImpl& net, const Batch& batch) {
    return net.forward(batch[0].detach().alias()).pow(2).mean();
  });
  EXPECT_EQ(count(graph, "aten::detach"), 0);
  EXPECT_EQ(count(graph, "aten::alias"), 0);
  EXPECT_EQ(count(graph, "aten::addmm"), 1);
}

TEST(Recorder, ViewsOfOneStorageUnderAnotherTypeAreOtherValues) {
  const ir::Graph graph = record([](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor bits = batch[0].view(at::kInt);
    const at::Tensor sign = (bits >= 0).to(at::kFloat);
    return (net.forward(batch[0]) * sign).mean();
  });
  std::set<DType> types;
  for (const ir::Value& value : graph.values) {
    if (value.storage == graph.value(graph.inputs[0].value).storage) types.insert(value.type.dtype);
  }
  EXPECT_EQ(types, (std::set<DType>{DType::kFloat32, DType::kInt32}));
}

TEST(Recorder, AnOpThatChangesTheViewOfItsArgumentReplays) {
  expect_replays_at_any_batch(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                                at::Tensor x = batch[0] * 2;
                                const at::Tensor same = x.alias();
                                x.unsqueeze_(1);
                                x.squeeze_(1);
                                return (net.forward(x) * same).mean();
                              }),
                              5);
}

TEST(Recorder, AWriteThroughAViewReplays) {
  expect_replays_at_any_batch(linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
                                const at::Tensor y = net.forward(batch[0]);
                                at::Tensor scaled = y * 1;
                                scaled.select(1, 0).mul_(3);
                                scaled.slice(1, 2, 4).zero_();
                                return (scaled + y.pow(2)).mean();
                              }),
                              5);
}

TEST(Recorder, RefusesAWriteThatNoSchemaDeclares) {
  TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    static const at::Tensor counter = torch::zeros({1, 1});
    return net.forward(call_scribble(batch[0], counter)).pow(2).mean();
  });
  RecordOptions options;
  options.check_writes = true;
  try {
    record_training(step, step.example, options);
    FAIL() << "recorded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("autodist_test::scribble"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("does not declare"), std::string::npos);
  }
}

// A layer used several times, some of whose uses are in another module.
TEST(Recorder, ContributionsToOneGradientAreSummedInTheGraph) {
  const TrainingStep step = linear_step([](torch::nn::LinearImpl& net, const Batch& batch) {
    return net.forward(torch::relu(net.forward(net.forward(batch[0])))).pow(2).mean();
  });
  const ir::Graph graph = record_training(step, step.example, {}).graph;
  ASSERT_TRUE(graph.variables[0].gradient_complete);
  const ir::Op& last = graph.op(*graph.variables[0].gradient_complete);
  EXPECT_TRUE(last.name == "aten::add" || last.name == "aten::add_") << last.name;
  expect_replays_at_any_batch(step, 5);
}

TEST(Recorder, AHookThatEditsAGradientIsPartOfTheStep) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(4, 4);
  net->weight.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
  const TrainingStep step =
      make_training_step("hooked", net,
                         [](torch::nn::LinearImpl& linear, const Batch& batch) {
                           return linear.forward(batch[0]).pow(2).mean();
                         },
                         {torch::randn({4, 4})});
  expect_replays_at_any_batch(step, 5);
}

}  // namespace
}  // namespace autodist::capture
