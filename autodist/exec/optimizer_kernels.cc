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

// LAMB's r + weight_decay w for one element, the same in both phases.
template <typename T>
struct LambStep {
  T eps, decay, correction1, correction2;

  explicit LambStep(const UpdateScalars& scalars)
      : eps(scalars.get("eps")),
        decay(scalars.get("weight_decay")),
        correction1(scalars.bias_correction("beta1")),
        correction2(scalars.bias_correction("beta2")) {}

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
  const bool is_given =
      rule.rule == Rule::kAdagrad || (rule.rule == Rule::kFtrl && name == "accumulator");
  return is_given ? option_of(rule, "initial_accumulator_value") : 0;
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
    case Rule::kRAdam:
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
    with_element_type(dtype_, [&](auto element) {
      using T = decltype(element);
      std::fill_n(elements_at<T>(arrays_.back().data()), elements, narrow<T>(initial));
    });
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
  const UpdateScalars scalars = scalars_of(update);
  if (rule.rule == Rule::kUser) {
    UserUpdate user{run.parameters, run.gradient,          run.dtype,  {},
                    run.elements,   update.updates_before, scalars.lr, &rule.options};
    for (std::size_t i = 0; i < state.names().size(); ++i) user.states.push_back(state.data(i));
    user_entry(rule, update.user_rules).update(user);
    return;
  }
  with_element_type(run.dtype, [&](auto element) {
    using P = decltype(element);
    const Run<P> typed{scalars, static_cast<P*>(run.parameters),
                       static_cast<const P*>(run.gradient), run.elements, state};
    if (rule.rule == Rule::kFtrl) return ftrl(typed);
    apply_formula(typed);
  });
}

SquaredSums sum_lamb_norms(const UpdateStep& update, const ParameterRun& run, UpdateState& state) {
  const ir::UpdateRule& rule = update.rule;
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, run.elements, run.dtype);
  const UpdateScalars scalars = scalars_of(update);
  return with_element_type(run.dtype, [&](auto element) {
    using P = decltype(element);
    using T = decltype(widen(P{}));
    const auto* w = static_cast<const P*>(run.parameters);
    const auto* g = static_cast<const P*>(run.gradient);
    T* m = static_cast<T*>(state.data(0));
    T* v = static_cast<T*>(state.data(1));
    const formulas::Moments<T> moments(scalars);
    const LambStep<T> moves(scalars);
    SquaredSums norms;
    const std::int64_t elements = run.elements;  // the loop does not write it
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      moments(static_cast<T>(widen(g[i])), m[i], v[i]);
      const double moved = moves(value, m[i], v[i]);
      norms.first += static_cast<double>(value) * static_cast<double>(value);
      norms.second += moved * moved;
    }
    return norms;
  });
}

void apply_lamb(const UpdateStep& update, const ParameterRun& run, const UpdateState& state,
                const SquaredSums& norms) {
  const ir::UpdateRule& rule = update.rule;
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, run.elements, run.dtype);
  const bool both = norms.first > 0 && norms.second > 0;
  const double ratio = both ? std::sqrt(norms.first) / std::sqrt(norms.second) : 1;
  const UpdateScalars scalars = scalars_of(update);
  with_element_type(run.dtype, [&](auto element) {
    using P = decltype(element);
    using T = decltype(widen(P{}));
    auto* __restrict w = static_cast<P*>(run.parameters);
    const T* __restrict m = static_cast<const T*>(state.data(0));
    const T* __restrict v = static_cast<const T*>(state.data(1));
    const T rate(-scalars.lr * ratio);
    const LambStep<T> moves(scalars);
    const std::int64_t elements = run.elements;  // the loop does not write it
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      w[i] = narrow<P>(value + rate * moves(value, m[i], v[i]));
    }
  });
}

}  // namespace autodist::exec
