// The shipped graphs: published counts, published work, and a plan for each. Needs no libtorch.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "autodist/base/units.h"
#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph_file.h"
#include "autodist/ir/liveness.h"
#include "autodist/passes/pipeline.h"
#include "autodist/search/builders/builders.h"

namespace autodist {
namespace {

namespace fs = std::filesystem;

ir::Graph shipped(const std::string& name) {
  return ir::read_graph(std::string(AUTODIST_SOURCE_DIR) + "/data/graphs/" + name + ".adg");
}

std::int64_t parameters(const ir::Graph& graph) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    count += element_count(graph, ir::VariableId(i));
  }
  return count;
}

struct Published {
  std::int64_t parameters;
  std::size_t tensors;
};

// torchvision 0.14 for images (Inception-v3 without its auxiliary classifier), Hugging Face for
// BERT (uncased, with pooler) and GPT-2 (tied), MLPerf for NCF. bert-3layer is the base size with
// three layers. lm1b: Jozefowicz et al., 2016, table 1, LSTM-2048-512 (its softmax has a bias).
const std::map<std::string, Published>& published() {
  static const std::map<std::string, Published> table{
      {"resnet50", {25'557'032, 161}},     {"resnet101", {44'549'160, 314}},
      {"vgg16", {138'357'544, 32}},        {"vgg19", {143'667'240, 38}},
      {"inception-v3", {23'834'568, 284}}, {"densenet121", {7'978'856, 364}},
      {"bert-3layer", {45'691'392, 55}},   {"bert-base", {109'482'240, 199}},
      {"bert-large", {335'141'888, 391}},  {"gpt2", {124'439'808, 148}},
      {"ncf", {31'832'577, 12}},           {"lm1b", {822'761'343, 8}},
      {"ncf-dense", {31'832'577, 12}},     {"nmt", {83'411'200, 19}},
  };
  return table;
}

TEST(ShippedGraphs, HaveThePublishedParametersAndTensors) {
  for (const auto& [name, expected] : published()) {
    const ir::Graph graph = shipped(name);
    EXPECT_EQ(parameters(graph), expected.parameters) << name;
    EXPECT_EQ(graph.variables.size(), expected.tensors) << name;
  }
}

// So that published checkpoints load: from each kind of layer one name, and the shape under it.
TEST(ShippedGraphs, HaveThePublishedNamesAndShapes) {
  struct Expected {
    std::string model, variable;
    std::vector<std::int64_t> shape;
  };
  const std::vector<Expected> table{
      {"resnet50", "conv1.weight", {64, 3, 7, 7}},
      {"resnet50", "layer1.0.downsample.1.bias", {256}},
      {"resnet50", "layer3.5.conv2.weight", {256, 256, 3, 3}},
      {"resnet101", "layer3.22.bn3.weight", {1024}},
      {"resnet101", "fc.weight", {1000, 2048}},
      {"vgg16", "features.28.weight", {512, 512, 3, 3}},
      {"vgg16", "classifier.6.bias", {1000}},
      {"vgg19", "features.34.bias", {512}},
      {"vgg19", "classifier.0.weight", {4096, 25088}},
      {"inception-v3", "Conv2d_4a_3x3.conv.weight", {192, 80, 3, 3}},
      {"inception-v3", "Mixed_6e.branch7x7dbl_2.conv.weight", {192, 192, 7, 1}},
      {"inception-v3", "Mixed_7c.branch3x3dbl_3a.bn.bias", {384}},
      {"densenet121", "features.denseblock3.denselayer24.conv1.weight", {128, 992, 1, 1}},
      {"densenet121", "features.transition2.conv.weight", {256, 512, 1, 1}},
      {"densenet121", "features.norm5.bias", {1024}},
      {"bert-base", "embeddings.token_type_embeddings.weight", {2, 768}},
      {"bert-base", "encoder.layer.11.attention.self.query.bias", {768}},
      {"bert-large", "encoder.layer.23.attention.output.LayerNorm.weight", {1024}},
      {"bert-large", "pooler.dense.weight", {1024, 1024}},
      {"gpt2", "wpe.weight", {1024, 768}},
      {"gpt2", "h.11.attn.c_attn.weight", {768, 2304}},
      {"gpt2", "h.0.mlp.c_proj.weight", {3072, 768}},
      {"ncf", "mlp_user_embed.weight", {138493, 128}},
      {"lm1b", "lstm.weight_hr_l0", {512, 2048}},
  };
  for (const Expected& each : table) {
    const ir::Graph graph = shipped(each.model);
    const auto found =
        std::find_if(graph.variables.begin(), graph.variables.end(),
                     [&](const ir::Variable& variable) { return variable.name == each.variable; });
    ASSERT_NE(found, graph.variables.end()) << each.model << ": " << each.variable;
    const ir::VariableId id(static_cast<std::size_t>(found - graph.variables.begin()));
    EXPECT_EQ(shape_of(graph, id), each.shape) << each.model << ": " << each.variable;
  }
}

