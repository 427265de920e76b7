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

namespace autodist::exec {
namespace {

using ir::Rule;

double option(const ir::UpdateRule& rule, const char* name) {
  const auto found = rule.options.find(name);
  AD_CHECK(found != rule.options.end()) << ir::name_of(rule.rule) << " without " << name;
  return found->second;
}

// A run of elements and the step's scalars; P is stored, T is computed with.
template <typename P>
struct Run {
  using T = decltype(widen(P{}));
  const ir::UpdateRule& rule;
  double lr;
  std::int64_t step;
  P* parameters;
  const P* gradient;
  std::int64_t elements;
  UpdateState& state;

  [[nodiscard]] double get(const char* name) const { return option(rule, name); }
  [[nodiscard]] T* array(std::size_t index) const { return static_cast<T*>(state.data(index)); }
  // 1 - beta^t with torch's t, which counts from 1.
  [[nodiscard]] double bias_correction(const char* beta) const {
    return 1 - std::pow(get(beta), static_cast<double>(step + 1));
  }

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
void sgd(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T decay(run.get("weight_decay"));
  const T rate(-run.lr);
  const T momentum(run.get("momentum"));
  if (momentum == 0) {
    run.each([=](T& w, T g) { w += rate * (decay != 0 ? g + decay * w : g); });
    return;
  }
  // The first update starts the buffer with the gradient, undamped.
  const bool first = run.step == 0;
  const bool nesterov = run.get("nesterov") != 0;
  const T kept(1 - run.get("dampening"));
  run.each(
      [=](T& w, T g, T& buffer) {
        if (decay != 0) g += decay * w;
        buffer = first ? g : buffer * momentum + kept * g;
        w += rate * (nesterov ? g + momentum * buffer : buffer);
      },
      run.array(0));
}

template <typename P>
void adam(const Run<P>& run, bool decoupled) {
  using T = typename Run<P>::T;
  const double weight_decay = run.get("weight_decay");
  const T decay(decoupled ? 0 : weight_decay);
  const T shrink(decoupled ? 1 - run.lr * weight_decay : 1);
  const T beta1(run.get("beta1"));
  const T beta2(run.get("beta2"));
  const T fresh1(1 - run.get("beta1"));
  const T fresh2(1 - run.get("beta2"));
  const T eps(run.get("eps"));
  const T rate(-(run.lr / run.bias_correction("beta1")));
  const T root(std::sqrt(run.bias_correction("beta2")));
  const auto moments = [=](T& w, T& g, T& m, T& v) {
    w *= shrink;
    if (decay != 0) g += decay * w;
    m = m * beta1 + fresh1 * g;
    v = v * beta2 + fresh2 * g * g;
  };
  const auto move = [=](T& w, T m, T v) { w += rate * m / (std::sqrt(v) / root + eps); };
  if (run.get("amsgrad") == 0) {
    run.each(
        [=](T& w, T g, T& m, T& v) {
          moments(w, g, m, v);
          move(w, m, v);
        },
        run.array(0), run.array(1));
    return;
  }
  run.each(
      [=](T& w, T g, T& m, T& v, T& largest) {
        moments(w, g, m, v);
        largest = v > largest || v != v ? v : largest;  // NaN stays, as in torch.maximum
        move(w, m, largest);
      },
      run.array(0), run.array(1), run.array(2));
}

template <typename P>
void adagrad(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T rate(-(run.lr / (1 + static_cast<double>(run.step) * run.get("lr_decay"))));
  run.each(
      [=](T& w, T g, T& sum) {
        if (decay != 0) g += decay * w;
        sum += g * g;
        w += rate * g / (std::sqrt(sum) + eps);
      },
      run.array(0));
}

template <typename P>
void adadelta(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T rho(run.get("rho"));
  const T fresh(1 - run.get("rho"));
  const T rate(-run.lr);
  run.each(
      [=](T& w, T g, T& square, T& accumulated) {
        if (decay != 0) g += decay * w;
        square = square * rho + fresh * g * g;
        const T delta = std::sqrt(accumulated + eps) / std::sqrt(square + eps) * g;
        accumulated = accumulated * rho + fresh * delta * delta;
        w += rate * delta;
      },
      run.array(0), run.array(1));
}

template <typename P>
void adamax(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T beta1(run.get("beta1"));
  const T beta2(run.get("beta2"));
  const T fresh1(1 - run.get("beta1"));
  const T rate(-(run.lr / run.bias_correction("beta1")));
  run.each(
      [=](T& w, T g, T& m, T& infinity) {
        if (decay != 0) g += decay * w;
        m = m * beta1 + fresh1 * g;
        const T decayed = infinity * beta2;
        const T size = std::abs(g) + eps;
        infinity = size > decayed || size != size ? size : decayed;
        w += rate * m / infinity;
      },
      run.array(0), run.array(1));
}

// torch keeps the product of the momenta in a float, whatever the parameter's type. A function of
// the step alone, so it is computed anew instead of being one more thing to save. torch 1.13 counts
// a step's momentum twice in the product that the next one is in; Dozat 2016 and torch 2 do not.
struct NAdamMomenta {
  double now;
  double next;
  double product;
  double product_next;
};

NAdamMomenta nadam_momenta(const ir::UpdateRule& rule, std::int64_t step) {
  const double beta1 = option(rule, "beta1");
  const double decay = option(rule, "momentum_decay");
  const auto momentum = [&](std::int64_t t) {
    return beta1 * (1. - 0.5 * std::pow(0.96, static_cast<double>(t) * decay));
  };
  float product = 1;
  for (std::int64_t t = 1; t <= step + 1 && product != 0; ++t) {
    product *= static_cast<float>(momentum(t));
  }
  const double now = momentum(step + 1);
  const double next = momentum(step + 2);
  const float twice = product * static_cast<float>(now) * static_cast<float>(next);
  return {now, next, product, option(rule, "as_published") != 0 ? product * next : twice};
}

template <typename P>
void nadam(const Run<P>& run) {
  using T = typename Run<P>::T;
  const NAdamMomenta mu = nadam_momenta(run.rule, run.step);
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T beta1(run.get("beta1"));
  const T beta2(run.get("beta2"));
  const T fresh1(1 - run.get("beta1"));
  const T fresh2(1 - run.get("beta2"));
  const T correction(run.bias_correction("beta2"));
  const T gradient_rate(-run.lr * (1. - mu.now) / (1. - mu.product));
  const T moment_rate(-run.lr * mu.next / (1. - mu.product_next));
  run.each(
      [=](T& w, T g, T& m, T& v) {
        if (decay != 0) g += decay * w;
        m = m * beta1 + fresh1 * g;
        v = v * beta2 + fresh2 * g * g;
        const T root = std::sqrt(v / correction) + eps;
        w += gradient_rate * g / root;
        w += moment_rate * m / root;
      },
      run.array(0), run.array(1));
}

template <typename P>
void rmsprop(const Run<P>& run) {
  using T = typename Run<P>::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T alpha(run.get("alpha"));
  const T fresh(1 - run.get("alpha"));
  const T momentum(run.get("momentum"));
  const T rate(-run.lr);
  const bool centered = run.get("centered") != 0;
  const auto root = [=](T g, T& square, T& mean) {
    square = square * alpha + fresh * g * g;
    if (!centered) return std::sqrt(square) + eps;
    mean = mean * alpha + fresh * g;
    return std::sqrt(square - mean * mean) + eps;
  };
  const auto coast = [=](T& w, T g, T root, T& buffer) {
    buffer = buffer * momentum + g / root;
    w += rate * buffer;
  };
  const auto decayed = [=](T w, T g) { return decay != 0 ? g + decay * w : g; };
  // In the order of state_names.
  T* square = run.array(0);
  if (momentum > 0 && centered) {
    run.each([=](T& w, T g, T& s, T& buffer,
                 T& mean) { g = decayed(w, g), coast(w, g, root(g, s, mean), buffer); },
             square, run.array(1), run.array(2));
  } else if (momentum > 0) {
    run.each(
        [=](T& w, T g, T& s, T& buffer) {
          T unused = 0;
          g = decayed(w, g);
          coast(w, g, root(g, s, unused), buffer);
        },
        square, run.array(1));
  } else if (centered) {
    run.each(
        [=](T& w, T g, T& s, T& mean) {
          g = decayed(w, g);
          w += rate * g / root(g, s, mean);
        },
        square, run.array(1));
  } else {
    run.each(
        [=](T& w, T g, T& s) {
          T unused = 0;
          g = decayed(w, g);
          w += rate * g / root(g, s, unused);
        },
        square);
  }
}

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

template <typename P>
void apply_typed(const Run<P>& run) {
  switch (run.rule.rule) {
    case Rule::kSgd:
      return sgd(run);
    case Rule::kAdam:
      return adam(run, /*decoupled=*/false);
    case Rule::kAdamW:
      return adam(run, /*decoupled=*/true);
    case Rule::kAdagrad:
      return adagrad(run);
    case Rule::kAdadelta:
      return adadelta(run);
    case Rule::kAdamax:
      return adamax(run);
    case Rule::kNAdam:
      return nadam(run);
    case Rule::kRmsProp:
      return rmsprop(run);
    case Rule::kFtrl:
      return ftrl(run);
    case Rule::kLamb:
    case Rule::kUser:
      break;
  }
  AD_CHECK(false) << "apply cannot run " << ir::name_of(run.rule.rule);
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
      : eps(option(rule, "eps")),
        decay(option(rule, "weight_decay")),
        correction1(1 - std::pow(option(rule, "beta1"), static_cast<double>(step + 1))),
        correction2(1 - std::pow(option(rule, "beta2"), static_cast<double>(step + 1))) {}

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
  if (rule.rule == Rule::kAdagrad) return option(rule, "initial_accumulator_value");
  if (rule.rule == Rule::kFtrl && name == "accumulator") {
    return option(rule, "initial_accumulator_value");
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
  const std::string near = nearest(name, known);
  fail(ErrorCode::kUsage, "optimizer: no user rule '{}' among the {} that were added.{}", name,
       known.size(), near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
}

DType state_dtype(DType parameters) {
  return parameters == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<std::string> state_names(const ir::UpdateRule& rule, const UserRules* user_rules) {
  switch (rule.rule) {
    case Rule::kSgd:
      if (option(rule, "momentum") == 0) return {};
      return {"momentum_buffer"};
    case Rule::kAdam:
    case Rule::kAdamW:
      if (option(rule, "amsgrad") != 0) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
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
      if (option(rule, "momentum") > 0) names.emplace_back("momentum_buffer");
      if (option(rule, "centered") != 0) names.emplace_back("grad_avg");
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

void apply(const ir::UpdateRule& rule, double lr_factor, std::int64_t step, void* parameters,
           const void* gradient, std::int64_t elements, DType dtype, UpdateState& state,
           const UserRules* user_rules) {
  check_fits(state, elements, dtype);
  const double lr = option(rule, "lr") * lr_factor;
  if (rule.rule == Rule::kUser) {
    UserUpdate update{parameters, gradient, dtype, {}, elements, step, lr, &rule.options};
    for (std::size_t i = 0; i < state.names().size(); ++i) update.states.push_back(state.data(i));
    user_entry(rule, user_rules).update(update);
    return;
  }
  with_type(dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    apply_typed(Run<P>{rule, lr, step, static_cast<P*>(parameters), static_cast<const P*>(gradient),
                       elements, state});
  });
}

LambNorms sum_lamb_norms(const ir::UpdateRule& rule, std::int64_t step, const void* parameters,
                         const void* gradient, std::int64_t elements, DType dtype,
                         UpdateState& state) {
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, elements, dtype);
  return with_type(dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    using T = decltype(widen(P{}));
    const auto* w = static_cast<const P*>(parameters);
    const auto* g = static_cast<const P*>(gradient);
    T* m = static_cast<T*>(state.data(0));
    T* v = static_cast<T*>(state.data(1));
    const T beta1(option(rule, "beta1"));
    const T beta2(option(rule, "beta2"));
    const T fresh1(1 - option(rule, "beta1"));
    const T fresh2(1 - option(rule, "beta2"));
    const LambStep<T> update(rule, step);
    LambNorms norms;
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      const T slope = widen(g[i]);
      m[i] = m[i] * beta1 + fresh1 * slope;
      v[i] = v[i] * beta2 + fresh2 * slope * slope;
      const double moved = update(value, m[i], v[i]);
      norms.parameters_squared += static_cast<double>(value) * static_cast<double>(value);
      norms.update_squared += moved * moved;
    }
    return norms;
  });
}

void apply_lamb(const ir::UpdateRule& rule, double lr_factor, std::int64_t step, void* parameters,
                std::int64_t elements, DType dtype, const UpdateState& state,
                const LambNorms& norms) {
  AD_CHECK(rule.rule == Rule::kLamb) << ir::name_of(rule.rule);
  check_fits(state, elements, dtype);
  const bool both = norms.parameters_squared > 0 && norms.update_squared > 0;
  const double ratio =
      both ? std::sqrt(norms.parameters_squared) / std::sqrt(norms.update_squared) : 1;
  with_type(dtype, [&](auto* type) {
    using P = std::remove_pointer_t<decltype(type)>;
    using T = decltype(widen(P{}));
    auto* __restrict w = static_cast<P*>(parameters);
    const T* __restrict m = static_cast<const T*>(state.data(0));
    const T* __restrict v = static_cast<const T*>(state.data(1));
    const T rate(-option(rule, "lr") * lr_factor * ratio);
    const LambStep<T> update(rule, step);
    for (std::int64_t i = 0; i < elements; ++i) {
      const T value = widen(w[i]);
      w[i] = narrow<P>(value + rate * update(value, m[i], v[i]));
    }
  });
}

}  // namespace autodist::exec
