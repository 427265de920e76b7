// Steps on batches of any shapes: what the example did not have is captured when it first comes,
// and kept.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "autodist/capture/capture.h"
#include "autodist/exec/runner.h"
#include "autodist/program/program.h"

namespace autodist::job {

class ShapeCache {
 public:
  // `step` and the tensors of its first capture, for which `program` was made; all ranks have
  // agreed on that. Where it does not train, its `evaluate` was captured. `step` outlives the
  // cache.
  ShapeCache(const TrainingStep& step, bool trains, capture::Bindings tensors,
             std::shared_ptr<const program::Program> program, program::Rank rank,
             std::uint64_t seed);

  // One step of `runner` on this rank's rows. Where their shapes are new, the step is captured with
  // them first; that costs as much as the capture at the start, and happens at this rank alone.
  // Throws as Runner::step and capture::capture do. With `last` false, one micro-batch of a step
  // (Runner::accumulate).
  exec::StepResult step(exec::Runner& runner, const Batch& rows, bool last = true);

  // Compares the step with its replay on these rows, without training: Error(kUsage) where they
  // differ, because something that the host does has changed since the capture.
  void verify(exec::Runner& runner, const Batch& rows);

  // Captures so far, besides the first.
  [[nodiscard]] std::int64_t captures() const { return captures_; }

 private:
  struct Shape {
    std::shared_ptr<const ir::Graph> captured;
    capture::Bindings tensors;
    exec::ShapedStep code;
  };

  // The shape that accepts `rows`, as the most recently used one.
  Shape& find_or_capture(exec::Runner& runner, const Batch& rows);
  Shape capture_shape(exec::Runner& runner, const Batch& rows);

  const TrainingStep& step_;
  bool trains_;
  capture::Bindings tensors_;
  std::shared_ptr<const program::Program> program_;
  program::Rank rank_;
  std::uint64_t seed_;
  std::list<Shape> shapes_;  // most recently used first
  std::int64_t captures_ = 0;
};

}  // namespace autodist::job
