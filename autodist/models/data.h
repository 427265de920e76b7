// Data to train on: the digits, synthetic samples, a user's directory of NumPy files.
//
// Opt-in: includes torch through capture/training_step.h.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"

namespace autodist::models {

// Samples in memory: tensors whose first dimension counts them, in the order of the step's batch. A
// tensor of another size (the candidates of a sampled softmax) goes whole with every batch.
class Dataset {
 public:
  // REQUIRES: at least one tensor; the first one counts.
  explicit Dataset(Batch samples);

  [[nodiscard]] std::int64_t size() const { return size_; }
  // The samples of these indices, in their order. REQUIRES: 0 <= index < size().
  [[nodiscard]] Batch batch(const std::vector<std::int64_t>& indices) const;

 private:
  Batch samples_;
  std::int64_t size_;
};

// The 1,797 digits (data/digits/README.md), images scaled to 0..1 as [n, 1, 8, 8] of `dtype`,
// labels as int64; a seeded fifth is held out, the same in every run.
struct Digits {
  Dataset training;
  Dataset held_out;
};
Digits digits(torch::ScalarType dtype);

// x0.npy, x1.npy, …: one file per tensor of the batch. Real-valued arrays become `dtype`, integers
// int64. Throws Error(kUsage): no x0.npy, not a NumPy file, Fortran order, a dtype that cannot be
// used, sizes that differ, no samples.
Dataset read_directory(const std::string& directory, torch::ScalarType dtype);

}  // namespace autodist::models
