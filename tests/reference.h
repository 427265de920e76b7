// What plain libtorch makes of the jobs that the tests run: one process, autograd, the union of the
// batches.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::testing_jobs {

using Parameters = std::vector<torch::Tensor>;

constexpr std::uint64_t kSeed = 3;   // of the jobs' models and random numbers
constexpr int kSteps = 10;           // of a job
constexpr std::int64_t kBatch = 12;  // of a whole job

// Copies of the step's parameters, in its order.
Parameters copies_of(const TrainingStep& step);

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

// The main() of a job that is a program: an Error is said, and its code is the program's.
int job_main(const char* name, const std::function<int()>& run);

}  // namespace autodist::testing_jobs
