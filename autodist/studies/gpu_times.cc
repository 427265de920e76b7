#include "autodist/studies/gpu_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "autodist/base/statistics.h"
#include "autodist/base/units.h"
#include "autodist/planning/archive.h"

namespace autodist::studies {
namespace {

using sim::Precision;

const std::string kBert80 =
    "NVIDIA DeepLearningExamples, PyTorch/LanguageModeling/BERT, pytorch:21.11 container, "
    "pre-training at sequence length 128 on one GPU of a DGX A100 80 GB";
const std::string kBertV100 = "the same on one GPU of a DGX-1 with V100 32 GB";
const std::string kBert40 =
    "an earlier version of the same, pytorch:20.06 container, DGX A100 40 GB";
const std::string kResNet =
    "NVIDIA DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5, pytorch:21.03 "
    "container; its configurations' batches";
const std::string kLambda =
    "Lambda Labs, RTX 2080 Ti Deep Learning Benchmarks with TensorFlow (March 2019), TensorFlow "
    "1.12 on V100 SXM3; batch assumed";
const std::string kNanoGpt =
    "nanoGPT, README: about 250 ms per iteration before torch.compile; the batch of bench.py (12 "
    "sequences of 1,024 tokens) and an A100 assumed";

}  // namespace

const std::vector<PublishedStep>& published_steps() {
  static const std::vector<PublishedStep> kSteps{
      {"bert-large", "A100 80GB", Precision::kTf32, 128, 317, true, kBert80},
      {"bert-large", "A100 80GB", Precision::kFp16, 256, 580, true, kBert80},
      {"bert-large", "V100", Precision::kFp32, 32, 50, true, kBertV100},
      {"bert-large", "V100", Precision::kFp16, 64, 224, true, kBertV100},
      {"resnet50", "A100 80GB", Precision::kTf32, 256, 938, true, kResNet},
      {"resnet50", "A100 80GB", Precision::kFp16, 256, 2470, true, kResNet},
      {"resnet50", "V100", Precision::kFp32, 128, 367, true, kResNet},
      {"resnet50", "V100", Precision::kFp16, 256, 1200, true, kResNet},
      {"bert-large", "A100", Precision::kTf32, 54, 234, false, kBert40},
      {"bert-large", "A100", Precision::kFp16, 64, 415, false, kBert40},
      {"gpt2", "A100", Precision::kBf16, 12, 48, false, kNanoGpt},
      {"resnet50", "V100", Precision::kFp32, 64, 405, false, kLambda},
      {"inception-v3", "V100", Precision::kFp32, 64, 259, false, kLambda},
  };
  return kSteps;
}

std::vector<GpuTime> predict_published_steps() {
  std::vector<GpuTime> times;
  for (const PublishedStep& each : published_steps()) {
    const ir::Graph graph = planning::load_graph(each.model);
    const sim::FittedTimes fitted(sim::find_device(each.device, "published"), each.precision);
    Seconds step;
    for (const ir::Op& op : graph.ops) step += fitted.of(op, each.batch);
    times.push_back({each, static_cast<double>(each.batch) / step.value});
  }
  return times;
}

double median_error(const std::vector<GpuTime>& times, bool fitted) {
  std::vector<double> errors;
  for (const GpuTime& each : times) {
    if (each.published.fitted == fitted) errors.push_back(std::abs(each.error()));
  }
  return quantile(errors, 0.5);
}

std::string gpu_times_page(const std::vector<GpuTime>& times) {
  std::string text =
      "What a step computes on a GPU, with `--dtype`: each op takes the longer of its arithmetic "
      "and its memory traffic, products and convolutions at a share of what the maker says of "
      "matrix units, which is chosen by the rows marked *fitted* and checked on the others. The "
      "simulator knows ops, not kernels: published software fuses pointwise ops, and computes "
      "BERT's output layer at the masked positions alone (20 of 128), of which these graphs, "
      "captured from plain PyTorch, know nothing.\n\n"
      "| model | GPU | precision | batch | published, samples/s | predicted | step's error | |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const GpuTime& each : times) {
    const PublishedStep& of = each.published;
    text +=
        fmt::format("| {} | {} | {} | {} | {:.0f} | {:.0f} | {:+.0f} % | {} |\n", of.model,
                    of.device, name_of(of.precision), of.batch, of.samples_per_second,
                    each.samples_per_second, 100 * each.error(), of.fitted ? "fitted" : "left out");
  }
  text += fmt::format(
      "\n| figure | value | goal |\n|---|---|---|\n"
      "| `gpu_fitted_median_error` | {:.3f} | |\n"
      "| `gpu_published_median_error` | {:.3f} | ≤ 0.10 |\n\nSources:\n\n",
      median_error(times, true), median_error(times, false));
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
                   {"batch", each.published.batch},
                   {"published_samples_per_second", each.published.samples_per_second},
                   {"predicted_samples_per_second", each.samples_per_second},
                   {"fitted", each.published.fitted}});
  }
  return nlohmann::ordered_json{{"figures",
                                 {{"gpu_fitted_median_error", median_error(times, true)},
                                  {"gpu_published_median_error", median_error(times, false)}}},
                                {"raw", raw}}
      .dump();
}

}  // namespace autodist::studies
