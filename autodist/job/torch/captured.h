// A step of a job as this rank captured it, for as long as the job lives.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

  // "" where a job has one step alone.
  [[nodiscard]] const std::string& name() const { return named.name; }
  [[nodiscard]] bool trains() const { return named.optimizer.has_value(); }
};

// Every rank captures its own step, to bind its own tensors, on the way that the chief's takes;
// only the chief measures what ops take. `index` counts the job's steps; the random numbers of a
// later one are those of a job with a seed larger by as many.
Captured capture_step(JoinedJob& job, NamedStep step, std::uint32_t index);

// The scale of the loss as the step's last input.
torch::Tensor as_input(float scale);

}  // namespace autodist::job
