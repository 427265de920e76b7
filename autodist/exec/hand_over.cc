#include "autodist/exec/hand_over.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/nonfinite.h"
#include "autodist/exec/outputs.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

torch::Tensor real_of(const torch::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

// The largest magnitude; not finite where any element is not. By one kernel.
torch::Tensor largest_of(const torch::Tensor& tensor) {
  return at::linalg_vector_norm(real_of(tensor), kInfinity);
}

}  // namespace

HandOver::HandOver(Engine& engine)
    : program_(engine.rank().program),
      self_(engine.rank().self),
      device_(engine.slices().staging.device()),
      on_nonfinite_(engine.rank().options.on_nonfinite),
      engine_(engine),
      sums_(*program_.graph),
      factors_(program_.variables.size()),
      copies_(device_, engine.slices().staging,
              [&engine](const std::exception_ptr& error) { engine.abort(error); }) {}

void HandOver::begin_step(std::uint64_t step, float scale) {
  step_ = step;
  scale_ = scale;
  overflow_ = false;
  held_back_ = false;
  losses_.clear();
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
    if (i == 0) losses_.push_back(number);
    numbers_[i] += (weighted ? static_cast<double>(samples) : 1) * number;
    // On a CPU the compute stream has looked at the loss itself.
    const bool stops = on_nonfinite_ == OnNonFinite::kStop && !scales_loss();
    if (i == 0 && stops && !device_.is_cpu() && !std::isfinite(number)) held_back_ = true;
  }
  samples_ += samples;
}

void HandOver::send_numbers() {
  copies_.bring(HostCopies::kBeforeAll, {},
                [this](const Tensors&) { engine_.news().add_sums(numbers_, samples_); });
}

// Times the scale's reciprocal in 32 bits, as GradScaler.unscale_. Not in place: the tensor may be
// another variable's gradient, too.
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
       "{}",
       step_, variable.name, self_, program_.graph->op(*variable.gradient_complete).name,
       kDiverges);
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
  // A device's gradients are checked when the host has their sum.
  if (device_.is_cpu()) check(variable, gradient);
  return sums_.add(variable, unscaled(gradient), micro);
}

bool HandOver::travels_as_factors(ir::VariableId variable) const {
  return sums_products(program_.exchange(variable));
}

void HandOver::bring_of(ir::VariableId variable, const torch::Tensor& gradient, Tensors made,
                        const HostCopies::Then& then) {
  const std::size_t count = made.size();
  if (looks_at_gradients() && gradient.numel() > 0) made.push_back(largest_of(gradient));
  copies_.bring(engine_.driver().needed(variable), std::move(made),
                [this, variable, count, then](const Tensors& on_host) {
                  if (held_back_) return;
                  if (on_host.size() > count) {
                    note(variable, std::isfinite(on_host.back().item<double>()));
                  }
                  then(on_host);
                });
}

void HandOver::contribute_there(ir::VariableId variable, const torch::Tensor& gradient,
                                std::int64_t samples) {
  const Mark complete = Queue::current(device_).record();
  bring_of(variable, gradient, {}, [this, variable, gradient, samples, complete](const Tensors&) {
    engine_.whole().contribute(variable, gradient, step_, samples, complete);
  });
}

// Half as much crosses to the host, which cannot see what was infinite before the cast.
void HandOver::contribute_cast(ir::VariableId variable, const torch::Tensor& gradient,
                               std::int64_t samples) {
  bring_of(variable, gradient, {engine_.slices().contributor.cast_there(variable, gradient)},
           [this, variable, samples](const Tensors& on_host) {
             engine_.driver().contribute(variable, on_host.front(), step_, samples);
           });
}

// By gradient: the norm where a clip needs it, else the largest magnitude; both tell whether it is
// finite.
std::vector<double> HandOver::norms_of(const std::vector<Own>& own,
                                       const std::function<void()>& look) {
  std::map<torch::ScalarType, std::vector<std::size_t>> others;
  Tensors parts;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const torch::Tensor& gradient = own[i].gradient;
    if (gradient.numel() == 0) continue;
    if (engine_.whole().is_clipped(own[i].variable)) {
      parts.push_back(
          at::linalg_vector_norm(real_of(gradient), 2, {}, false, torch::kDouble).view({1}));
      order.push_back(i);
    } else if (looks_at_gradients()) {
      others[gradient.scalar_type()].push_back(i);
    }
  }
  for (const auto& [type, indices] : others) {
    Tensors gradients;
    for (const std::size_t i : indices) gradients.push_back(real_of(own[i].gradient));
    parts.push_back(at::stack(at::_foreach_norm(gradients, kInfinity)).to(torch::kDouble));
    order.insert(order.end(), indices.begin(), indices.end());
  }
  std::vector<double> norms(own.size());
  if (parts.empty()) return norms;
  const torch::Tensor there = on_host(at::cat(parts), engine_.slices().staging, look);
  const auto* const values = there.data_ptr<double>();
  for (std::size_t i = 0; i < order.size(); ++i) norms[order[i]] = values[i];
  return norms;
}

void HandOver::contribute_own(const std::function<void()>& look) {
  const std::vector<Own> own = std::exchange(own_, {});
  const std::vector<double> norms = norms_of(own, look);
  copies_.drain(HostCopies::kBeforeAll);
  if (held_back_) return;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [variable, gradient, samples] = own[i];
    if (looks_at_gradients()) note(variable, std::isfinite(norms[i]));
    std::optional<double> squares;
    if (engine_.whole().is_clipped(variable)) squares = norms[i] * norms[i];
    engine_.whole().contribute(variable, gradient, step_, samples, {}, squares);
  }
}

void HandOver::contribute(ir::VariableId variable, torch::Tensor gradient, std::int64_t samples) {
  if (samples != 0 && engine_.whole().stays_on_device(variable)) {
    const torch::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
    const torch::ScalarType type = engine_.slices().variables.tensor(variable).scalar_type();
    Own own{variable, dense.to(type).contiguous(), samples};
    if (program_.plan(variable).collective) {
      contribute_there(variable, own.gradient, samples);
    } else {
      own_.push_back(std::move(own));
    }
    return;
  }
  if (samples != 0 && engine_.slices().contributor.is_cast_there(variable, gradient)) {
    return contribute_cast(variable, gradient, samples);
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
