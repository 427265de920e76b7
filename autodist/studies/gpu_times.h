// Published trainings on the GPUs of one machine beside what the simulator makes of the same steps.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/sim/precision.h"

namespace autodist::studies {

struct PublishedStep {
  std::string model;  // a shipped graph
  std::string device;
  sim::Precision precision = sim::Precision::kFp32;
  std::int64_t batch = 0;         // samples of one forward and backward pass of a GPU
  double samples_per_second = 0;  // published, of all GPUs
  bool fitted = false;            // what kernels reach of their peaks was chosen by it
  std::string source;
  int gpus = 1;
  double link_bytes_per_s = 0;  // of each GPU to the others, one way
};
const std::vector<PublishedStep>& published_steps();

struct GpuTime {
  PublishedStep published;
  double samples_per_second = 0;  // predicted
  // Of the step's time, against the published one.
  [[nodiscard]] double error() const {
    return published.samples_per_second / samples_per_second - 1;
  }
};
std::vector<GpuTime> predict_published_steps();

// Of |error| over those by which something was fitted, or over the rest; one GPU, or several.
double median_error(const std::vector<GpuTime>& times, bool fitted, bool several);

std::string gpu_times_page(const std::vector<GpuTime>& times);
std::string gpu_times_json(const std::vector<GpuTime>& times);

}  // namespace autodist::studies
