#include "autodist/exec/device/tensor_update.h"

#include <array>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/update_formulas.h"

namespace autodist::exec {
namespace {

// A tensor with the operators of numbers. A number is rounded to the tensor's type first, and is
// divided by as a tensor: CUDA multiplies with the reciprocal of a number instead.
struct Elements {
  torch::Tensor values;

  friend Elements operator+(const Elements& a, const Elements& b) { return {a.values + b.values}; }
  friend Elements operator-(const Elements& a, const Elements& b) { return {a.values - b.values}; }
  friend Elements operator*(const Elements& a, const Elements& b) { return {a.values * b.values}; }
  friend Elements operator/(const Elements& a, const Elements& b) { return {a.values / b.values}; }
  friend Elements operator+(const Elements& a, double b) { return {a.values + b}; }
  friend Elements operator*(const Elements& a, double b) { return {a.values * b}; }
  friend Elements operator*(double a, const Elements& b) { return {b.values * a}; }
  friend Elements operator/(const Elements& a, double b) {
    return {a.values / torch::full({}, b, a.values.options())};
  }
  Elements& operator+=(const Elements& b) { return *this = *this + b; }
  Elements& operator*=(double b) { return *this = *this * b; }
  friend Elements sqrt(const Elements& a) { return {a.values.sqrt()}; }
  friend Elements abs(const Elements& a) { return {a.values.abs()}; }
  friend Elements larger(const Elements& a, const Elements& b) {
    return {torch::maximum(a.values, b.values)};
  }
};

// T is what the formulas' scalars are rounded to.
template <typename Scalar>
struct TensorRun : UpdateScalars {
  using T = Scalar;
  const torch::Tensor& parameters;
  const torch::Tensor& gradient;
  const std::vector<torch::Tensor>& states;

  [[nodiscard]] const torch::Tensor* array(std::size_t index) const { return &states.at(index); }

  template <typename Body, typename... States>
  void each(Body body, States*... accumulators) const {
    const torch::ScalarType type = torch::CppTypeToScalarType<T>();
    Elements w{parameters.to(type)};
    std::array<Elements, sizeof...(States)> own{Elements{*accumulators}...};
    std::apply([&](auto&... values) { body(w, Elements{gradient.to(type)}, values...); }, own);
    parameters.copy_(w.values);
    [[maybe_unused]] std::size_t next = 0;
    (accumulators->copy_(own[next++].values), ...);
  }
};

}  // namespace

bool updates_tensors(const ir::UpdateRule& rule) { return has_formula(rule.rule); }

void apply_to_tensors(const ir::UpdateRule& rule, double lr_factor, std::int64_t step,
                      const torch::Tensor& parameters, const torch::Tensor& gradient,
                      const std::vector<torch::Tensor>& states) {
  AD_CHECK(updates_tensors(rule)) << ir::name_of(rule.rule);
  const torch::NoGradGuard no_gradients;
  const UpdateScalars scalars{rule, option_of(rule, "lr") * lr_factor, step};
  if (parameters.scalar_type() == torch::kDouble) {
    apply_formula(TensorRun<double>{scalars, parameters, gradient, states});
  } else {
    apply_formula(TensorRun<float>{scalars, parameters, gradient, states});
  }
}

std::vector<torch::Tensor> tensors_of(const UpdateState& state, torch::IntArrayRef sizes,
                                      torch::Device device) {
  std::vector<torch::Tensor> tensors;
  for (std::size_t i = 0; i < state.names().size(); ++i) {
    auto* const values = const_cast<void*>(state.data(i));  // NOLINT: read alone
    const torch::Tensor there = torch::from_blob(values, sizes, scalar_type_of(state.dtype()));
    tensors.push_back(there.to(device, there.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  }
  return tensors;
}

void copy_to_host(const std::vector<torch::Tensor>& states, UpdateState& state) {
  AD_CHECK(states.size() == state.names().size()) << states.size();
  for (std::size_t i = 0; i < states.size(); ++i) {
    torch::from_blob(state.data(i), states[i].sizes(), states[i].scalar_type()).copy_(states[i]);
  }
}

}  // namespace autodist::exec
