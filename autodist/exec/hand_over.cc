#include "autodist/exec/hand_over.h"

#include <cmath>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/nonfinite.h"
#include "autodist/exec/outputs.h"
#include "autodist/program/loads.h"

namespace autodist::exec {

HandOver::HandOver(const program::Program& program, program::Rank self,
                   const RunnerOptions& options, Engine& engine)
    : program_(program),
      self_(self),
      device_(engine.slices().staging.device()),
      on_nonfinite_(options.on_nonfinite),
      engine_(engine),
      sums_(*program.graph),
      factors_(program.variables.size()),
      copies_(device_, engine.slices().staging,
              [&engine](const std::exception_ptr& error) { engine.abort(error); }) {}

void HandOver::begin_step(std::uint64_t step, float scale) {
  step_ = step;
  scale_ = scale;
  overflow_ = false;
  held_back_ = false;
  numbers_.clear();
  samples_ = 0;
}

void HandOver::add_numbers(const Replay& replay, std::int64_t samples) {
  Tensors numbers;
  for (const std::size_t output : numbers_of(replay.graph())) {
    numbers.push_back(replay.output(output));
  }
  copies_.bring(HostCopies::kBeforeAll, std::move(numbers),
                [this, samples](const Tensors& on_host) { add_numbers(on_host, samples); });
}

void HandOver::add_numbers(const Tensors& numbers, std::int64_t samples) {
  const bool mean = program_.graph->reduction == ir::Reduction::kMean;
  numbers_.resize(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool weighted = i > 0 || mean;
    const auto number = numbers[i].item<double>();
    numbers_[i] += (weighted ? static_cast<double>(samples) : 1) * number;
    // Of a CPU whoever runs the step has looked at the loss.
    const bool stops = on_nonfinite_ == OnNonFinite::kStop && !scales_loss();
    if (i == 0 && stops && !device_.is_cpu() && !std::isfinite(number)) held_back_ = true;
  }
  samples_ += samples;
}

void HandOver::send_numbers() {
  copies_.bring(HostCopies::kBeforeAll, {},
                [this](const Tensors&) { engine_.news().add_sums(numbers_, samples_); });
}

// As GradScaler.unscale_: divided by the scale, as its reciprocal in 32 bits. The tensor may be
// another variable's, too.
torch::Tensor HandOver::unscaled(const torch::Tensor& gradient) const {
  const auto factor = static_cast<float>(1.0 / static_cast<double>(scale_));
  return factor == 1 ? gradient : gradient * static_cast<double>(factor);
}

// On the host, before it leaves the rank.
void HandOver::check(ir::VariableId id, const torch::Tensor& gradient) {
  if (looks_at_gradients()) note(id, is_finite(gradient));
}

void HandOver::note(ir::VariableId id, bool finite) {
  if (finite) return;
  if (scales_loss()) {
    overflow_ = true;
    return;
  }
  const ir::Variable& variable = program_.graph->variable(id);
  fail(ErrorCode::kUsage,
       "step {}: the gradient of '{}' at rank {} is not finite (its last op is {}); the loss was. "
       "The training diverges.",
       step_, variable.name, self_, program_.graph->op(*variable.gradient_complete).name);
}

torch::Tensor HandOver::add(Replay& replay, ir::VariableId variable,
                            const GradientSums::MicroBatch& micro) {
  if (micro.samples == 0) {
    const bool any = micro.last && micro.samples_before > 0;
    return any ? sums_.take(variable, micro.samples_before) : torch::Tensor();
  }
  AD_CHECK(micro.samples_before == 0 || !travels_as_factors(variable))
      << "factors of several micro-batches are no factors of their sum";
  const torch::Tensor gradient = replay.take_gradient(variable);
  // Of a device the host looks at the sum, when it has it.
  if (device_.is_cpu()) check(variable, gradient);
  return sums_.add(variable, unscaled(gradient), micro);
}

bool HandOver::travels_as_factors(ir::VariableId variable) const {
  return contribution_form(program_.exchange(variable)).layout == program::Layout::kMatrices;
}

// Whether it is finite comes to the host in its place.
void HandOver::contribute_there(ir::VariableId variable, const torch::Tensor& gradient,
                                std::int64_t samples) {
  const torch::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
  Tensors finite;
  if (looks_at_gradients()) finite.push_back(dense.isfinite().all());
  const torch::Tensor own =
      dense.to(engine_.slices().variables.tensor(variable).scalar_type()).contiguous();
  const Mark complete = Queue::current(device_).record();
  copies_.bring(engine_.driver().needed(variable), std::move(finite),
                [this, variable, own, samples, complete](const Tensors& on_host) {
                  if (held_back_) return;
                  if (!on_host.empty()) note(variable, on_host.front().item<bool>());
                  engine_.whole().contribute(variable, own, step_, samples, complete);
                });
}

void HandOver::contribute(ir::VariableId variable, torch::Tensor gradient, std::int64_t samples) {
  if (samples != 0 && engine_.whole().stays_on_device(variable)) {
    return contribute_there(variable, gradient, samples);
  }
  Tensors parts;
  if (travels_as_factors(variable)) {
    auto [left, right] = std::exchange(factors_[variable.value], {});
    if (samples != 0) parts = {unscaled(left), right};
  } else if (samples != 0) {
    parts.push_back(std::move(gradient));
  }
  copies_.bring(engine_.driver().needed(variable), std::move(parts),
                [this, variable, samples](const Tensors& on_host) {
                  if (!held_back_) contribute_on_host(variable, on_host, samples);
                });
}

void HandOver::contribute_on_host(ir::VariableId variable, const Tensors& parts,
                                  std::int64_t samples) {
  const bool factors = travels_as_factors(variable);
  for (const torch::Tensor& part : parts) {
    if (!device_.is_cpu() || (factors && scales_loss())) check(variable, part);
  }
  const torch::Tensor first = parts.empty() ? torch::Tensor() : parts.front();
  if (factors) {
    const torch::Tensor second = parts.empty() ? torch::Tensor() : parts.back();
    engine_.driver().contribute_factors(variable, first, second, step_, samples);
  } else if (program_.plan(variable).slices.empty()) {
    engine_.whole().contribute(variable, first, step_, samples);
  } else {
    engine_.driver().contribute(variable, first, step_, samples);
  }
}

void HandOver::send(program::StageTransferId transfer, const torch::Tensor& value) {
  copies_.bring(HostCopies::kBeforeAll, {engine_.stages().distinct(transfer, value)},
                [this, transfer](const Tensors& on_host) {
                  engine_.stages().send(transfer, step_, on_host.front());
                });
}

void HandOver::raise_flag() {
  copies_.bring(HostCopies::kAfterAll, {},
                [this](const Tensors&) { engine_.driver().raise_flag(step_, overflow_); });
}

}  // namespace autodist::exec
