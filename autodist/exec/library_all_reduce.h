// The average of whole gradients by a collective library: as they are, or as two factors each.
//
// PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019, algorithms 1 and 2): a gradient, with what
// was lost of it before, is a matrix M [m, n] at every rank. From a Q [n, r] that all ranks share,
// P = mean of M Q, made orthonormal, and the next Q = mean of M^T P. Every rank takes P Q^T for the
// mean of M, and owes M - P (M^T P)^T. Two all-reduces, of m r and of n r elements.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/capture/training_step.h"
#include "autodist/comm/collectives.h"
#include "autodist/exec/device/staging.h"
#include "autodist/program/loads.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// One thread at a time.
class LibraryAllReduce {
 public:
  // `program` and `staging` outlive it, and so does `collectives`, which may be null where the
  // collective has one member. Ranks with equal seeds draw equal factors. `on_device`: gradients
  // and averages are on the staging's device. REQUIRES then: sends_whole_gradients().
  LibraryAllReduce(const program::Program& program, program::CollectiveId id,
                   comm::Collectives* collectives, std::uint64_t seed, Staging& staging,
                   bool on_device);

  // Whether no gradient travels as factors.
  static bool sends_whole_gradients(const program::Program& program, program::CollectiveId id);

  struct Average {
    std::vector<torch::Tensor> gradients;  // in the order of the collective's variables
    std::int64_t samples = 0;              // of all members; at 0 the gradients are zeros
    Bytes reduced;                         // what this rank gave to the library
  };
  [[nodiscard]] bool is_on_device() const { return on_device_; }

  // By all members, with as many steps before. `gradients`: of this rank's samples, row-major on
  // the host or, where is_on_device(), there, complete for the caller's queue; undefined without
  // samples. Returns when nothing reads them any more; while it waits for a device it calls `look`,
  // which may throw.
  Average run(const std::vector<torch::Tensor>& gradients, std::int64_t samples, std::uint64_t step,
              const std::function<void()>& look = {});

  // What a step hands on to the next, for checkpoints: "<variable>.owed", of the variable's shape,
  // and "<variable>.factor" [n, r]. Between steps only.
  [[nodiscard]] std::vector<NamedTensor> state() const;
  // Takes the entries that state() would give, where `state` has them; what is missing starts anew.
  // Throws Error(kCheckpoint) for another shape.
  void load(const std::vector<NamedTensor>& state);

 private:
  // A variable's place in the collective.
  struct Part {
    ir::VariableId variable;
    std::vector<std::int64_t> sizes;
    torch::ScalarType type = torch::kFloat32;
    program::LibraryLoads loads;  // of each all-reduce
    // Where it is factored (rank above 0):
    program::MatrixShape shape;
    std::int64_t rank = 0;
    torch::Tensor owed;    // [m, n]
    torch::Tensor factor;  // Q, [n, r]; undefined before the first step
  };

  void sum(torch::Tensor& flat) const;
  [[nodiscard]] torch::Tensor drawn(const Part& part, std::uint64_t step) const;
  void renew(Part& part, std::uint64_t step) const;
  [[nodiscard]] std::string name(const Part& part, const char* what) const;

  const program::Program& program_;
  const program::Collective& collective_;
  comm::Collectives* collectives_;
  std::uint64_t seed_;
  Staging& staging_;
  bool on_device_;
  torch::ScalarType type_;       // of the sums: sixteen bits cannot count samples
  program::LibraryLoads loads_;  // of all parts
  std::vector<Part> parts_;
};

}  // namespace autodist::exec
