// Runs a step once and writes down every op that reaches libtorch's kernels, forward and backward,
// as a Graph whose numbers are those of this one run (every Affine is a constant).
//
// Recording happens at the dispatcher, below autograd: a boxed fallback on a spare dispatch key.
// Private to capture.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autodist/capture/op_traits.h"
#include "autodist/capture/training_step.h"
#include "autodist/ir/graph.h"

namespace autodist::capture {

struct RecordOptions {
  at::Device device = at::kCPU;
  // The batch's last tensor scales the loss (capture::Options).
  bool scaled_loss = false;
  // Digest the arguments of every op before and after it, and refuse an op that writes what neither
  // its schema nor our table says.
  bool check_writes = false;
  std::function<void()> look_around = {};  // capture::Options
  std::vector<bool> booleans = {};         // capture::Options
  // Recordings of one step share it, as asking libtorch's schemas takes as long as small ops do.
  std::shared_ptr<OpTraitsTable> traits = std::make_shared<OpTraitsTable>();
};

struct Recording {
  ir::Graph graph;
  std::vector<at::Tensor> constants;  // in the order of graph.constants
};

// While it lives, the step that this thread runs, unrecorded, reads these Booleans in the places of
// the first ones that the host asks for, whatever the tensors hold; and in its backward pass sparse
// gradients of one variable are added as in a recording.
class AnsweredBooleans {
 public:
  explicit AnsweredBooleans(std::vector<bool> answers);
  ~AnsweredBooleans();
  AnsweredBooleans(const AnsweredBooleans&) = delete;
  AnsweredBooleans& operator=(const AnsweredBooleans&) = delete;

  // All that the host has read so far.
  [[nodiscard]] const std::vector<bool>& read() const;
  // What the thread runs from here on is the backward pass.
  void enter_backward();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What the step's own functions get of a batch whose last tensor scales the loss.
Batch without_scale(const Batch& batch);

// One training step on `batch`: loss and gradients. Buffers that the step writes are written;
// parameters and their .grad are left as they were. `graph.inputs` says batched where
// is_batched(step, …).
//
// Throws Error(kUsage), naming op and module, for what a replay would get wrong: numbers and shapes
// that depend on data, writes to parameters and to tensors that nobody named. What the step itself
// throws passes through, except where the last op that ran lacked memory or a kernel: then
// DeviceRefusal comes, whatever the step has made of that.
Recording record_training(const TrainingStep& step, const Batch& batch,
                          const RecordOptions& options);

// Records step.evaluate, without gradients; throws as record_training(). REQUIRES: step.evaluate is
// not empty.
Recording record_evaluation(const TrainingStep& step, const Batch& batch,
                            const RecordOptions& options);

}  // namespace autodist::capture
