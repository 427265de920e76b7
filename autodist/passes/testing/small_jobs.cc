#include "autodist/passes/testing/small_jobs.h"

#include <fmt/format.h>

#include "autodist/ir/graph_builder.h"

namespace autodist::passes {
namespace {

const ir::UpdateRule kSgd{ir::Rule::kSgd, {{"lr", 0.1}}, ""};

struct Linear {
  ir::ValueId input;
  ir::ValueId weight;
  ir::ValueId bias;
  std::int64_t rows;
  std::int64_t columns;
};

ir::ValueId forward(ir::GraphBuilder& step, const Linear& layer) {
  const auto type = ir::contiguous({ir::batch(), layer.columns});
  const ir::ValueId product = step.op("aten::mm", {layer.input, layer.weight}, type);
  return step.op("aten::add", {product, layer.bias}, type);
}

// The gradient of the layer's input comes last and reads the weight: the weight is released after
// its gradient is complete.
ir::ValueId backward(ir::GraphBuilder& step, const Linear& layer, ir::ValueId gradient) {
  step.gradient(layer.bias, step.op("aten::sum", {gradient}, ir::contiguous({layer.columns})));
  step.gradient(layer.weight, step.op("aten::mm", {layer.input, gradient},
                                      ir::contiguous({layer.rows, layer.columns})));
  return step.op("aten::mm", {gradient, layer.weight}, ir::contiguous({ir::batch(), layer.rows}));
}

void add_two_layers(ir::GraphBuilder& step) {
  const ir::ValueId x = step.input("x", ir::contiguous({ir::batch(), 8}));
  const ir::ValueId w1 = step.variable("fc1.weight", ir::contiguous({8, 10}), kSgd);
  const ir::ValueId b1 = step.variable("fc1.bias", ir::contiguous({10}), kSgd);
  const ir::ValueId w2 = step.variable("fc2.weight", ir::contiguous({10, 4}), kSgd);
  const ir::ValueId b2 = step.variable("fc2.bias", ir::contiguous({4}), kSgd);
  const Linear first{x, w1, b1, 8, 10};
  step.scope("fc1");
  const Linear second{forward(step, first), w2, b2, 10, 4};
  step.scope("fc2");
  const ir::ValueId y = forward(step, second);
  step.output(step.op("aten::sum", {y}, ir::contiguous({})));
  step.backward();
  const ir::ValueId dy = step.op("aten::ones_like", {y}, ir::contiguous({ir::batch(), 4}));
  const ir::ValueId hidden = backward(step, second, dy);
  step.scope("fc1");
  backward(step, first, hidden);
}

}  // namespace

ir::Graph two_layers() {
  ir::GraphBuilder step("two_layers", 4);
  add_two_layers(step);
  return step.finish();
}

ir::Graph layers_with_unused() {
  ir::GraphBuilder step("layers_with_unused", 4);
  step.variable("unused", ir::contiguous({5}), kSgd);
  const ir::ValueId scale = step.variable("scale", ir::contiguous({1}), kSgd);
  step.op("aten::detach", {scale}, ir::contiguous({1}));
  add_two_layers(step);
  return step.finish();
}

ir::Graph tied_layers() {
  ir::GraphBuilder step("tied", 4);
  const ir::ValueId x = step.input("x", ir::contiguous({ir::batch(), 6}));
  const ir::ValueId w = step.variable("embed.weight", ir::contiguous({6, 4}), kSgd);
  const ir::ValueId b = step.variable("bias", ir::contiguous({4}), kSgd);
  const auto narrow = ir::contiguous({ir::batch(), 4});
  const auto wide = ir::contiguous({ir::batch(), 6});
  const ir::ValueId h = step.op("aten::mm", {x, w}, narrow);
  const ir::ValueId z = step.op("aten::add", {h, b}, narrow);
  const ir::ValueId w_t = step.view("aten::t", w, ir::contiguous({4, 6}));
  const ir::ValueId y = step.op("aten::mm", {z, w_t}, wide);
  step.output(step.op("aten::sum", {y}, ir::contiguous({})));
  step.backward();
  const ir::ValueId dy = step.op("aten::ones_like", {y}, wide);
  const ir::ValueId dw_out = step.op("aten::mm", {dy, z}, ir::contiguous({6, 4}));
  const ir::ValueId dz = step.op("aten::mm", {dy, w}, narrow);
  step.gradient(b, step.op("aten::sum", {dz}, ir::contiguous({4})));
  const ir::ValueId dw_in = step.op("aten::mm", {x, dz}, ir::contiguous({6, 4}));
  step.gradient(w, step.op("aten::add", {dw_out, dw_in}, ir::contiguous({6, 4})));
  return step.finish();
}

cluster::Cluster hosts(int nodes) {
  cluster::Cluster cluster;
  for (int i = 0; i < nodes; ++i) {
    cluster::Node node;
    node.address = fmt::format("10.0.0.{}", i + 1);
    node.cpus = {cluster::Device{}};
    node.chief = i == 0;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

strategy::Synchronizer ps(const std::string& destination) {
  return strategy::PsSynchronizer{destination, false, true, 0};
}

strategy::Synchronizer direct(int group) {
  return strategy::AllReduceSynchronizer{strategy::AllReduceSpec::kNccl,
                                         strategy::Compressor::kNone, group,
                                         strategy::AllReduceAlgorithm::kBySpec};
}

strategy::Synchronizer library(int group, strategy::AllReduceSpec spec) {
  return strategy::AllReduceSynchronizer{spec, strategy::Compressor::kNone, group,
                                         strategy::AllReduceAlgorithm::kLibrary};
}

strategy::Strategy plan(const ir::Graph& graph, const cluster::Cluster& cluster,
                        const std::function<strategy::Synchronizer(std::size_t variable)>& choose) {
  strategy::Strategy strategy;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    strategy::NodeConfig node;
    node.name = strategy::node_name(graph.variables[i].name);
    node.synchronizer = choose(i);
    strategy.nodes.push_back(node);
  }
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    if (!place.serves_only) strategy.replicas.push_back(cluster::device_name(cluster, place));
  }
  return strategy;
}

void split(strategy::NodeConfig& node, std::size_t axis, std::size_t axes, int shards,
           const std::function<strategy::Synchronizer(int shard)>& choose) {
  const std::string name = strategy::variable_name(node.name);
  for (std::size_t i = 0; i < axes; ++i) {
    node.partitioner += fmt::format("{}{}", i == 0 ? "" : ",", i == axis ? shards : 1);
  }
  node.synchronizer = {};
  for (int i = 0; i < shards; ++i) {
    strategy::NodeConfig part;
    part.name = strategy::node_name(fmt::format("{}/part_{}", name, i));
    part.synchronizer = choose(i);
    node.parts.push_back(part);
  }
}

}  // namespace autodist::passes
