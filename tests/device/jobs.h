// Jobs whose ranks train on the test device, beside the same jobs on the CPU.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "autodist/capture/capture.h"
#include "autodist/cluster/cluster.h"
#include "autodist/models/catalogue.h"
#include "tests/autocast.h"
#include "tests/device/test_device.h"
#include "tests/device/thread_collectives.h"
#include "tests/reference.h"
#include "tests/stages.h"
#include "tests/threaded_job.h"

namespace autodist::test_device {

constexpr int kDeviceSteps = 4;

struct DeviceJob {
  std::string model;
  std::string builder;
  std::uint32_t ranks = 2;
  std::uint32_t micro_batches = 1;
  std::string optimizer = {};  // the model's own
  bool scales_loss = false;
  bool is_captured_there = false;  // else on the CPU
  bool library_on_device = false;  // else Gloo, on the host
  std::uint32_t stages = 1;        // of a replica; 1: not placed
  exec::OnNonFinite on_nonfinite = exec::OnNonFinite::kStop;
  std::vector<std::string> later_builders = {};  // after each step the next
  bool is_mixed = false;                         // all ranks but the first compute on the CPU
  bool reads_at_end = false;
  bool casts_to_bf16 = false;  // under autocast, in 32 bits else
};

inline std::string name_of(const DeviceJob& job) {
  return job.model + " " + job.builder + ", ranks: " + std::to_string(job.ranks) +
         ", micro-batches: " + std::to_string(job.micro_batches) + " " + job.optimizer +
         (job.scales_loss ? " scaled" : "") + (job.is_captured_there ? " captured there" : "") +
         (job.library_on_device ? " on the device" : "") +
         (job.later_builders.empty() ? "" : " and others") +
         (job.stages > 1 ? " stages: " + std::to_string(job.stages) : "") +
         (job.is_mixed ? " beside the CPU" : "") + (job.casts_to_bf16 ? " in bf16" : "");
}
inline void PrintTo(const DeviceJob& job, std::ostream* out) { *out << name_of(job); }

inline TrainingStep step_of(const DeviceJob& job) {
  const std::uint32_t parts = job.ranks / job.stages * job.micro_batches;
  const std::int64_t rows = testing_jobs::kBatch / parts;
  if (!job.casts_to_bf16) return testing_jobs::make_step(job.model, rows);
  models::ModelOptions options;
  options.batch = rows;
  options.seed = testing_jobs::kSeed;
  TrainingStep step = models::make_model(job.model, options);
  step.loss = [loss = step.loss](const Batch& batch) {
    const testing_jobs::AutocastToBf16 autocast;
    return loss(batch).to(torch::kFloat32);
  };
  return step;
}

// Balanced over the stages; found once per model. By one thread.
inline const std::string& plan_of_stages(const TrainingStep& step, const cluster::Cluster& cluster,
                                         std::uint32_t stages) {
  static std::map<std::string, std::string> found;
  std::string& plan = found[step.name + " " + std::to_string(cluster::ranks_of(cluster).size()) +
                            " " + std::to_string(stages)];
  if (!plan.empty()) return plan;
  capture::Options options;
  options.cost_repetitions = 0;
  const capture::CapturedStep captured = capture::capture(step, options);
  plan = strategy::serialize(
      testing_jobs::strategy_of(captured.graph, cluster, stages, testing_jobs::balanced));
  return plan;
}

// `before_step`: called at the chief with the step's number. `scale`: of the batches' first input.
inline testing_jobs::Parameters train(const DeviceJob& job, bool on_device,
                                      int job_steps = kDeviceSteps,
                                      const std::function<void(int)>& before_step = {},
                                      double scale = 1) {
  using namespace testing_jobs;
  const std::uint32_t replicas = job.ranks / job.stages;
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    steps.push_back(step_of(job));
  }
  JobPlace place;
  place.cluster = cluster::read_cluster("local:" + std::to_string(job.ranks));
  if (job.stages > 1) place.plan = plan_of_stages(steps.front(), place.cluster, job.stages);
  place.on_nonfinite = job.on_nonfinite;
  place.later_builders = job.later_builders;
  place.reads_at_end = job.reads_at_end;
  if (job.scales_loss) place.loss_scaling = ir::LossScaling();
  if (job.library_on_device) {
    place.collectives = [meeting = std::make_shared<ThreadMeeting>(job.ranks),
                         where = on_device && !job.is_mixed ? device()
                                                            : torch::kCPU](std::uint32_t rank) {
      return std::make_unique<ThreadCollectives>(meeting, rank, where);
    };
  }
  if (on_device) {
    place.devices.assign(job.ranks, job.is_mixed ? torch::kCPU : device());
    place.devices.front() = device();
    place.on_thread = [] { return std::make_shared<OwnQueue>(); };
    if (job.is_captured_there) place.move = move_to_device;
  }
  return run_job(
      steps, job.builder, job.optimizer.empty() ? optimizer_of(job.model) : job.optimizer,
      job_steps,
      [&](int step, std::uint32_t part) {
        if (part == 0 && before_step) before_step(step);
        Batch batch = batch_at(job.model, step);
        if (scale != 1) batch[0] = batch[0] * scale;
        return rows_of(batch, part, replicas);
      },
      nullptr, job.micro_batches, nullptr, &place);
}

inline bool equal(const testing_jobs::Parameters& a, const testing_jobs::Parameters& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = a[i].equal(b[i]);
  return all;
}

}  // namespace autodist::test_device
