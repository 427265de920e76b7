#include "tests/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "autodist/base/error.h"
#include "autodist/exec/replay.h"
#include "autodist/models/catalogue.h"
#include "autodist/program/program.h"

namespace autodist::testing_jobs {
namespace {

// Momentum and weight decay are refused where gradients are sparse.
bool is_sparse(const std::string& model) {
  return model == "ncf-small-sparse" || model == "lm1b-small";
}

constexpr double kRate = 0.02;  // faster, batch norm over few samples amplifies rounding

// A replica's part of the averages, dense.
void add_gradients(const std::vector<torch::Tensor>& parameters, double share,
                   std::uint32_t replica, const Lossy* lossy, std::vector<torch::Tensor>& sums) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    torch::Tensor gradient = parameters[p].grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.to_dense();
    if (lossy != nullptr) gradient = lossy->contribution(replica, p, gradient);
    sums[p] = sums[p].defined() ? sums[p] + gradient * share : gradient * share;
  }
}

}  // namespace

Parameters tensors_of(const TrainingStep& step) {
  Parameters tensors;
  for (const NamedTensor& each : step.parameters) tensors.push_back(each.tensor);
  return tensors;
}

Parameters copies_of(const TrainingStep& step) {
  Parameters copies;
  for (const NamedTensor& each : step.parameters) copies.push_back(each.tensor.detach().clone());
  return copies;
}

double largest_difference(const Parameters& a, const Parameters& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

Batch rows_of(const Batch& batch, std::uint32_t replica, std::uint32_t count) {
  const std::int64_t size = batch.front().size(0);
  const auto [begin, end] = program::replica_rows(size, replica, count);
  Batch rows;
  for (const torch::Tensor& each : batch) {
    rows.push_back(each.size(0) == size ? each.slice(0, begin, end) : each);
  }
  return rows;
}

TrainingStep make_step(const std::string& model, std::int64_t batch) {
  models::ModelOptions options;
  options.batch = batch;
  options.dtype = torch::kFloat64;
  options.seed = kSeed;
  return models::make_model(model, options);
}

Batch batch_at(const std::string& model, int step, std::int64_t batch) {
  models::ModelOptions options;
  options.dtype = torch::kFloat64;
  options.seed = 100 + static_cast<std::uint64_t>(step);
  return models::find_model(model).synthetic(options, batch);
}

std::string optimizer_of(const std::string& model) {
  return is_sparse(model) ? "sgd:lr=0.02" : "sgd:lr=0.02,momentum=0.9,decay=1e-3";
}

Update sgd_of(const std::string& model) {
  torch::optim::SGDOptions options(kRate);
  if (!is_sparse(model)) options.momentum(0.9).weight_decay(1e-3);
  return updated_by<torch::optim::SGD>(options);
}

SparseAdam::SparseAdam(const torch::Tensor& table, double lr)
    : mean_(torch::zeros_like(table)), square_(torch::zeros_like(table)), lr_(lr) {}

void SparseAdam::step(torch::Tensor& table, const torch::Tensor& rows,
                      const torch::Tensor& gradients) {
  const torch::NoGradGuard no_grad;
  ++steps_;
  const torch::Tensor mean = mean_.index_select(0, rows) * 0.9 + gradients * 0.1;
  const torch::Tensor square =
      square_.index_select(0, rows) * 0.999 + gradients * gradients * 0.001;
  mean_.index_copy_(0, rows, mean);
  square_.index_copy_(0, rows, square);
  const double size = lr_ * std::sqrt(1 - std::pow(0.999, steps_)) / (1 - std::pow(0.9, steps_));
  table.index_add_(0, rows, -size * mean / (square.sqrt() + 1e-8));
}

Parameters train_plain(const std::string& model, std::uint32_t replicas, std::int64_t batch_size,
                       const Update& update, const Lossy* lossy) {
  const TrainingStep step = make_step(model, kBatch / replicas);
  Parameters parameters = tensors_of(step);
  std::vector<std::vector<torch::Tensor>> buffers(replicas);
  for (auto& of_replica : buffers) {
    for (const NamedTensor& each : step.buffers) of_replica.push_back(each.tensor.clone());
  }
  for (int i = 0; i < kSteps; ++i) {
    const Batch batch = batch_at(model, i, batch_size);
    std::vector<torch::Tensor> sums(parameters.size());
    for (std::uint32_t r = 0; r < replicas; ++r) {
      const Batch rows = rows_of(batch, r, replicas);
      if (rows.front().size(0) == 0) continue;
      const torch::NoGradGuard no_grad;
      for (std::size_t b = 0; b < step.buffers.size(); ++b) {
        step.buffers[b].tensor.copy_(buffers[r][b]);
      }
      torch::manual_seed(exec::step_seed(kSeed, r, static_cast<std::uint64_t>(i)));
      for (torch::Tensor& parameter : parameters) parameter.mutable_grad() = torch::Tensor();
      {
        const torch::AutoGradMode gradients(true);
        step.loss(rows).backward();
      }
      const double share =
          static_cast<double>(rows.front().size(0)) / static_cast<double>(batch_size);
      add_gradients(parameters, share, r, lossy, sums);
      for (std::size_t b = 0; b < step.buffers.size(); ++b) {
        buffers[r][b].copy_(step.buffers[b].tensor);
      }
    }
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const bool changed = lossy != nullptr && lossy->average && sums[p].defined();
      parameters[p].mutable_grad() = changed ? lossy->average(p, sums[p]) : sums[p];
    }
    update(parameters, i);
  }
  return copies_of(step);
}

const Parameters& trained_by_sgd(const std::string& model, std::uint32_t replicas,
                                 std::int64_t batch) {
  static std::map<std::tuple<std::string, std::uint32_t, std::int64_t>, Parameters> known;
  const auto key = std::make_tuple(model, replicas, batch);
  auto found = known.find(key);
  if (found == known.end()) {
    found = known.emplace(key, train_plain(model, replicas, batch, sgd_of(model))).first;
  }
  return found->second;
}

int job_main(const char* name, const std::function<int()>& run) try {
  return run();
} catch (const Error& error) {
  std::fprintf(stderr, "%s: %s\n", name, error.what());
  return static_cast<int>(error.code());
}

}  // namespace autodist::testing_jobs
