// A step of a job as this rank captured it, for as long as the job lives.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "autodist/capture/bindings.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/job/torch/joined_job.h"
#include "autodist/job/torch/session.h"

namespace autodist::job {

struct Captured {
  NamedStep named;
  std::optional<ir::LossScaling> scaling;
  TrainingStep step;       // named.step as it is captured
  std::uint64_t seed = 0;  // of its random numbers
  std::shared_ptr<const ir::Graph> graph;
  capture::Bindings bindings;          // of the graph, to this rank's own tensors
  capture::Bindings tensors;           // of the capture
  bool single_sample_differs = false;  // capture::CapturedStep
  bool needs_several_samples = false;  // as the chief has found of its capture::CapturedStep

  // "" where a job has one step alone.
  [[nodiscard]] const std::string& name() const { return named.name; }
  [[nodiscard]] bool trains() const { return named.optimizer.has_value(); }
  // Rows [begin, end) of part `index` of a batch that is divided in so many, as `rows_of(part)`
  // says, but for a part of one row where the step needs several: a neighbour has it.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_of_part(
      std::uint32_t index, std::uint32_t count,
      const std::function<std::pair<std::int64_t, std::int64_t>(std::uint32_t part)>& rows_of)
      const;
};

// Every rank captures its own step, to bind its own tensors, on the way that the chief's takes;
// only the chief measures what ops take. `index` counts the job's steps; the random numbers of a
// later one are those of a job with a seed larger by as many.
Captured capture_step(JoinedJob& job, NamedStep step, std::uint32_t index);

// The scale of the loss as the step's last input.
torch::Tensor as_input(float scale);

}  // namespace autodist::job
