// AutoDist as a C++ library: hand over a model, a step and a cluster; train.
//
//   autodist::AutoDist ad{"cluster.yml"};
//   auto session = ad.distribute(model, step_fn, autodist::Adam{1e-3}, example_batch);
//   for (auto& batch : loader) loss = session.run(batch);
//   session.save("ckpt");                                  // loads in plain PyTorch
//
// Every rank runs the same program: the first process becomes the chief and starts the others with
// the same arguments (or they are started by other means, see job/place.h and job/launcher.h).
//
// AutoDist is the front door of the library in job/torch, which asks no system: what this process's
// environment says is read here, and what there is to say goes to standard error from here
// (app/this_process.h).
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autodist/job/torch/session.h"

namespace autodist {

class AutoDist {
 public:
  // `cluster`: a resource specification, a host file or `local:N`; empty: the ranks that a launcher
  // started, else this process alone. Where nobody else started the ranks, the chief does, here and
  // over ssh.
  explicit AutoDist(const std::string& cluster, JobOptions options = {});
  ~AutoDist();
  AutoDist(AutoDist&&) noexcept;

  // Captures the step, chooses a strategy, rewrites and agrees with the other ranks. Called once.
  Session distribute(TrainingStep step, const ir::Optimizer& optimizer);

  // distribute() for several steps over one set of variables: a generator's and its critic's,
  // training and evaluation. Parameters and buffers go by name: a name means one tensor in all
  // steps. Where several train a variable, each keeps its own optimizer state for it. Throws
  // Error(kInfeasible) where they do so and it is asynchronous, or it is asked for before each step
  // (fetched rows).
  Steps distribute(std::vector<NamedStep> steps);

  // distribute() of a module holder (TORCH_MODULE) or a shared_ptr to a module, and a function
  // (module&, batch) -> scalar loss, the mean over the batch.
  template <typename Module, typename Loss>
  Session distribute(std::shared_ptr<Module> module, Loss loss, const ir::Optimizer& optimizer,
                     Batch example) {
    return distribute(
        make_training_step("model", std::move(module), std::move(loss), std::move(example)),
        optimizer);
  }
  template <typename Module, typename Loss>
  Session distribute(torch::nn::ModuleHolder<Module>& module, Loss loss,
                     const ir::Optimizer& optimizer, Batch example) {
    return distribute(module.ptr(), std::move(loss), optimizer, std::move(example));
  }

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool is_chief() const { return rank_ == 0; }
  // "Open MPI", "torchrun", …; empty where AutoDist started the ranks, or its own variables name
  // them.
  [[nodiscard]] const std::string& launcher() const { return launcher_; }

 private:
  std::unique_ptr<job::JoinedJob> job_;  // the session's after distribute()
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  std::string launcher_;
};

}  // namespace autodist
