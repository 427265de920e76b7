// Jobs whose ranks train on the test device, beside the same jobs on the CPU.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "tests/device/test_device.h"
#include "tests/device/thread_collectives.h"
#include "tests/reference.h"
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
};

inline std::string name_of(const DeviceJob& job) {
  return job.model + " " + job.builder + ", ranks: " + std::to_string(job.ranks) +
         ", micro-batches: " + std::to_string(job.micro_batches) + " " + job.optimizer +
         (job.scales_loss ? " scaled" : "") + (job.is_captured_there ? " captured there" : "") +
         (job.library_on_device ? " on the device" : "");
}
inline void PrintTo(const DeviceJob& job, std::ostream* out) { *out << name_of(job); }

// `before_step`: called at the chief with the step's number. `scale`: of the batches' first input.
inline testing_jobs::Parameters train(const DeviceJob& job, bool on_device,
                                      int job_steps = kDeviceSteps,
                                      const std::function<void(int)>& before_step = {},
                                      double scale = 1) {
  using namespace testing_jobs;
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    steps.push_back(make_step(job.model, kBatch / job.ranks / job.micro_batches));
  }
  JobPlace place;
  place.cluster = cluster::read_cluster("local:" + std::to_string(job.ranks));
  if (job.scales_loss) place.loss_scaling = ir::LossScaling();
  if (job.library_on_device) {
    place.collectives = [meeting = std::make_shared<ThreadMeeting>(job.ranks),
                         where = on_device ? device() : torch::kCPU](std::uint32_t rank) {
      return std::make_unique<ThreadCollectives>(meeting, rank, where);
    };
  }
  if (on_device) {
    place.device = device();
    place.on_thread = [] { return std::make_shared<OwnQueue>(); };
    if (job.is_captured_there) place.move = move_to_device;
  }
  return run_job(
      steps, job.builder, job.optimizer.empty() ? optimizer_of(job.model) : job.optimizer,
      job_steps,
      [&](int step, std::uint32_t rank) {
        if (rank == 0 && before_step) before_step(step);
        Batch batch = batch_at(job.model, step);
        if (scale != 1) batch[0] = batch[0] * scale;
        return rows_of(batch, rank, job.ranks);
      },
      nullptr, job.micro_batches, nullptr, &place);
}

inline bool equal(const testing_jobs::Parameters& a, const testing_jobs::Parameters& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = a[i].equal(b[i]);
  return all;
}

}  // namespace autodist::test_device
