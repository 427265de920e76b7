// From what a step computes to what leaves the rank: gradients of micro-batches are added up,
// brought to the host where they are on a device, checked, and handed to whoever exchanges them;
// before all of them, the numbers that the step returns. Values for other stages go the same way.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "autodist/exec/device/host_copies.h"
#include "autodist/exec/engine.h"
#include "autodist/exec/gradient_sums.h"
#include "autodist/exec/replay.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// By the compute thread. Where the model is on a device, checks and contributions happen on the
// thread that brings tensors to the host; await() then ends every step, before begin_step().
class HandOver {
 public:
  explicit HandOver(Engine& engine);  // outlives it

  // `scale`: what the step's loss is multiplied with.
  void begin_step(std::uint64_t step, float scale);

  // The numbers that a micro-batch of so many samples returns, once they are known.
  void add_numbers(const Replay& replay, std::int64_t samples);
  // All of the step's were added: they go out, with the first contribution at the latest.
  void send_numbers();

  // Two matrices whose product is the variable's gradient, in whose place they travel.
  void keep_factors(ir::VariableId variable, const torch::Tensor& left,
                    const torch::Tensor& right) {
    factors_[variable.value] = {left, right};
  }
  // Adds a micro-batch's gradient to the step's. Returns, with the last micro-batch, their mean
  // over all samples (or sum), undefined where there are none. REQUIRES: the gradient is complete.
  torch::Tensor add(Replay& replay, ir::VariableId variable, const GradientSums::MicroBatch& micro);
  // What add() gave for the last micro-batch, to be exchanged; `samples` are the step's. Throws
  // Error(kUsage) naming op, variable, rank and step for one that is not finite, where the step
  // stops at that; of a device this ends the engine instead.
  void contribute(ir::VariableId variable, torch::Tensor gradient, std::int64_t samples);
  // On a device, before raise_flag() and the updates: contributes the gradients that this rank
  // alone has. The host sleeps until it knows of all of them together whether they are finite; what
  // `look` throws ends that wait. Throws as contribute(). Nothing is contributed where held_back().
  void contribute_own(const std::function<void()>& look);
  // A value for other stages of a placed graph, whose memory is not written again in this step.
  void send(program::StageTransferId transfer, const torch::Tensor& value);
  // With loss scaling: all gradients were contributed.
  void raise_flag();

  // Until everything has left the rank.
  void await() { copies_.drain(); }

  // After contribute_own() or await(): whether the loss is not finite, for which nothing leaves.
  [[nodiscard]] bool held_back() const { return held_back_; }
  // After await(): of the step's micro-batches so far.
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }
  // After await(): whether a gradient is not finite, with loss scaling.
  [[nodiscard]] bool overflow() const { return overflow_; }

 private:
  using Tensors = HostCopies::Tensors;
  struct Own {
    ir::VariableId variable;
    torch::Tensor gradient;
    std::int64_t samples;
  };

  [[nodiscard]] bool scales_loss() const { return engine_.slices().scaler.is_on(); }
  [[nodiscard]] torch::Tensor unscaled(const torch::Tensor& gradient) const;
  [[nodiscard]] bool looks_at_gradients() const {
    return scales_loss() || on_nonfinite_ != OnNonFinite::kIgnore;
  }
  void check(ir::VariableId variable, const torch::Tensor& gradient);
  // Brings what the device has made of a gradient that the host does not get, and with it one
  // number that tells whether the gradient is finite. `then` gets it first to last, unless
  // held_back().
  void bring_of(ir::VariableId variable, const torch::Tensor& gradient, Tensors made,
                const HostCopies::Then& then);
  void note(ir::VariableId variable, bool finite);
  void contribute_there(ir::VariableId variable, const torch::Tensor& gradient,
                        std::int64_t samples);
  [[nodiscard]] std::vector<double> norms_of(const std::vector<Own>& own,
                                             const std::function<void()>& look);
  void add_numbers(const Tensors& numbers, std::int64_t samples);
  void contribute_cast(ir::VariableId variable, const torch::Tensor& gradient,
                       std::int64_t samples);
  void contribute_on_host(ir::VariableId variable, const Tensors& parts, std::int64_t samples);
  [[nodiscard]] bool travels_as_factors(ir::VariableId variable) const;

  const program::Program& program_;
  const program::Rank self_;
  const torch::Device device_;
  const OnNonFinite on_nonfinite_;
  Engine& engine_;
  std::uint64_t step_ = 0;
  float scale_ = 1;
  GradientSums sums_;  // of the step's micro-batches so far
  std::vector<std::pair<torch::Tensor, torch::Tensor>> factors_;  // by variable, until they leave
  std::vector<Own> own_;  // gradients, until contribute_own()
  std::atomic<bool> overflow_ = false;
  // By the thread that brings tensors.
  bool held_back_ = false;
  std::vector<double> losses_;
  std::vector<double> numbers_;  // times samples; by numbers_of() the graph
  std::int64_t samples_ = 0;     // that they are of
  HostCopies copies_;            // ends first
};

}  // namespace autodist::exec
