// The update rules as loops over elements. What depends on the step alone is computed once, in
// double as torch does, and then rounded to the type of the arithmetic. Compiled with
// -ffp-contract=off: a fused product in the vector body but not in its remainder would make the
// bits depend on where a slice ends.

#include "autodist/exec/optimizer_kernels.h"

#include <algorithm>
#include <cmath>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/exec/half_float.h"
#include "autodist/exec/update_formulas.h"

namespace autodist::exec {
namespace {

using ir::Rule;

// A run of elements; P is stored, T is computed with.
template <typename P>
struct Run : UpdateScalars {
  using T = decltype(widen(P{}));
  P* parameters;
  const P* gradient;
  std::int64_t elements;
  UpdateState& state;

  [[nodiscard]] T* array(std::size_t index) const { return static_cast<T*>(state.data(index)); }

  // Calls body(parameter, gradient, states…) for each element, the parameter and the states by
  // reference.
  template <typename Body, typename... States>
  void each(Body body, States* __restrict... states) const {
    P* __restrict w = parameters;
    const P* __restrict g = gradient;
    for (std::int64_t i = 0; i < elements; ++i) {
      T value = widen(w[i]);
      body(value, static_cast<T>(widen(g[i])), states[i]...);
      w[i] = narrow<P>(value);
    }
  }
};

template <typename P>
void ftrl(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T power(-run.get("lr_power"));
  const bool square_root = run.get("lr_power") == -0.5;
  const T rate(run.lr);
  const T l1(run.get("l1"));
  const T beta(run.get("beta"));
  const T l2_twice(2 * run.get("l2"));
  const auto raise = [=](T value) {
    return square_root ? std::sqrt(value) : std::pow(value, power);
  };
  run.each(
      [=](T& w, T g, T& accumulator, T& linear) {
        const T before = raise(accumulator);
        accumulator += g * g;
        const T after = raise(accumulator);
        linear += g - (after - before) / rate * w;
        const T quadratic = (after + beta) / rate + l2_twice;
        const T shrunk = (linear > 0 ? l1 : -l1) - linear;
        w = std::abs(linear) <= l1 ? T(0) : shrunk / quadratic;
      },
      run.array(0), run.array(1));
}

// Calls with a pointer of the parameters' type, for its type alone.
template <typename Call>
auto with_type(DType dtype, Call call) {
  switch (dtype) {
    case DType::kFloat64:
      return call(static_cast<double*>(nullptr));
    case DType::kFloat16:
      return call(static_cast<Float16*>(nullptr));
    case DType::kBFloat16:
      return call(static_cast<BFloat16*>(nullptr));
    default:
      AD_CHECK(dtype == DType::kFloat32) << "cannot update " << name_of(dtype);
      return call(static_cast<float*>(nullptr));
  }
}

// LAMB's r + weight_decay w for one element, the same in both phases.
template <typename T>
struct LambStep {
  T eps, decay, correction1, correction2;

  LambStep(const ir::UpdateRule& rule, std::int64_t step)
      : eps(option_of(rule, "eps")),
        decay(option_of(rule, "weight_decay")),
        correction1(1 - std::pow(option_of(rule, "beta1"), static_cast<double>(step + 1))),
        correction2(1 - std::pow(option_of(rule, "beta2"), static_cast<double>(step + 1))) {}

  T operator()(T w, T m, T v) const {
    return m / correction1 / (std::sqrt(v / correction2) + eps) + decay * w;
  }
};

void check_fits(const UpdateState& state, std::int64_t elements, DType dtype) {
  AD_CHECK(state.elements() == elements)
      << "state of " << state.elements() << " elements for " << elements;
  AD_CHECK(state.dtype() == state_dtype(dtype))
      << name_of(state.dtype()) << " state for " << name_of(dtype);
}

double initial_value(const ir::UpdateRule& rule, const std::string& name) {
  if (rule.rule == Rule::kAdagrad) return option_of(rule, "initial_accumulator_value");
  if (rule.rule == Rule::kFtrl && name == "accumulator") {
    return option_of(rule, "initial_accumulator_value");
  }
  return 0;
}

const UserRules::Entry& user_entry(const ir::UpdateRule& rule, const UserRules* user_rules) {
  if (user_rules == nullptr) return UserRules{}.find(rule.user_rule);
  return user_rules->find(rule.user_rule);
}

}  // namespace

void UserRules::add(const std::string& name, int states, Update update) {
  AD_CHECK(states >= 0 && update) << "user rule " << name;
  const bool added = entries_.emplace(name, Entry{states, std::move(update)}).second;
  AD_CHECK(added) << "user rule " << name << " is added twice";
}

const UserRules::Entry& UserRules::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [each, unused] : entries_) known.push_back(each);
  fail(ErrorCode::kUsage, "optimizer: no user rule '{}' among the {} that were added.{}", name,
       known.size(), did_you_mean(name, known));
}

