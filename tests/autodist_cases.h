// The models of AutoDist's own integration tests (its cases c0 to c7), and what plain libtorch
// makes of them in one process on the union of what all replicas read. Float64; no random numbers
// within a step and no state but parameters, so that the union's mean is exactly the replicas'
// average weighted by samples.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "tests/reference.h"

namespace autodist::testing_jobs {

using Places = std::vector<cluster::Place>;

struct AutoDistCase {
  std::string name;
  std::string optimizer;  // as --optimizer takes it
  int steps;
  std::function<TrainingStep()> make;  // the same first values each time
  // What a rank of the job reads at a step, in the way that this case is fed.
  std::function<Batch(int step, std::uint32_t rank, const Places& ranks)> rows;
  // libtorch's optimizer of the same settings, on the gradients as autograd makes them.
  std::function<Update()> plain_update;
  Batch held_out;  // to evaluate with; empty where the case does not
};

const std::vector<AutoDistCase>& autodist_cases();

// Linear regression on the samples of NumPy's RandomState(seed): x, y = 3x + 2 + noise, 1,000 each.
Batch c0_samples(std::uint32_t seed);
// Of the workers: all replicas of the first node read 123, the others 456.
std::uint32_t c0_seed(const cluster::Place& place);

struct PlainResult {
  Parameters before;
  Parameters after;
  std::vector<torch::Tensor> outputs;  // of held_out, after
};

// The Euclidean distance of all parameters together.
double distance(const Parameters& a, const Parameters& b);

// `steps` steps on the rows of all ranks together.
PlainResult train_whole(const AutoDistCase& subject, const Places& ranks, int steps);

}  // namespace autodist::testing_jobs
