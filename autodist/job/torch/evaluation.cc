#include "autodist/job/torch/evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/small_collectives.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/job/torch/step_run.h"

namespace autodist::job {
namespace {

std::string statistics_bytes(const std::vector<NamedTensor>& tensors) {
  return exec::write_safetensors({exec::to_data(tensors), {}});
}

std::vector<torch::Tensor> tensors_of(const std::string& bytes, std::uint32_t rank,
                                      const std::vector<NamedTensor>& like) {
  const std::string where = fmt::format("the statistics of rank {}", rank);
  const exec::Safetensors read = exec::read_safetensors(bytes, where);
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < like.size(); ++i) {
    tensors.push_back(torch::empty_like(like[i].tensor));
    exec::copy_into(read.tensors.at(i), {like[i].name, tensors.back()}, where);
  }
  return tensors;
}

void put(const std::vector<torch::Tensor>& values, const std::vector<NamedTensor>& buffers) {
  const torch::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < values.size(); ++i) buffers[i].tensor.copy_(values[i]);
}

// The mean over parts of the batch, added in their order; of buffers that count, the first.
std::vector<torch::Tensor> mean_of(std::vector<std::vector<torch::Tensor>> parts) {
  std::vector<torch::Tensor> means = std::move(parts.front());
  for (std::size_t i = 0; i < means.size(); ++i) {
    if (!means[i].is_floating_point()) continue;
    for (std::size_t part = 1; part < parts.size(); ++part) means[i].add_(parts[part][i]);
    means[i].div_(static_cast<double>(parts.size()));
  }
  return means;
}

}  // namespace

// Of all steps: one may train what another evaluates.
std::vector<NamedTensor> EvaluatedStatistics::buffers_written() const {
  std::set<std::string> written;
  for (const auto& step : steps_.all()) {
    for (const ir::Buffer& buffer : step->graph().buffers) {
      if (buffer.mutated) written.insert(buffer.name);
    }
  }
  std::vector<NamedTensor> buffers;
  std::copy_if(steps_.model().buffers.begin(), steps_.model().buffers.end(),
               std::back_inserter(buffers),
               [&](const NamedTensor& each) { return written.count(each.name) != 0; });
  return buffers;
}

void EvaluatedStatistics::prepare(Statistics statistics) {
  exec::Runner& runner = steps_.runner();
  const program::Program& program = steps_.current().program();
  const std::vector<NamedTensor> buffers =
      program.replica_count() > 1 ? buffers_written() : std::vector<NamedTensor>{};
  if (steps_done_ != steps_.done()) statistics_.clear();
  steps_done_ = steps_.done();
  const bool shares = !buffers.empty() && statistics_.count(statistics) == 0;
  std::optional<exec::Calls::Scope> call;
  if (shares || runner.meets_to_synchronize()) {
    call.emplace(begin_call(runner, exec::Call::kEvaluate));
  }
  runner.synchronize();
  if (!shares) return;
  if (statistics == Statistics::kChief) {
    const std::string own = job_.is_chief() ? statistics_bytes(buffers) : "";
    const std::string chiefs = runner.of_chief(exec::Topic::kStatistics, own);
    statistics_[statistics] = tensors_of(chiefs, 0, buffers);
    return;
  }
  std::vector<std::vector<torch::Tensor>> parts;
  for (const auto& [rank, bytes] :
       runner.of_all(exec::Topic::kAllStatistics, statistics_bytes(buffers))) {
    // The stages of a replica have the same by now.
    if (program.stage(program::Rank(rank)) == 0) parts.push_back(tensors_of(bytes, rank, buffers));
  }
  statistics_[statistics] = mean_of(std::move(parts));
}

void EvaluatedStatistics::begin(Statistics statistics) {
  if (!own_.empty()) {
    fail(ErrorCode::kUsage, "evaluate: called from inside of an evaluation. Call it after that.");
  }
  prepare(statistics);
  const auto found = statistics_.find(statistics);
  if (found == statistics_.end()) return;
  const std::vector<NamedTensor> buffers = buffers_written();
  for (const NamedTensor& each : buffers) own_.push_back(each.tensor.detach().clone());
  put(found->second, buffers);
}

void EvaluatedStatistics::end() {
  if (own_.empty()) return;
  put(std::exchange(own_, {}), buffers_written());
}

}  // namespace autodist::job
