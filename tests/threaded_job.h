// A whole job in one process: every rank is a thread, the transport is the in-process one. What
// Session does with processes, for tests that run hundreds of jobs.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/cluster/cluster.h"
#include "autodist/comm/collectives.h"
#include "autodist/exec/finite.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/loss_scaling.h"
#include "tests/reference.h"

namespace autodist::testing_jobs {

// Expects that they are equal to 1e-9, and what is near to 0 to `absolute`.
void expect_close(const Parameters& ours, const Parameters& plain, const std::string& what,
                  double absolute = 1e-9);
// To the last bit.
void expect_equal(const Parameters& ours, const Parameters& others, const std::string& what);

// Where a job runs. With `cpu_only` one CPU rank stands for each listed GPU. What a rank captures
// on the CPU is moved to its device, where its thread keeps what `on_thread` gives it.
struct JobPlace {
  cluster::Cluster cluster;
  bool cpu_only = false;
  std::vector<torch::Device> devices = {};  // by rank; none: all compute on the CPU
  std::function<std::shared_ptr<void>()> on_thread = {};
  // Moves a rank's model and example to the device, which is then captured there.
  std::function<void(TrainingStep&)> move = {};
  // In the place of Gloo.
  std::function<std::unique_ptr<comm::Collectives>(std::uint32_t rank)> collectives = {};
  std::optional<ir::LossScaling> loss_scaling = {};
  std::string plan = {};  // a strategy's file, in the place of the builder's
  exec::OnNonFinite on_nonfinite = exec::OnNonFinite::kStop;
  // After each step the job goes on under the next of these, while there are any.
  std::vector<std::string> later_builders = {};
  // After the last step the rank reads its variables, settled and then synchronized.
  bool reads_at_end = false;
};

// The ranks' steps, one model each, trained for `steps` steps with the strategy of `builder`;
// `rows` gives what a rank reads (one that has a part of the batch to itself, or with the other
// stages of its replica), in so many micro-batches. Every rank must end with the chief's
// parameters, which are returned; `bytes_sent` gets each rank's payload bytes. Throws what the
// first rank threw. REQUIRES: as many steps as the place has ranks; without one, they are ranks of
// one node.
Parameters run_job(const std::vector<TrainingStep>& ranks_steps, const std::string& builder,
                   const std::string& optimizer, int steps,
                   const std::function<Batch(int step, std::uint32_t part)>& rows,
                   const exec::UserRules* user_rules = nullptr, std::uint32_t micro_batches = 1,
                   std::vector<std::uint64_t>* bytes_sent = nullptr,
                   const JobPlace* place = nullptr);

// A job on a small model of the catalogue, whose ranks read their rows of batch_at().
struct SmallJob {
  std::string model;
  std::string builder;
  std::uint32_t ranks = 2;
  std::int64_t batch = kBatch;  // rows of all ranks together
  std::uint32_t micro_batches = 1;
  std::string optimizer = {};     // by default optimizer_of() the model
  std::int64_t example_rows = 0;  // of a rank's example; 0: its share of kBatch
  const exec::UserRules* user_rules = nullptr;
};
Parameters run_job(const SmallJob& job, std::vector<std::uint64_t>* bytes_sent = nullptr,
                   const JobPlace* place = nullptr);

}  // namespace autodist::testing_jobs
