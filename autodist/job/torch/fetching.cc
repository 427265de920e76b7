#include "autodist/job/torch/fetching.h"

#include <algorithm>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/ir/names.h"

namespace autodist::job {
namespace {

constexpr const char* kSamples = "samples";
constexpr const char* kBatched = "batched";  // prefixes of tensor names
constexpr const char* kAveraged = "averaged";
constexpr const char* kFirst = "first";

const char* kind_of(const exec::Watched& each) {
  if (each.is_gradient) return kAveraged;
  return each.batched ? kBatched : kFirst;
}

std::string prefixed(const char* kind, const std::string& name) {
  return std::string(kind) + "/" + name;
}

bool has_tensor(const TrainingStep& step, const std::string& name) {
  const auto named = [&](const NamedTensor& each) { return each.name == name; };
  return std::any_of(step.parameters.begin(), step.parameters.end(), named) ||
         std::any_of(step.buffers.begin(), step.buffers.end(), named);
}

std::vector<std::string> known_names(const ir::Graph& graph, const TrainingStep& step) {
  std::vector<std::string> names = ir::watchable_names(graph);
  for (const NamedTensor& each : step.parameters) names.push_back(each.name);
  for (const NamedTensor& each : step.buffers) names.push_back(each.name);
  return names;
}

}  // namespace

FetchNames sort_names(const std::vector<std::string>& names, const ir::Graph& graph,
                      const TrainingStep& step) {
  FetchNames sorted;
  for (const std::string& name : names) {
    if (has_tensor(step, name)) {
      sorted.tensors.push_back(name);
    } else if (name == ir::kLossName || ir::find_watched(graph, name)) {
      sorted.watched.push_back(name);
    } else {
      fail(ErrorCode::kUsage,
           "fetch: the step has no '{}'. It has loss, its parameters and buffers, their gradients "
           "as NAME.grad, and what layers make.{}",
           name, did_you_mean(name, known_names(graph, step)));
    }
  }
  return sorted;
}

std::string pack_part(const std::vector<exec::Watched>& watched, std::int64_t samples,
                      double loss) {
  exec::Safetensors part;
  part.metadata[kSamples] = std::to_string(samples);
  if (samples > 0) {
    part.tensors.push_back(exec::to_data(
        {prefixed(kAveraged, ir::kLossName), torch::tensor({loss}, torch::kFloat64)}));
    for (const exec::Watched& each : watched) {
      part.tensors.push_back(exec::to_data({prefixed(kind_of(each), each.name), each.value}));
    }
  }
  return exec::write_safetensors(part);
}

std::map<std::string, torch::Tensor> join_parts(const std::vector<std::string>& parts,
                                                ir::Reduction reduction) {
  std::int64_t samples = 0;
  std::vector<exec::Safetensors> read;
  for (const std::string& part : parts) {
    read.push_back(exec::read_safetensors(part, "the fetched values of a rank"));
    samples += std::stoll(read.back().metadata.at(kSamples));
  }
  std::map<std::string, std::vector<torch::Tensor>> batched;
  std::map<std::string, torch::Tensor> whole;
  for (const exec::Safetensors& part : read) {
    const double share = reduction == ir::Reduction::kSum
                             ? 1.0
                             : std::stod(part.metadata.at(kSamples)) / static_cast<double>(samples);
    for (const exec::TensorData& each : part.tensors) {
      const std::size_t slash = each.name.find('/');
      const std::string kind = each.name.substr(0, slash);
      const std::string name = each.name.substr(slash + 1);
      const torch::Tensor value = exec::to_tensor(each).tensor;
      if (kind == kBatched) {
        batched[name].push_back(value);
      } else if (kind == kFirst) {
        whole.emplace(name, value);
      } else {
        torch::Tensor& sum = whole[name];
        sum = sum.defined() ? sum + value * share : value * share;
      }
    }
  }
  for (const auto& [name, values] : batched) whole[name] = torch::cat(values);
  if (const auto loss = whole.find(ir::kLossName); loss != whole.end()) {
    loss->second = loss->second.squeeze();
  }
  return whole;
}

}  // namespace autodist::job
