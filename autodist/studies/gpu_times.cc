#include "autodist/studies/gpu_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/base/statistics.h"
#include "autodist/passes/pipeline.h"
#include "autodist/planning/archive.h"
#include "autodist/search/builders/builders.h"
#include "autodist/sim/simulator.h"
#include "autodist/studies/machines.h"

namespace autodist::studies {
namespace {

using sim::Precision;

const std::string kExamples = "NVIDIA DeepLearningExamples, ";
const std::string kBert80 = kExamples +
                            "PyTorch/LanguageModeling/BERT, pytorch:21.11 container, pre-training "
                            "at sequence length 128 on DGX A100 80 GB, DGX-1 with V100 32 GB";
const std::string kBert40 =
    kExamples + "an earlier version of the same, pytorch:20.06 container, DGX A100 40 GB";
const std::string kBert19 =
    kExamples +
    "an earlier version of the same, pytorch:19.07 container, DGX-1 and DGX-2 with V100";
const std::string kResNet =
    kExamples +
    "PyTorch/Classification/ConvNets/resnet50v1.5, pytorch:21.03 container; its configurations' "
    "batches";
const std::string kMxNet =
    kExamples + "MxNet/Classification/RN50v1.5, mxnet:20.12 container, DGX-1 and DGX A100 80 GB";
const std::string kTensorFlow =
    kExamples + "TensorFlow/Classification/ConvNets/resnet50v1.5 with XLA, 20.06 container";
const std::string kNcf = kExamples + "PyTorch/Recommendation/NCF, pytorch:21.04 container";
const std::string kLambda =
    "Lambda Labs, RTX 2080 Ti Deep Learning Benchmarks with TensorFlow (March 2019), TensorFlow "
    "1.12 on V100 SXM3; batch assumed";
const std::string kLambdaTf =
    "Lambda Labs, lambda-tensorflow-benchmark, tf-train-*.csv: V100 SXM, A100 PCIe";
const std::string kLambdaPt =
    "Lambda Labs, deeplearning-benchmark, pytorch:22.09 and 22.10 containers; fp16 left away, two "
    "thirds of what NVIDIA publishes of the same script";
const std::string kPascal = "TensorFlow, Benchmarks (May 2017), cuDNN 5.1, DGX-1 with P100";
const std::string kTuring =
    "AutoDist, figure 1, the longer bar of one GPU (data/autodist); the others' input sizes are "
    "not said";
const std::string kNanoGpt =
    "nanoGPT, README: about 250 ms per iteration before torch.compile; the batch of bench.py (12 "
    "sequences of 1,024 tokens) and an A100 assumed";

// One way, of NVLink and of PCIe 4.
constexpr double kNvlinkP100 = 80e9;
constexpr double kNvlinkV100 = 150e9;
constexpr double kNvlinkA100 = 300e9;
constexpr double kPcie = 25e9;

std::string rate_text(double samples_per_second) {
  return samples_per_second >= 1e6 ? fmt::format("{:.3g} million", samples_per_second / 1e6)
                                   : fmt::format("{:.0f}", samples_per_second);
}

Seconds step_of(const PublishedStep& published) {
  const auto graph = std::make_shared<const ir::Graph>(planning::load_graph(published.model));
  cluster::Cluster cluster = machines(1, cluster::Node().bandwidth_bytes_per_s);
  cluster::Node& node = cluster.nodes.front();
  if (published.gpus > 1) node.intra_node_bytes_per_s = published.link_bytes_per_s;
  add_gpus(node, published.gpus, published.device);
  const program::Program program =
      passes::rewrite(graph, search::build_strategy("AllReduce:algorithm=library", *graph, cluster),
                      cluster, {}, "published");
  sim::CostOptions how;
  how.batch = published.batch;
  how.precision = published.precision;
  return sim::simulate(program, cluster, sim::cost_model(program, cluster, how)).step;
}

}  // namespace

const std::vector<PublishedStep>& published_steps() {
  static const std::vector<PublishedStep> kSteps{
      {"bert-large", "A100 80GB", Precision::kTf32, 128, 317, true, kBert80},
      {"bert-large", "A100 80GB", Precision::kFp16, 256, 580, true, kBert80},
      {"bert-large", "V100", Precision::kFp32, 32, 50, true, kBert80},
      {"bert-large", "V100", Precision::kFp16, 64, 224, true, kBert80},
      {"resnet50", "A100 80GB", Precision::kTf32, 256, 938, true, kResNet},
      {"resnet50", "A100 80GB", Precision::kFp16, 256, 2470, true, kResNet},
      {"resnet50", "V100", Precision::kFp32, 128, 367, true, kResNet},
      {"resnet50", "V100", Precision::kFp16, 256, 1200, true, kResNet},
      {"vgg16", "V100", Precision::kFp32, 192, 249, true, kLambdaTf},
      {"resnet50", "P100", Precision::kFp32, 64, 219, true, kPascal},
      {"resnet101", "T4", Precision::kFp32, 32, 61.9, true, kTuring},
      {"resnet50", "H100", Precision::kTf32, 640, 1825, true, kLambdaPt},

      {"bert-large", "A100", Precision::kTf32, 54, 234, false, kBert40},
      {"bert-large", "A100", Precision::kFp16, 64, 415, false, kBert40},
      {"bert-large", "V100", Precision::kFp32, 8, 33.4, false, kBert19},
      {"bert-large", "V100", Precision::kFp32, 32, 43.5, false, kBert19},
      {"bert-large", "V100", Precision::kFp16, 16, 125, false, kBert19},
      {"bert-large", "V100", Precision::kFp16, 64, 182, false, kBert19},
      {"gpt2", "A100", Precision::kBf16, 12, 48, false, kNanoGpt},
      {"resnet50", "V100", Precision::kFp32, 96, 384, false, kMxNet},
      {"resnet50", "V100", Precision::kFp16, 192, 1376, false, kMxNet},
      {"resnet50", "A100 80GB", Precision::kTf32, 256, 1022, false, kMxNet},
      {"resnet50", "A100 80GB", Precision::kFp16, 256, 2180, false, kMxNet},
      {"resnet50", "V100", Precision::kFp16, 256, 1270, false, kTensorFlow},
      {"resnet50", "A100", Precision::kTf32, 256, 909, false, kTensorFlow},
      {"resnet50", "A100", Precision::kFp16, 256, 2375, false, kTensorFlow},
      {"resnet50", "V100", Precision::kFp32, 64, 405, false, kLambda},
      {"inception-v3", "V100", Precision::kFp32, 64, 259, false, kLambda},
      {"resnet50", "V100", Precision::kFp32, 192, 432, false, kLambdaTf},
      {"inception-v3", "V100", Precision::kFp32, 192, 273, false, kLambdaTf},
      {"resnet50", "V100", Precision::kFp16, 384, 1276, false, kLambdaTf},
      {"inception-v3", "V100", Precision::kFp16, 384, 771, false, kLambdaTf},
      {"vgg16", "V100", Precision::kFp16, 384, 456, false, kLambdaTf},
      {"resnet50", "A100", Precision::kTf32, 224, 953, false, kLambdaTf},
      {"inception-v3", "A100", Precision::kTf32, 224, 627, false, kLambdaTf},
      {"vgg16", "A100", Precision::kTf32, 224, 504, false, kLambdaTf},
      {"resnet50", "A100", Precision::kFp16, 448, 2075, false, kLambdaTf},
      {"inception-v3", "A100", Precision::kFp16, 360, 1222, false, kLambdaTf},
      {"vgg16", "A100", Precision::kFp16, 448, 1190, false, kLambdaTf},
      {"resnet50", "V100", Precision::kFp32, 128, 369, false, kLambdaPt},
      {"resnet50", "A100 80GB", Precision::kTf32, 640, 1066, false, kLambdaPt},
      {"inception-v3", "P100", Precision::kFp32, 64, 142, false, kPascal},
      {"vgg16", "P100", Precision::kFp32, 64, 154, false, kPascal},
      {"densenet121", "T4", Precision::kFp32, 32, 97.3, false, kTuring},
      {"vgg16", "T4", Precision::kFp32, 32, 74.8, false, kTuring},
      {"ncf-dense", "V100", Precision::kFp32, 1 << 20, 10.4e6, false, kNcf},
      {"ncf-dense", "V100", Precision::kFp16, 1 << 20, 21.8e6, false, kNcf},
      {"ncf-dense", "A100", Precision::kTf32, 1 << 20, 22.6e6, false, kNcf},
      {"ncf-dense", "A100", Precision::kFp16, 1 << 20, 34.1e6, false, kNcf},

      {"resnet50", "V100", Precision::kFp32, 128, 2855, false, kResNet, 8, kNvlinkV100},
      {"resnet50", "V100", Precision::kFp16, 256, 8322, false, kResNet, 8, kNvlinkV100},
      {"resnet50", "A100 80GB", Precision::kTf32, 256, 7248, false, kResNet, 8, kNvlinkA100},
      {"resnet50", "A100 80GB", Precision::kFp16, 256, 16621, false, kResNet, 8, kNvlinkA100},
      {"resnet50", "V100", Precision::kFp16, 192, 10723, false, kMxNet, 8, kNvlinkV100},
      {"resnet50", "A100 80GB", Precision::kFp16, 256, 16925, false, kMxNet, 8, kNvlinkA100},
      {"bert-large", "V100", Precision::kFp16, 16, 919, false, kBert19, 8, kNvlinkV100},
      {"bert-large", "V100", Precision::kFp16, 64, 1306, false, kBert19, 8, kNvlinkV100},
      {"bert-large", "V100", Precision::kFp16, 64, 2775, false, kBert19, 16, kNvlinkV100},
      {"resnet50", "P100", Precision::kFp32, 64, 1734, false, kPascal, 8, kNvlinkP100},
      {"inception-v3", "P100", Precision::kFp32, 64, 1131, false, kPascal, 8, kNvlinkP100},
      {"vgg16", "P100", Precision::kFp32, 64, 1081, false, kPascal, 8, kNvlinkP100},
      {"vgg16", "V100", Precision::kFp32, 192, 1942, false, kLambdaTf, 8, kNvlinkV100},
      {"resnet50", "A100", Precision::kTf32, 224, 7197, false, kLambdaTf, 8, kPcie},
      {"resnet50", "A100", Precision::kFp16, 448, 15997, false, kLambdaTf, 8, kPcie},
      {"vgg16", "A100", Precision::kTf32, 224, 4074, false, kLambdaTf, 8, kPcie},
      {"vgg16", "A100", Precision::kFp16, 448, 10222, false, kLambdaTf, 8, kPcie},
      {"ncf-dense", "A100", Precision::kTf32, 1 << 17, 110e6, false, kNcf, 8, kNvlinkA100},
      {"ncf-dense", "V100", Precision::kFp32, 1 << 17, 60e6, false, kNcf, 8, kNvlinkV100},
  };
  return kSteps;
}

std::vector<GpuTime> predict_published_steps() {
  std::vector<GpuTime> times;
  for (const PublishedStep& each : published_steps()) {
    const auto samples = static_cast<double>(each.batch * each.gpus);
    times.push_back({each, samples / step_of(each).value});
  }
  return times;
}

double median_error(const std::vector<GpuTime>& times, bool fitted, bool several) {
  std::vector<double> errors;
  for (const GpuTime& each : times) {
    if (each.published.fitted != fitted || (each.published.gpus > 1) != several) continue;
    errors.push_back(std::abs(each.error()));
  }
  return quantile(errors, 0.5);
}

std::string gpu_times_page(const std::vector<GpuTime>& times) {
  std::string text =
      "What the simulator makes of published trainings on the GPUs of one machine, with `--dtype`: "
      "each op takes the longer of its arithmetic and its memory traffic, products and "
      "convolutions at a share of what the maker says, in float32 those of 3 × 3 by fewer "
      "multiplications than they have (Winograd), and some cards keep less than the clock that the "
      "maker's figures take. Shares and clocks were chosen by the rows marked *fitted*, and are "
      "checked on the others; published software of one card and one batch differs by up to a "
      "third among them. The simulator knows ops, not kernels: published software fuses pointwise "
      "ops, and computes BERT's output layer at the masked positions alone (20 of 128), of which "
      "these graphs, captured from plain PyTorch, know nothing. GPUs are linked by NVLink (one way "
      "80 GB/s on P100, 150 on V100, 300 on A100) or PCIe (25), and all-reduce by a library.\n\n"
      "| model | GPU | precision | batch per GPU | published, samples/s | predicted | step's error "
      "| |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const GpuTime& each : times) {
    const PublishedStep& of = each.published;
    text += fmt::format("| {} | {}{} | {} | {} | {} | {} | {:+.0f} % | {} |\n", of.model,
                        of.gpus > 1 ? fmt::format("{} × ", of.gpus) : "", of.device,
                        name_of(of.precision), of.batch, rate_text(of.samples_per_second),
                        rate_text(each.samples_per_second), 100 * each.error(),
                        of.fitted ? "fitted" : "left out");
  }
  text += fmt::format(
      "\n| figure | value | goal |\n|---|---|---|\n"
      "| `gpu_fitted_median_error` | {:.3f} | |\n"
      "| `gpu_published_median_error` (one GPU, left out) | {:.3f} | ≤ 0.10 |\n"
      "| `several_gpus_median_error` (left out) | {:.3f} | |\n\nSources:\n\n",
      median_error(times, true, false), median_error(times, false, false),
      median_error(times, false, true));
  std::vector<std::string> said;
  for (const GpuTime& each : times) {
    const std::string& source = each.published.source;
    if (std::find(said.begin(), said.end(), source) != said.end()) continue;
    said.push_back(source);
    text += fmt::format("- {}, {}: {}\n", each.published.model, each.published.device, source);
  }
  return text;
}

std::string gpu_times_json(const std::vector<GpuTime>& times) {
  nlohmann::ordered_json raw = nlohmann::ordered_json::array();
  for (const GpuTime& each : times) {
    raw.push_back({{"model", each.published.model},
                   {"device", each.published.device},
                   {"precision", name_of(each.published.precision)},
                   {"gpus", each.published.gpus},
                   {"batch", each.published.batch},
                   {"published_samples_per_second", each.published.samples_per_second},
                   {"predicted_samples_per_second", each.samples_per_second},
                   {"fitted", each.published.fitted}});
  }
  return nlohmann::ordered_json{{"figures",
                                 {{"gpu_fitted_median_error", median_error(times, true, false)},
                                  {"gpu_published_median_error", median_error(times, false, false)},
                                  {"several_gpus_median_error", median_error(times, false, true)}}},
                                {"raw", raw}}
      .dump();
}

}  // namespace autodist::studies
