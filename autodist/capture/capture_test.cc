#include "autodist/capture/capture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "autodist/base/error.h"
#include "autodist/capture/module_scope.h"
#include "autodist/capture/other_way.h"
#include "autodist/capture/testing/models.h"
#include "autodist/ir/graph_text.h"
#include "autodist/ir/own_ops.h"

namespace autodist::capture {
namespace {

const ir::Op& op_named(const ir::Graph& graph, const std::string& name) {
  for (const ir::Op& op : graph.ops) {
    if (op.name == name) return op;
  }
  throw std::out_of_range(name);
}

TEST(Capture, AConvolutionalNetworkWithBatchNormAndDropoutReplaysToTheBit) {
  expect_replays_at_any_batch(convolutional_network(), 5);
  expect_replays_at_any_batch(convolutional_network(9), 6);
}

TEST(Capture, AnExampleOfOneSampleServesAnyBatch) {
  expect_replays_at_any_batch(transformer(1), 7);
  expect_replays_at_any_batch(convolutional_network(1), 7);
}

TEST(Capture, ATransformerEncoderReplaysToTheBit) { expect_replays_at_any_batch(transformer(), 5); }

TEST(Capture, AnLstmReplaysToTheBit) {
  const WithoutOneDnn by_the_same_ops;
  expect_replays_at_any_batch(lstm(), 5);
}

TEST(Capture, ASparseEmbeddingReplaysToTheBitAndItsGradientIsSparse) {
  const TrainingStep step = sparse_embedding();
  expect_replays_at_any_batch(step, 5);
  const ir::Graph graph = capture_step(step);
  EXPECT_TRUE(graph.variables[0].sparse_gradient);
  EXPECT_FALSE(graph.variables[2].sparse_gradient);
}

// libtorch's sum of the two sparse gradients has fewer entries where indices meet.
TEST(Capture, ATableThatIsLookedUpTwiceReplaysToTheBit) {
  const at::Tensor table = torch::randn({9, 3}).requires_grad_();
  TrainingStep step;
  step.name = "pairs";
  step.parameters = {{"table", table}};
  step.example = {torch::arange(4), torch::arange(4, 8)};
  step.loss = [table](const Batch& batch) {
    const auto rows = [&](const at::Tensor& indices) {
      return torch::embedding(table, indices, -1, false, /*sparse=*/true);
    };
    return (rows(batch[0]) * rows(batch[1]) * rows(batch[0].floor_divide(2))).sum();
  };
  const CapturedStep captured = capture(step);
  EXPECT_TRUE(captured.graph.variables.front().sparse_gradient);
  EXPECT_EQ(captured.graph.batch_fixed_reason, "");
  for (std::int64_t i = 0; i < 16; ++i) {
    const std::int64_t samples = i < 8 ? 1 : 6;
    const Batch batch{torch::randint(9, {samples}), torch::randint(9, {samples})};
    verify_replay(step, captured.graph, captured.tensors, batch, 0);
  }
}

// A product with such a sum adds entries in the order in which they are stored.
TEST(Capture, ASumOfSparseTensorsInTheForwardPassIsLibtorchs) {
  torch::manual_seed(5);
  const auto edges = [] {
    return torch::sparse_coo_tensor(torch::randint(9, {2, 30}), torch::randn({30}), {9, 9});
  };
  const at::Tensor some = edges().coalesce();
  const at::Tensor others = edges();
  const TrainingStep step =
      make_training_step("neighbours", std::make_shared<torch::nn::LinearImpl>(9, 3),
                         [=](torch::nn::LinearImpl& net, const Batch& batch) {
                           const at::Tensor near = at::_sparse_mm(some + others, net.weight.t());
                           return batch[0].mm(near).pow(2).mean();
                         },
                         {torch::randn({6, 9})});
  expect_replays_at_any_batch(step, 5);
}

// As x[:, columns] in Python: the op's list of indices has none for the axes before.
TEST(Capture, AnIndexOfALaterAxisReplaysToTheBit) {
  torch::manual_seed(5);
  const at::Tensor columns = torch::tensor({2, 0, 2});
  const TrainingStep step =
      make_training_step("indexed", std::make_shared<torch::nn::LinearImpl>(6, 3),
                         [columns](torch::nn::LinearImpl& net, const Batch& batch) {
                           using torch::indexing::Slice;
                           const at::Tensor y = net.forward(batch[0]);
                           at::Tensor written = y.clone();
                           written.index_put_({Slice(), torch::tensor({1})},
                                              y.index({Slice(), columns.slice(0, 0, 1)}));
                           return written.index({Slice(), columns}).pow(2).mean();
                         },
                         {torch::randn({6, 6})});
  expect_replays_at_any_batch(step, 5);
}

// As a mixture of experts gives rows back their order: what an empty tensor holds is no constant,
// though the op that fills it leaves some of it alone by its schema.
TEST(Capture, AnEmptyTensorThatIsFilledInPartsReplaysToTheBit) {
  torch::manual_seed(5);
  const auto loss = [](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    const auto [sorted, order] = y.select(1, 0).sort();
    const at::Tensor back = torch::empty_like(order);
    back.index_put_({order}, torch::arange(order.size(0)));
    const at::Tensor positive = torch::empty({order.size(0)}, at::kBool);  // some bytes
    positive.index_put_({order}, sorted > 0);
    const at::Tensor chosen = y.index({order}).cumsum(0).index({back}) * positive.unsqueeze(1);
    return (chosen * sorted.unsqueeze(1)).pow(2).mean();
  };
  expect_replays_at_any_batch(
      make_training_step("sorted", std::make_shared<torch::nn::LinearImpl>(6, 3), loss,
                         {torch::randn({6, 6})}),
      5);
}

TEST(Capture, WhatTheHostWroteBelowAnOpThatFillsSomeOfItReplaysToTheBit) {
  torch::manual_seed(5);
  const auto loss = [](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor weights = torch::tensor({3.0F, 5.0F, 7.0F});
    weights.index_put_({torch::tensor({1})}, net.forward(batch[0]).detach().mean());
    return (net.forward(batch[0]) * weights).pow(2).mean();
  };
  expect_replays_at_any_batch(
      make_training_step("weighted", std::make_shared<torch::nn::LinearImpl>(6, 3), loss,
                         {torch::randn({6, 6})}),
      5);
}

// The size follows from a mask that is no part of the batch; of the second, from the batch's size.
TEST(Capture, AMaskThatIsAlikeInEveryStepReplaysToTheBit) {
  torch::manual_seed(5);
  using torch::indexing::Slice;
  const at::Tensor columns = torch::tensor({true, false, true});
  const auto step_of = [](const std::string& name, auto loss) {
    return make_training_step(name, std::make_shared<torch::nn::LinearImpl>(6, 3), loss,
                              {torch::randn({6, 6})});
  };
  expect_replays_at_any_batch(step_of("columns",
                                      [columns](torch::nn::LinearImpl& net, const Batch& batch) {
                                        const at::Tensor y = net.forward(batch[0]);
                                        return y.index({Slice(), columns}).pow(2).mean() +
                                               y.masked_select(columns).abs().mean();
                                      }),
                              5);
  const TrainingStep pairs = step_of("pairs", [](torch::nn::LinearImpl& net, const Batch& batch) {
    const at::Tensor y = net.forward(batch[0]);
    const at::Tensor others = torch::eye(y.size(0), torch::kBool).logical_not();
    return y.mm(y.t()).index({others}).view({y.size(0), -1}).logsumexp(1).mean();
  });
  const CapturedStep captured = capture(pairs);
  EXPECT_NE(captured.graph.batch_fixed_reason, "");
  expect_replays(pairs, captured, 6);
}

// One way for batches whose mask is all set, another for the others.
TrainingStep masked() {
  torch::manual_seed(5);
  return make_training_step("masked", std::make_shared<torch::nn::LinearImpl>(6, 3),
                            [](torch::nn::LinearImpl& net, const Batch& batch) {
                              const at::Tensor y = net.forward(batch[0]);
                              return batch[1].all().item<bool>() ? y.pow(2).mean()
                                                                 : (y * batch[1]).abs().mean();
                            },
                            {torch::randn({6, 6}), torch::ones({6, 3}, torch::kBool)});
}

TEST(Capture, ABooleanThatTheHostReadsIsAGuardOfTheExamplesWay) {
  TrainingStep step = masked();
  const CapturedStep whole = capture(step);
  EXPECT_EQ(whole.graph.batch_fixed_reason, "");
  EXPECT_EQ(ir::booleans_of(whole.graph), std::vector<bool>{true});
  EXPECT_NO_THROW(op_named(whole.graph, "aten::pow"));
  expect_replays(step, whole, 5);
  // The rows that are recorded at first have a mask that is all set; the example's is not.
  step.example[1][5][0] = false;
  const CapturedStep part = capture(step);
  EXPECT_EQ(part.graph.batch_fixed_reason, "");
  EXPECT_EQ(ir::booleans_of(part.graph), std::vector<bool>{false});
  EXPECT_NO_THROW(op_named(part.graph, "aten::abs"));
  EXPECT_NE(ir::structural_digest(part.graph), ir::structural_digest(whole.graph));
}

TEST(Capture, GoesTheWayThatItIsTold) {
  const TrainingStep step = masked();
  Options options;
  options.booleans = {false};
  const CapturedStep captured = capture(step, options);
  EXPECT_EQ(ir::booleans_of(captured.graph), std::vector<bool>{false});
  EXPECT_NO_THROW(op_named(captured.graph, "aten::abs"));
  EXPECT_THROW(verify_replay(step, captured.graph, captured.tensors, step.example, 3), OtherWay);
  Batch goes_so = step.example;
  goes_so[1] = goes_so[1].clone();
  goes_so[1][5][0] = false;
  verify_replay(step, captured.graph, captured.tensors, goes_so, 3);
}

TEST(Capture, AWayThatIsChosenAtRandom) {
  torch::manual_seed(5);
  const TrainingStep step =
      make_training_step("dropped", std::make_shared<torch::nn::LinearImpl>(6, 6),
                         [](torch::nn::LinearImpl& net, const Batch& batch) {
                           at::Tensor y = torch::dropout(net.forward(batch[0]), 0.5, true);
                           if ((torch::rand({}) < 0.5).item<bool>()) y = net.forward(y);
                           return torch::dropout(y, 0.5, true).pow(2).mean();
                         },
                         {torch::randn({6, 6})});
  for (const bool taken : {false, true}) {
    Options options;
    options.booleans = {taken};
    const CapturedStep captured = capture(step, options);
    EXPECT_EQ(captured.graph.batch_fixed_reason, "");
    EXPECT_EQ(ir::booleans_of(captured.graph), std::vector<bool>{taken});
  }
}

// A part whose forward pass is computed again in the backward pass, with the same random numbers,
// as torch.utils.checkpoint does it.
struct ComputedAgain : torch::autograd::Function<ComputedAgain> {
  static at::Tensor part(const at::Tensor& x, const at::Tensor& weight) {
    return torch::dropout(torch::dropout(x.mm(weight), 0.5, true).tanh(), 0.5, true);
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    context->saved_data["state"] = at::detail::getDefaultCPUGenerator().get_state();
    return part(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor outer = generator.get_state();
    generator.set_state(context->saved_data["state"].toTensor());
    const at::AutoGradMode enabled(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor weight = context->get_saved_variables()[1].detach().requires_grad_();
    const at::Tensor y = part(x, weight);
    generator.set_state(outer);
    return torch::autograd::grad({y}, {x, weight}, {gradients[0]});
  }
};

TEST(Capture, ADropoutThatIsComputedAgainDrawsTheSameNumbersAgain) {
  torch::manual_seed(5);
  const TrainingStep step =
      make_training_step("recomputed", std::make_shared<torch::nn::LinearImpl>(6, 6),
                         [](torch::nn::LinearImpl& net, const Batch& batch) {
                           const at::Tensor y = torch::dropout(net.forward(batch[0]), 0.5, true);
                           const at::Tensor z = ComputedAgain::apply(y, net.weight);
                           return torch::dropout(z, 0.5, true).pow(2).mean();
                         },
                         {torch::randn({6, 6})});
  expect_replays_at_any_batch(step, 5);
  const ir::Graph graph = capture_step(step);
  const auto count = [&](const char* name) {
    return std::count_if(graph.ops.begin(), graph.ops.end(),
                         [&](const ir::Op& op) { return op.name == name; });
  };
  EXPECT_EQ(count(ir::kKeepGeneratorOp), 2);  // of four that draw in the forward pass
  EXPECT_EQ(count(ir::kSetGeneratorOp), 4);
}

struct Tied : torch::nn::Module {
  Tied() {
    embedding = register_module("embedding", torch::nn::Embedding(20, 6));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(6, 20).bias(false)));
    head->weight = embedding->weight;
    head->register_parameter("weight2", embedding->weight);
    unused = register_module("unused", torch::nn::Linear(3, 3));
    frozen = register_parameter("frozen", torch::ones({6}) * 0.5, false);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear head{nullptr};
  torch::nn::Linear unused{nullptr};
  at::Tensor frozen;
};

TrainingStep tied() {
  torch::manual_seed(6);
  const auto net = std::make_shared<Tied>();
  TrainingStep step =
      make_training_step("tied", net,
                         [](Tied& tied, const Batch& batch) {
                           const at::Tensor x = tied.embedding(batch[0]).mean(1) * tied.frozen;
                           return torch::nn::functional::cross_entropy(tied.head(x), batch[1]);
                         },
                         {torch::randint(0, 20, {4, 3}), torch::randint(0, 20, {4})});
  step.parameters = {{"embedding.weight", net->embedding->weight},
                     {"head.weight", net->embedding->weight},
                     {"frozen", net->frozen},
                     {"unused.weight", net->unused->weight}};
  return step;
}

TEST(Capture, ATiedWeightIsOneVariableWhoseGradientIsTheSumOfItsContributions) {
  const TrainingStep step = tied();
  const CapturedStep captured = capture(step);
  const ir::Graph& graph = captured.graph;
  ASSERT_EQ(graph.variables.size(), 2u);
  EXPECT_EQ(graph.variables[0].name, "embedding.weight");
  EXPECT_EQ(graph.variables[0].aliases, std::vector<std::string>{"head.weight"});
  const Batch data = other_batch(step, 5);
  const Contents plain = plain_step(step, data, 1);
  const Contents replayed = replayed_step(captured, data, 1);
  EXPECT_EQ(digest_of(plain.at("grad embedding.weight")),
            digest_of(replayed.at("grad embedding.weight")));
  EXPECT_EQ(digest_of(plain.at("loss")), digest_of(replayed.at("loss")));
}

TEST(Capture, AnUnusedParameterHasNoGradientAndAFrozenOneIsANamedConstant) {
  const ir::Graph graph = capture_step(tied());
  EXPECT_EQ(graph.variables[1].name, "unused.weight");
  EXPECT_FALSE(graph.variables[1].gradient);
  EXPECT_FALSE(graph.variables[1].first_use);
  ASSERT_FALSE(graph.constants.empty());
  EXPECT_EQ(graph.constants[0].name, "frozen");
  EXPECT_TRUE(graph.constants[0].bytes.empty());
}

TEST(Capture, BatchNormsStatisticsAreMutatedBuffersThoughItsSchemaDoesNotSaySo) {
  const ir::Graph graph = capture_step(convolutional_network());
  ASSERT_EQ(graph.buffers.size(), 3u);
  for (const ir::Buffer& buffer : graph.buffers) EXPECT_TRUE(buffer.mutated) << buffer.name;
  EXPECT_EQ(op_named(graph, "aten::native_batch_norm").writes, (std::vector<std::uint32_t>{3, 4}));
}

TEST(Capture, AnInPlaceOpMakesTheNextVersionOfItsStorage) {
  const ir::Graph graph = capture_step(convolutional_network());
  const ir::Op& relu = op_named(graph, "aten::relu_");
  const ir::Value& before = graph.value(std::get<ir::ValueId>(relu.arguments[0]));
  const ir::Value& after = graph.value(std::get<ir::ValueId>(relu.results[0]));
  EXPECT_EQ(after.storage, before.storage);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_EQ(after.version, before.version + 1);
}

TEST(Capture, TheBatchIsSymbolicInShapesAndInArguments) {
  const ir::Graph graph = capture_step(convolutional_network());
  EXPECT_EQ(graph.value(graph.inputs[0].value).type.sizes[0], (ir::Affine{1, 0}));
  EXPECT_EQ(graph.value(graph.inputs[0].value).type.sizes[1], (ir::Affine{0, 3}));
  EXPECT_TRUE(graph.inputs[1].batched);
}

// A table that every replica gets whole, with as many rows as the example has samples by chance.
TrainingStep with_a_table(std::vector<bool> batched, std::int64_t rows = 4) {
  torch::manual_seed(9);
  torch::Tensor w = torch::randn({5, 3}).set_requires_grad(true);
  TrainingStep step;
  step.name = "table";
  step.parameters = {{"w", w}};
  step.loss = [w](const Batch& batch) {
    return batch[0].matmul(w).matmul(batch[1].t()).tanh().mean();
  };
  step.example = {torch::randn({4, 5}), torch::randn({rows, 3})};
  step.batched = std::move(batched);
  return step;
}

TEST(Capture, AnInputThatIsNoPartOfTheBatchCanBeDeclaredSo) {
  const ir::Graph graph = capture_step(with_a_table({true, false}));
  EXPECT_EQ(graph.batch_fixed_reason, "");
  EXPECT_TRUE(graph.inputs[0].batched);
  EXPECT_FALSE(graph.inputs[1].batched);
  EXPECT_EQ(graph.value(graph.inputs[1].value).type.sizes[0], (ir::Affine{0, 4}));
  EXPECT_TRUE(capture_step(with_a_table({})).inputs[1].batched);
}

TEST(Capture, ADeclarationThatDoesNotFitTheExampleIsRefused) {
  const auto refusal = [](const TrainingStep& step) -> std::string {
    try {
      capture_step(step);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(with_a_table({true})),
            "capture: 'table' says of 1 inputs whether they are split, it has 2. Say it of each "
            "(batched).");
  EXPECT_EQ(refusal(with_a_table({true, true}, 7)),
            "capture: 'table' splits input 1 of size [7, 3], the batch has 4 rows. Give it as "
            "many, or say that it is not split (batched).");
}

TEST(Capture, OpsBelongToTheModulesOfTheirParametersInBothPhases) {
  const ir::Graph graph = capture_step(convolutional_network());
  const ir::Op& forward = op_named(graph, "aten::native_batch_norm");
  const ir::Op& backward = op_named(graph, "aten::native_batch_norm_backward");
  EXPECT_EQ(graph.scopes[forward.scope.value], "norm");
  EXPECT_EQ(forward.phase, ir::Phase::kForward);
  EXPECT_EQ(graph.scopes[backward.scope.value], "norm");
  EXPECT_EQ(backward.phase, ir::Phase::kBackward);
  EXPECT_EQ(graph.scopes[op_named(graph, "aten::bernoulli_").scope.value], "conv2");
}

TEST(Capture, ADeclaredScopeWins) {
  torch::manual_seed(7);
  const TrainingStep step =
      make_training_step("linear", std::make_shared<torch::nn::LinearImpl>(4, 4),
                         [](torch::nn::LinearImpl& net, const Batch& batch) {
                           const ModuleScope block("block");
                           const ModuleScope layer("layer");
                           return net.forward(batch[0]).pow(2).mean();
                         },
                         {torch::randn({4, 4})});
  const ir::Graph graph = capture_step(step);
  for (const ir::Op& op : graph.ops) {
    if (op.phase == ir::Phase::kForward) {
      EXPECT_EQ(graph.scopes[op.scope.value], "block.layer") << op.name;
    }
  }
}

// torch::tensor fills an aten::empty behind the dispatcher's back.
TEST(Capture, AConstantThatTheHostMakesAlikeEveryTimeIsKept) {
  torch::manual_seed(8);
  const TrainingStep step = make_training_step(
      "linear", std::make_shared<torch::nn::LinearImpl>(4, 3),
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        const at::Tensor weights = torch::tensor(std::vector<float>{1, 2, 3}).mul_(2);
        return (net.forward(batch[0]) * weights).pow(2).mean();
      },
      {torch::randn({4, 4})});
  expect_replays_at_any_batch(step, 5);
  const ir::Graph graph = capture_step(step);
  ASSERT_EQ(graph.constants.size(), 1u);
  EXPECT_EQ(graph.constants[0].bytes.size(), 3 * sizeof(float));
}

TEST(Capture, AMeanMadeOfAReciprocalOfTheBatchStaysSymbolic) {
  torch::manual_seed(8);
  expect_replays_at_any_batch(
      make_training_step("linear", std::make_shared<torch::nn::LinearImpl>(4, 3),
                         [](torch::nn::LinearImpl& net, const Batch& batch) {
                           const double scale = 1.0 / static_cast<double>(batch[0].size(0));
                           return net.forward(batch[0]).pow(2).sum() * scale;
                         },
                         {torch::randn({4, 4})}),
      7);
}

TEST(Capture, ComplexNumbersAreArguments) {
  torch::manual_seed(8);
  const TrainingStep step = make_training_step(
      "linear", std::make_shared<torch::nn::LinearImpl>(4, 3),
      [](torch::nn::LinearImpl& net, const Batch& batch) {
        const at::Tensor y = net.forward(batch[0]);
        const at::Tensor turned = torch::rsub(torch::complex(y, y), c10::complex<double>(0.5, 2));
        return torch::polar(turned.abs(), y).sum().abs() / batch[0].size(0);
      },
      {torch::randn({4, 4})});
  expect_replays_at_any_batch(step, 7);
  EXPECT_NE(ir::to_text(capture_step(step)).find("0.5+2.0j"), std::string::npos);
}

TEST(Capture, TwoCapturesHaveTheSameStructure) {
  EXPECT_EQ(ir::structural_digest(capture_step(transformer())),
            ir::structural_digest(capture_step(transformer())));
}

TEST(Capture, LeavesParametersGradientsBuffersAndGeneratorsAsTheyWere) {
  const TrainingStep step = convolutional_network();
  step.parameters[0].tensor.mutable_grad() = torch::full({8, 3, 3, 3}, 3.0);
  const std::vector<at::Tensor> parameters = copies(step.parameters);
  const std::vector<at::Tensor> buffers = copies(step.buffers);
  torch::manual_seed(5);
  const at::Tensor expected = torch::rand({3});
  torch::manual_seed(5);
  capture_step(step);
  EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(digest_of(parameters[i]), digest_of(step.parameters[i].tensor));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(digest_of(buffers[i]), digest_of(step.buffers[i].tensor));
  }
  EXPECT_EQ(step.parameters[0].tensor.grad().sum().item<float>(), 3.0F * 216);
  EXPECT_FALSE(step.parameters[1].tensor.grad().defined());
}

// A cache whose contents an attribute vouches for, and an average that goes on from step to step.
TEST(Capture, WhatTheFirstCallSetsUpStays) {
  const at::Tensor weight = torch::ones({3}).requires_grad_();
  const at::Tensor cache = torch::zeros({3});
  const at::Tensor average = torch::zeros({3});
  bool filled = false;
  TrainingStep step;
  step.name = "caching";
  step.parameters = {{"weight", weight}};
  step.buffers = {{"cache", cache}, {"average", average}};
  step.example = {torch::rand({6, 3})};
  step.loss = [&](const Batch& batch) {
    const at::NoGradGuard no_gradients;
    if (!filled) cache.copy_(torch::arange(1, 4));
    filled = true;
    average.mul_(0.5).add_(batch[0].mean(0));
    const at::AutoGradMode gradients(true);
    return (batch[0] * weight * cache).sum();
  };
  capture_step(step);
  EXPECT_TRUE(torch::equal(cache, torch::arange(1, 4).to(at::kFloat)));
  EXPECT_TRUE(torch::equal(average, torch::zeros({3})));
}

TEST(Capture, MeasuresEveryOpAndCountsItsWork) {
  const ir::Graph graph = capture_step(convolutional_network());
  double seconds = 0;
  for (const ir::Op& op : graph.ops) {
    EXPECT_GE(op.cost.fixed.value, 0);
    EXPECT_GE(op.cost.per_sample.value, 0);
    seconds += op.cost.at(4).value;
  }
  EXPECT_GT(seconds, 0);
  // 3 -> 8 channels, 3 x 3, on 8 x 8 pixels.
  EXPECT_EQ(op_named(graph, "aten::convolution").flops, (ir::Affine{2 * 8 * 27 * 64, 0}));
  EXPECT_GT(graph.peak_bytes.per_sample, 8 * 8 * 8 * 4);
  EXPECT_GT(graph.peak_bytes.constant, 0);
}

TEST(Capture, AnEvaluationGraphHasNoBackwardOps) {
  TrainingStep step = transformer();
  const auto net = std::static_pointer_cast<Transformer>(step.owner);
  step.evaluate = [net](const Batch& batch) {
    return std::vector<at::Tensor>{net->forward(batch[0])};
  };
  const CapturedStep captured = capture_evaluation(step);
  for (const ir::Op& op : captured.graph.ops) EXPECT_EQ(op.phase, ir::Phase::kForward);
  const Batch data = other_batch(step, 5);
  Interpreter replay(captured.graph, captured.tensors, {}, 5);
  replay.run(data);
  const at::NoGradGuard no_gradients;
  EXPECT_EQ(digest_of(replay.tensor(captured.graph.outputs[0])), digest_of(step.evaluate(data)[0]));
}

// Constant while it was captured, and so invisible to the capture.
TEST(VerifyReplay, NoticesALossWeightThatTheHostChangesLater) {
  double weight = 1;
  TrainingStep step = tied();
  step.loss = [loss = step.loss, &weight](const Batch& batch) { return loss(batch) * weight; };
  const CapturedStep captured = capture(step);
  const Batch data = other_batch(step, 3);
  verify_replay(step, captured.graph, captured.tensors, data, 1);
  weight = 0.5;
  try {
    verify_replay(step, captured.graph, captured.tensors, data, 1);
    FAIL() << "not noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the loss"), std::string::npos) << error.what();
  }
}

TEST(Bind, FindsTheTensorsOfAGraphByName) {
  const TrainingStep step = tied();
  const CapturedStep captured = capture(step);
  const Bindings bound = bind(captured.graph, step);
  ASSERT_EQ(bound.variables.size(), captured.tensors.variables.size());
  EXPECT_TRUE(bound.variables[0].is_alias_of(step.parameters[0].tensor));
  ASSERT_EQ(bound.constants.size(), captured.tensors.constants.size());
  EXPECT_TRUE(torch::equal(bound.constants[0], captured.tensors.constants[0]));
}

TEST(Bind, NamesWhatTheModelLacksAndWhatHasAnotherShape) {
  const ir::Graph graph = capture_step(tied());
  TrainingStep other = tied();
  for (NamedTensor& each : other.parameters) each.name = "its." + each.name;  // no alias is left
  try {
    bind(graph, other);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("variable 'embedding.weight'"), std::string::npos);
  }
  other = tied();
  other.parameters[0].tensor = torch::zeros({20, 7}, torch::requires_grad());
  try {
    bind(graph, other);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[20, 7]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace autodist::capture
