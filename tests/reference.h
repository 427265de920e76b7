// What plain libtorch makes of the jobs that the tests run: one process, autograd, the union of the
// batches.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::testing_jobs {

using Parameters = std::vector<torch::Tensor>;

constexpr std::uint64_t kSeed = 3;   // of the jobs' models and random numbers
constexpr int kSteps = 10;           // of a job
constexpr std::int64_t kBatch = 12;  // of a whole job

// The step's parameters, in its order, and copies of them.
Parameters tensors_of(const TrainingStep& step);
Parameters copies_of(const TrainingStep& step);
// Over all elements of all tensors. REQUIRES: as many tensors.
double largest_difference(const Parameters& a, const Parameters& b);

// The rows that replica `replica` of `count` takes of a batch.
Batch rows_of(const Batch& batch, std::uint32_t replica, std::uint32_t count);

// A small model of the catalogue in float64, and the whole job's batch at a step.
TrainingStep make_step(const std::string& model, std::int64_t batch);
Batch batch_at(const std::string& model, int step, std::int64_t batch = kBatch);

// What the jobs train a model with: SGD; with momentum and weight decay where gradients are dense.
std::string optimizer_of(const std::string& model);

// Applies averaged gradients (dense, in the parameters' .grad) at a step, from 0 on.
using Update = std::function<void(std::vector<torch::Tensor>& parameters, int step)>;
Update sgd_of(const std::string& model);

// By libtorch's optimizer, made when the parameters are known; `edit` changes gradients (clipping)
// or the learning rate before its step.
template <typename Optimizer, typename Options>
Update updated_by(
    Options options,
    std::function<void(std::vector<torch::Tensor>&, Optimizer&, int)> edit = nullptr) {
  auto optimizer = std::make_shared<std::unique_ptr<Optimizer>>();
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    if (!*optimizer) *optimizer = std::make_unique<Optimizer>(parameters, options);
    if (edit) edit(parameters, **optimizer, step);
    (*optimizer)->step();
  };
}

// torch.optim.SparseAdam, which libtorch has in Python alone: the moments of rows that a gradient
// does not name stand still, and eps is added before the correction of the second moment's bias.
class SparseAdam {
 public:
  SparseAdam(const torch::Tensor& table, double lr);
  // `gradients`: of these rows.
  void step(torch::Tensor& table, const torch::Tensor& rows, const torch::Tensor& gradients);

 private:
  torch::Tensor mean_, square_;
  double lr_;
  int steps_ = 0;
};

// What travels in the place of a gradient: a replica's own, and the average of them.
struct Lossy {
  std::function<torch::Tensor(std::uint32_t replica, std::size_t parameter, torch::Tensor gradient)>
      contribution;
  std::function<torch::Tensor(std::size_t parameter, torch::Tensor gradient)> average;
};

// kSteps steps. Each replica's rows go through the model with that replica's generator and buffers
// (batch norm keeps statistics per replica); gradients are averaged by samples.
Parameters train_plain(const std::string& model, std::uint32_t replicas, std::int64_t batch,
                       const Update& update, const Lossy* lossy = nullptr);
// By sgd_of(); found once per process. By one thread.
const Parameters& trained_by_sgd(const std::string& model, std::uint32_t replicas,
                                 std::int64_t batch = kBatch);

// The main() of a job that is a program: an Error is said, and its code is the program's.
int job_main(const char* name, const std::function<int()>& run);

}  // namespace autodist::testing_jobs