TEST(ShippedGraphs, AreTrainedWhole) {
  for (const auto& [name, expected] : published()) {
    const ir::Graph graph = shipped(name);
    EXPECT_EQ(graph.batch_fixed_reason, "") << name;
    for (const ir::Variable& variable : graph.variables) {
      EXPECT_TRUE(variable.gradient) << name << ": " << variable.name;
    }
  }
}

// Multiply-adds of one image's forward pass, in units of 1e9: ResNet-50 4.09, VGG-19 19.6
// (torchvision's tables). We count a multiply-add as two.
TEST(ShippedGraphs, DoThePublishedWork) {
  const std::map<std::string, double> expected{{"resnet50", 4.09},    {"resnet101", 7.80},
                                               {"vgg16", 15.47},      {"vgg19", 19.63},
                                               {"densenet121", 2.83}, {"inception-v3", 5.71}};
  for (const auto& [name, giga] : expected) {
    const ir::Graph graph = shipped(name);
    double flops = 0;
    for (const ir::Op& op : graph.ops) {
      if (op.name == "aten::convolution" || op.name == "aten::addmm") {
        flops += static_cast<double>(op.flops.at(1));
      }
    }
    EXPECT_NEAR(flops / 2e9, giga, 0.01 * giga) << name;
  }
}

// It holds parameters and gradients.
TEST(ShippedGraphs, KnowTheirPeakMemory) {
  for (const auto& [name, expected] : published()) {
    const ir::Graph graph = shipped(name);
    EXPECT_GT(graph.peak_bytes.at(1), 4 * expected.parameters) << name;
    EXPECT_GT(graph.peak_bytes.at(64), graph.peak_bytes.at(1)) << name;
  }
}

// Whatever the batch that they were captured at.
TEST(ShippedGraphs, HaveMoreActivationsWithMoreSamples) {
  for (const auto& [name, expected] : published()) {
    const ir::Graph graph = shipped(name);
    const std::int64_t one = activation_bytes(graph, 1);
    const std::int64_t many = activation_bytes(graph, 64);
    EXPECT_GT(one, 0) << name;
    EXPECT_GT(many, 4 * one) << name;
    EXPECT_GE(peak_bytes(graph, 64), many) << name;
  }
  // 24 layers of 64 sequences: what they keep for the backward pass, not their parameters.
  EXPECT_NEAR(static_cast<double>(activation_bytes(shipped("bert-large"), 64)) / (1 << 30), 20.9,
              0.1);
}

TEST(ShippedGraphs, CanBePlannedAndRewritten) {
  const cluster::Cluster cluster = cluster::read_cluster("local:4");
  for (const auto& entry :
       fs::directory_iterator(std::string(AUTODIST_SOURCE_DIR) + "/data/graphs")) {
    if (entry.path().extension() != ".adg") continue;
    const auto graph = std::make_shared<const ir::Graph>(ir::read_graph(entry.path().string()));
    for (const char* builder : {"PSLoadBalancing", "PartitionedPS", "AllReduce"}) {
      const strategy::Strategy strategy = search::build_strategy(builder, *graph, cluster);
      const program::Program program = passes::rewrite(graph, strategy, cluster, {}, builder);
      Bytes bytes{0};
      for (const program::Slice& slice : program.slices) bytes += bytes_of(slice);
      EXPECT_EQ(bytes.value, 4 * parameters(*graph)) << entry.path() << " by " << builder;
    }
  }
}

// A few megabytes in all.
TEST(ShippedGraphs, AreSmall) {
  std::uintmax_t bytes = 0;
  for (const auto& entry :
       fs::directory_iterator(std::string(AUTODIST_SOURCE_DIR) + "/data/graphs")) {
    bytes += entry.file_size();
  }
  EXPECT_LT(bytes, std::uintmax_t{4} << 20);
}

}  // namespace
}  // namespace autodist
