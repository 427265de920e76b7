// Steps on batches of any shapes, which go any way: what the example had not is captured when it
// first comes, and kept. A way is what the host reads of Booleans (an `if` on data) and of
// integers before there is a gradient, and which sizes follow from data there; a graph goes one
// (ir::Way).
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/capture/capture.h"
#include "autodist/exec/runner.h"
#include "autodist/ir/own_ops.h"
#include "autodist/program/program.h"

namespace autodist::job {

class ShapeCache {
 public:
  // `step`, and of its first capture the tensors, the handles of variables that the job has, and
  // whether a single sample differs; `program` was made for that, and all ranks have agreed on it.
  // Where the step does not train, its `evaluate` was captured. `step` outlives the cache.
  ShapeCache(const TrainingStep& step, bool trains, capture::Bindings tensors,
             std::vector<torch::Tensor> variables, bool single_sample_differs,
             std::shared_ptr<const program::Program> program, program::Rank rank);

  // One step of `runner` on this rank's rows. Where their shapes or their way are new, the step is
  // captured with them first; that costs as much as the capture at the start, and happens at this
  // rank alone. Which way they go shows when they go it: the forward pass is run with the graph
  // that was used last, and begun again where the host reads something else. Throws as Runner::step
  // and capture::capture do. With `last` false, one micro-batch of a step (Runner::accumulate).
  exec::StepResult step(exec::Runner& runner, const Batch& rows, bool last = true);

  // Compares the step with its replay on these rows, without training: Error(kUsage) where they
  // differ, because something that the host does has changed since the capture. Captures as step()
  // does.
  void verify(exec::Runner& runner, const Batch& rows);

  // The job has agreed on another Program for the first capture; the others follow when they come.
  void adopt(std::shared_ptr<const program::Program> program) { program_ = std::move(program); }

  // Captures so far, besides the first.
  [[nodiscard]] std::int64_t captures() const { return captures_; }
  // Those of them that numbers of data made necessary, and which the last was; for messages.
  [[nodiscard]] std::int64_t captures_for_numbers() const { return captures_for_numbers_; }
  [[nodiscard]] const std::string& number_of_data() const { return number_of_data_; }

 private:
  struct Shape {
    std::shared_ptr<const ir::Graph> captured;
    capture::Bindings tensors;
    std::optional<exec::ShapedStep> code;  // nothing for the first capture: the runner's own
    std::shared_ptr<const program::Program> made_for = nullptr;  // `code`
    int uncompared = 0;      // further steps that are compared with the step itself
    std::uint64_t seen = 0;  // Runner::next_seed() of the rows that it was captured or compared on
    bool single_sample_differs = false;  // capture::CapturedStep
  };

  // The way of a step, as far as it is known.
  struct Wanted {
    ir::Way way;
    std::string number_of_data;  // where a number is what was found last: which
    int turns = 0;               // how often what was found contradicts what was before
  };
  // The rows were found to go another `way` than the shape that was tried. Throws Error(kUsage)
  // where that contradicts what was known again and again.
  void extend(Wanted& known, const Shape& left, const ir::Way& way) const;
  // Compares a replay with the step itself, as verify(). False where the rows go another way than
  // the shape, then `known`.
  bool compare(exec::Runner& runner, const Batch& rows, Shape& shape, Wanted& known) const;

  // What accepts `rows` and begins with this way, as the most recently used one.
  Shape& find_or_capture(exec::Runner& runner, const Batch& rows, const Wanted& wanted);
  Shape capture_shape(exec::Runner& runner, const Batch& rows, const Wanted& wanted);
  void prepare(Shape& shape) const;
  void drop_oldest();

  const TrainingStep& step_;
  const bool trains_;
  const std::vector<torch::Tensor> variables_;
  bool single_samples_differ_;  // of any shape so far
  std::shared_ptr<const program::Program> program_;
  program::Rank rank_;
  std::list<Shape> shapes_;  // most recently used first; the first capture is always among them
  std::int64_t captures_ = 0;
  std::int64_t captures_for_numbers_ = 0;
  std::string number_of_data_;
};

}  // namespace autodist::job
