#include "autodist/exec/device/tensor_update.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/update_formulas.h"

namespace autodist::exec {
namespace {

using Tensors = std::vector<torch::Tensor>;

// Tensors of several variables with the operators of numbers: one call of libtorch's for all. What
// nobody else holds is written in place; so is what the update is of, by += and *=. A number is
// rounded to the tensors' type first.
struct Elements {
  Tensors values;
  bool is_updated = false;

  [[nodiscard]] bool may_be_written() const {
    return is_updated || std::all_of(values.begin(), values.end(),
                                     [](const torch::Tensor& t) { return t.use_count() == 1; });
  }

  Elements& operator+=(const Elements& b) {
    if (may_be_written()) {
      at::_foreach_add_(values, b.values);
    } else {
      values = at::_foreach_add(values, b.values);
    }
    return *this;
  }
  Elements& operator*=(double b) {
    if (may_be_written()) {
      at::_foreach_mul_(values, b);
    } else {
      values = at::_foreach_mul(values, b);
    }
    return *this;
  }

  friend Elements operator+(const Elements& a, const Elements& b) {
    return {at::_foreach_add(a.values, b.values)};
  }
  friend Elements operator-(const Elements& a, const Elements& b) {
    return {at::_foreach_sub(a.values, b.values)};
  }
  friend Elements operator*(const Elements& a, const Elements& b) {
    return {at::_foreach_mul(a.values, b.values)};
  }
  friend Elements operator/(const Elements& a, const Elements& b) {
    return {at::_foreach_div(a.values, b.values)};
  }
  friend Elements operator+(const Elements& a, double b) { return {at::_foreach_add(a.values, b)}; }
  friend Elements operator*(const Elements& a, double b) { return {at::_foreach_mul(a.values, b)}; }
  friend Elements operator*(double a, const Elements& b) { return b * a; }
  friend Elements operator/(const Elements& a, double b) { return {at::_foreach_div(a.values, b)}; }
  friend Elements sqrt(const Elements& a) { return {at::_foreach_sqrt(a.values)}; }
  friend Elements abs(const Elements& a) { return {at::_foreach_abs(a.values)}; }
  friend Elements reciprocal(const Elements& a) { return {at::_foreach_reciprocal(a.values)}; }

  // Of an operand that an expression has made on its way: its memory takes the result.
  friend Elements operator+(Elements&& a, const Elements& b) {
    a += b;
    return std::move(a);
  }
  friend Elements operator*(Elements&& a, const Elements& b) {
    if (!a.may_be_written()) return {at::_foreach_mul(a.values, b.values)};
    at::_foreach_mul_(a.values, b.values);
    return std::move(a);
  }
  friend Elements operator/(Elements&& a, const Elements& b) {
    if (!a.may_be_written()) return {at::_foreach_div(a.values, b.values)};
    at::_foreach_div_(a.values, b.values);
    return std::move(a);
  }
  friend Elements operator+(Elements&& a, double b) {
    if (!a.may_be_written()) return {at::_foreach_add(a.values, b)};
    at::_foreach_add_(a.values, b);
    return std::move(a);
  }
  friend Elements operator/(Elements&& a, double b) {
    if (!a.may_be_written()) return {at::_foreach_div(a.values, b)};
    at::_foreach_div_(a.values, b);
    return std::move(a);
  }
  friend Elements larger(const Elements& a, const Elements& b) {
    Elements result;
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      result.values.push_back(torch::maximum(a.values[i], b.values[i]));
    }
    return result;
  }
};

Tensors converted(const Tensors& tensors, torch::ScalarType type) {
  Tensors result;
  for (const torch::Tensor& each : tensors) result.push_back(each.to(type));
  return result;
}

// Tensors over the same memory, writes to which do not count as the user's: CUDA's kernels for
// several tensors count their writes by themselves.
Tensors uncounted(const Tensors& tensors) {
  Tensors result;
  for (const torch::Tensor& each : tensors) result.push_back(each.variable_data());
  return result;
}

// Where an update has made others in their place.
void put_back(const Elements& made, const Tensors& updated) {
  for (std::size_t i = 0; i < updated.size(); ++i) {
    if (!made.values[i].is_alias_of(updated[i])) updated[i].copy_(made.values[i]);
  }
}

// T is what the formulas' scalars are rounded to. Accumulators stay where they are: a tensor that
// was made on another queue must not be freed while this one reads it.
template <typename Scalar>
struct TensorRun : UpdateScalars {
  using T = Scalar;
  const Tensors& parameters;
  const Tensors& gradients;
  const std::vector<Tensors>& states;

  [[nodiscard]] const Tensors* array(std::size_t index) const { return &states.at(index); }

  template <typename Body, typename... States>
  void each(Body body, States*... accumulators) const {
    const torch::ScalarType type = torch::CppTypeToScalarType<T>();
    const bool converts = type != parameters.front().scalar_type();
    Elements w{converts ? converted(parameters, type) : uncounted(parameters), true};
    std::array<Elements, sizeof...(States)> own{Elements{*accumulators, true}...};
    std::apply([&](auto&... values) { body(w, Elements{converted(gradients, type)}, values...); },
               own);
    put_back(w, parameters);
    [[maybe_unused]] std::size_t next = 0;
    (put_back(own[next++], *accumulators), ...);
  }
};

}  // namespace

bool updates_tensors(const ir::UpdateRule& rule) { return has_formula(rule.rule); }

void apply_to_tensors(const UpdateStep& update, const std::vector<torch::Tensor>& parameters,
                      const std::vector<torch::Tensor>& gradients,
                      const std::vector<std::vector<torch::Tensor>>& states) {
  AD_CHECK(updates_tensors(update.rule)) << ir::name_of(update.rule.rule);
  const torch::NoGradGuard no_gradients;
  const UpdateScalars scalars = scalars_of(update);
  if (parameters.front().scalar_type() == torch::kDouble) {
    apply_formula(TensorRun<double>{scalars, parameters, gradients, states});
  } else {
    apply_formula(TensorRun<float>{scalars, parameters, gradients, states});
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
