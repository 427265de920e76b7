// Jobs whose ranks train on the test device, beside the same jobs on the CPU.

#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "tests/device/test_device.h"
#include "tests/reference.h"
#include "tests/threaded_job.h"

namespace autodist::test_device {

constexpr int kDeviceSteps = 4;

struct DeviceJob {
  std::string model;
  std::string builder;
  std::uint32_t ranks = 2;
  std::uint32_t micro_batches = 1;
};

inline std::string name_of(const DeviceJob& job) {
  return job.model + " " + job.builder + ", ranks: " + std::to_string(job.ranks) +
         ", micro-batches: " + std::to_string(job.micro_batches);
}
inline void PrintTo(const DeviceJob& job, std::ostream* out) { *out << name_of(job); }

inline testing_jobs::Parameters train(const DeviceJob& job, bool on_device) {
  using namespace testing_jobs;
  std::vector<TrainingStep> steps;
  for (std::uint32_t rank = 0; rank < job.ranks; ++rank) {
    steps.push_back(make_step(job.model, kBatch / job.ranks / job.micro_batches));
  }
  JobPlace place;
  place.cluster = cluster::read_cluster("local:" + std::to_string(job.ranks));
  if (on_device) {
    place.device = device();
    place.on_thread = [] { return std::make_shared<OwnQueue>(); };
  }
  return run_job(
      steps, job.builder, optimizer_of(job.model), kDeviceSteps,
      [&](int step, std::uint32_t rank) {
        return rows_of(batch_at(job.model, step), rank, job.ranks);
      },
      nullptr, job.micro_batches, nullptr, &place);
}

inline bool equal(const testing_jobs::Parameters& a, const testing_jobs::Parameters& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = a[i].equal(b[i]);
  return all;
}

}  // namespace autodist::test_device