DType state_dtype(DType parameters) {
  return parameters == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<std::string> state_names(const ir::UpdateRule& rule, const UserRules* user_rules) {
  switch (rule.rule) {
    case Rule::kSgd:
      if (option_of(rule, "momentum") == 0) return {};
      return {"momentum_buffer"};
    case Rule::kAdam:
    case Rule::kAdamW:
      if (option_of(rule, "amsgrad") != 0) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
      return {"exp_avg", "exp_avg_sq"};
    case Rule::kNAdam:
    case Rule::kLamb:
      return {"exp_avg", "exp_avg_sq"};
    case Rule::kAdagrad:
      return {"sum"};
    case Rule::kAdadelta:
      return {"square_avg", "acc_delta"};
    case Rule::kAdamax:
      return {"exp_avg", "exp_inf"};
    case Rule::kFtrl:
      return {"accumulator", "linear"};
    case Rule::kRmsProp: {
      std::vector<std::string> names = {"square_avg"};
      if (option_of(rule, "momentum") > 0) names.emplace_back("momentum_buffer");
      if (option_of(rule, "centered") != 0) names.emplace_back("grad_avg");
      return names;
    }
    case Rule::kUser:
      break;
  }
  std::vector<std::string> names;
  for (int i = 0; i < user_entry(rule, user_rules).states; ++i) {
    names.push_back(fmt::format("state{}", i));
  }
  return names;
}

UpdateState::UpdateState(const ir::UpdateRule& rule, std::int64_t elements, DType dtype,
                         const UserRules* user_rules)
    : names_(state_names(rule, user_rules)), dtype_(state_dtype(dtype)), elements_(elements) {
  AD_CHECK(elements >= 0) << elements;
  if (!is_floating(dtype)) {
    fail(ErrorCode::kUsage, "optimizer: cannot train elements of {}, expected a floating type",
         name_of(dtype));
  }
  for (const std::string& name : names_) {
    arrays_.emplace_back(bytes_per_state());
    const double initial = initial_value(rule, name);
    if (initial == 0) continue;
    if (dtype_ == DType::kFloat64) {
      std::fill_n(static_cast<double*>(data(arrays_.size() - 1)), elements, initial);
    } else {
      std::fill_n(static_cast<float*>(data(arrays_.size() - 1)), elements,
                  static_cast<float>(initial));
    }
  }
}

std::size_t UpdateState::bytes_per_state() const {
  return static_cast<std::size_t>(elements_) * size_of(dtype_);
}

void* UpdateState::data(std::size_t index) {
  AD_CHECK(index < arrays_.size()) << index << " of " << arrays_.size() << " states";
  return arrays_[index].data();
}

const void* UpdateState::data(std::size_t index) const {
  AD_CHECK(index < arrays_.size()) << index << " of " << arrays_.size() << " states";
  return arrays_[index].data();
}

void apply(const UpdateStep& update, const ParameterRun& run, UpdateState& state) {
  check_fits(state, run.elements, run.dtype);
  const ir::UpdateRule& rule = update.rule;
  const double lr = option_of(rule, "lr") * update.lr_factor;
  if (rule.rule == Rule::kUser) {
    UserUpdate user{run.parameters, run.gradient, run.dtype, {},
                    run.elements,   update.step,  lr,        &rule.options};
    for (std::size_t i = 0; i < state.names().size(); ++i) user.states.push_back(state.data(i));
    user_entry(rule, update.user_rules).update(user);
    return;
  }
  with_type(run.dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    const Run<P> typed{{rule, lr, update.step},
                       static_cast<P*>(run.parameters),
                       static_cast<const P*>(run.gradient),
                       run.elements,
                       state};
    if (rule.rule == Rule::kFtrl) return ftrl(typed);
    apply_formula(typed);
  });
}

LambNorms sum_lamb_norms(const UpdateStep& update, const ParameterRun& run, UpdateState& state) {
  const ir::UpdateRule& rule = update.rule;
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, run.elements, run.dtype);
  return with_type(run.dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    using T = decltype(widen(P{}));
    const auto* w = static_cast<const P*>(run.parameters);
    const auto* g = static_cast<const P*>(run.gradient);
    T* m = static_cast<T*>(state.data(0));
    T* v = static_cast<T*>(state.data(1));
    const T beta1(option_of(rule, "beta1"));
    const T beta2(option_of(rule, "beta2"));
    const T fresh1(1 - option_of(rule, "beta1"));
    const T fresh2(1 - option_of(rule, "beta2"));
    const LambStep<T> moves(rule, update.step);
    LambNorms norms;
    const std::int64_t elements = run.elements;  // the loop does not write it
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      const T slope = widen(g[i]);
      m[i] = m[i] * beta1 + fresh1 * slope;
      v[i] = v[i] * beta2 + fresh2 * slope * slope;
      const double moved = moves(value, m[i], v[i]);
      norms.parameters_squared += static_cast<double>(value) * static_cast<double>(value);
      norms.update_squared += moved * moved;
    }
    return norms;
  });
}

void apply_lamb(const UpdateStep& update, const ParameterRun& run, const UpdateState& state,
                const LambNorms& norms) {
  const ir::UpdateRule& rule = update.rule;
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, run.elements, run.dtype);
  const bool both = norms.parameters_squared > 0 && norms.update_squared > 0;
  const double ratio =
      both ? std::sqrt(norms.parameters_squared) / std::sqrt(norms.update_squared) : 1;
  with_type(run.dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    using T = decltype(widen(P{}));
    auto* __restrict w = static_cast<P*>(run.parameters);
    const T* __restrict m = static_cast<const T*>(state.data(0));
    const T* __restrict v = static_cast<const T*>(state.data(1));
    const T rate(-option_of(rule, "lr") * update.lr_factor * ratio);
    const LambStep<T> moves(rule, update.step);
    const std::int64_t elements = run.elements;  // the loop does not write it
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      w[i] = narrow<P>(value + rate * moves(value, m[i], v[i]));
    }
  });
}

}  // namespace autodist::exec
