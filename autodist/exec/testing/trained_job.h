// Whole trainings of two_layers(): one thread per rank, or by libtorch alone.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/capture/training_step.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/testing/small_steps.h"
#include "autodist/program/trace.h"

namespace autodist::exec::testing {

using Values = std::vector<torch::Tensor>;

// With a learning rate of 0.1 and a momentum of 0.9.
ir::UpdateRule sgd();

struct Job {
  std::shared_ptr<ir::Graph> graph = two_layers(sgd());
  Plan plan;
  std::vector<std::int64_t> batches = {8, 8, 8, 8};  // global samples, by step
  comm::InProcessHub::Fate fate;
  std::uint64_t first_step = 0;
  Values values;                   // initial ones; empty: by the seed of all tests
  std::vector<NamedTensor> state;  // of the update rules, at the first step
  Seconds chief_is_ahead{0};       // by so much it begins before the others
  bool trace = false;
  OnNonFinite on_nonfinite = OnNonFinite::kStop;
  // What somebody writes into the variables after a step, at which ranks, and the rate of a step.
  std::function<void(Values&, std::size_t step)> change;
  std::function<bool(std::uint32_t rank)> changes = [](std::uint32_t) { return true; };
  bool settles = true;  // before it is written
  std::function<double(std::size_t step)> lr;
};

struct Outcome {
  std::vector<Values> variables;          // by rank
  std::vector<double> losses;             // of the union, by step
  std::vector<std::vector<double>> told;  // the loss of the union as each rank learns it, by rank
  std::vector<NamedTensor> state;
  std::vector<program::Trace> traces;  // by rank
};

// Trains with one thread per rank, which sum by threads where the plan has a library. Rethrows what
// the lowest rank threw.
Outcome train(const Job& job);

// The job on the union of the ranks' batches, by libtorch alone.
Outcome train_with_libtorch(const Job& job);

// Of any element of any two tensors; NaN where one is.
double largest_difference(const Values& a, const Values& b);
bool same_bits(const Values& a, const Values& b);

}  // namespace autodist::exec::testing
