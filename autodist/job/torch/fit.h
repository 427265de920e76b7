// Training and evaluating over a data set, for programs of one's own: every rank reads its own
// disjoint part of every batch.
//
//   auto data = autodist::samples_of(torch::data::datasets::MNIST("data"));
//   autodist::fit(session, data, {/*epochs=*/3, /*batch=*/64});
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autodist/job/torch/session.h"

namespace autodist {

// Samples by index. `batch` gives the tensors that the step takes for some of them, in their order;
// it is called with what this rank reads alone.
struct SampleSource {
  std::int64_t size = 0;
  std::function<Batch(const std::vector<std::int64_t>&)> batch;
};

// A map-style data set of torch::data whose examples are (data, target).
template <typename Dataset>
SampleSource samples_of(Dataset dataset) {
  auto shared = std::make_shared<Dataset>(std::move(dataset));
  return {static_cast<std::int64_t>(shared->size().value()),
          [shared](const std::vector<std::int64_t>& indices) -> Batch {
            std::vector<torch::Tensor> data;
            std::vector<torch::Tensor> targets;
            for (const std::int64_t index : indices) {
              auto example = shared->get(static_cast<std::size_t>(index));
              data.push_back(std::move(example.data));
              targets.push_back(std::move(example.target));
            }
            if (data.empty()) return {};
            return {torch::stack(data), torch::stack(targets)};
          }};
}

struct FitOptions {
  std::int64_t epochs = 1;
  std::int64_t batch = 32;  // samples per step, all replicas together
  bool shuffle = true;      // every epoch anew, alike at every rank
  std::uint64_t seed = 0;
};

// Called at every rank, with the same arguments. A callback that returns false ends the training
// after the step (or epoch): all ranks together, whichever asked.
struct FitCallbacks {
  std::function<void(std::int64_t epoch)> on_epoch_begin;
  // A step's summary, one step later (see Session::summarise).
  std::function<bool(const StepSummary& step)> on_step;
  std::function<bool(std::int64_t epoch, double mean_loss)> on_epoch_end;
};

struct FitResult {
  std::int64_t epochs = 0;  // finished
  std::int64_t steps = 0;
  std::vector<double> losses;  // mean over the samples of each finished epoch
};

// Every rank calls it with the same options. A session that has done steps already (loaded, or
// fitted before) goes on where it is: epochs count from the first step of the training, and
// `epochs` of them are complete at the end. Throws Error(kUsage) for options out of range.
FitResult fit(Session& session, const SampleSource& samples, const FitOptions& options,
              const FitCallbacks& callbacks = {});

// Sums over all samples, each counted once whatever their number: every rank evaluates its part in
// batches of `batch`, and `sums` makes of the outputs what is added up (correct answers, losses,
// samples). The same at every rank; every rank calls it, at most six times between two steps.
std::vector<double> evaluate(
    Session& session, const SampleSource& samples, std::int64_t batch,
    const std::function<std::vector<double>(const std::vector<torch::Tensor>& outputs,
                                            const Batch& batch)>& sums);

}  // namespace autodist
