// The formulas of the elementwise update rules, for whatever they are computed with: numbers one by
// one (optimizer_kernels.cc), or whole tensors of a device (device/tensor_update.cc). Every product
// and sum is rounded by itself, in the same order, so both get the same bits.
//
// A Run has the rule (`rule`, `lr`, `step`), the type T of the step's scalars, and
//   array(index)               the accumulator of this index, in the order of state_names
//   each(body, accumulators…)  calls body(parameter, gradient, accumulators…), parameter and
//                              accumulators by reference
// What it computes with has the operators of numbers, sqrt, abs, reciprocal and larger.

#pragma once

#include <cmath>
#include <cstdint>

#include "autodist/base/check.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/optimizer.h"

namespace autodist::exec {

inline double option_of(const ir::UpdateRule& rule, const char* name) {
  const auto found = rule.options.find(name);
  AD_CHECK(found != rule.options.end()) << ir::name_of(rule.rule) << " without " << name;
  return found->second;
}

// The part of every Run that depends on the step alone.
struct UpdateScalars {
  const ir::UpdateRule& rule;
  double lr;          // times the schedule's factor
  std::int64_t step;  // updates before this one

  [[nodiscard]] double get(const char* name) const { return option_of(rule, name); }
  // 1 - beta^t with torch's t, which counts from 1.
  [[nodiscard]] double bias_correction(const char* beta) const {
    return 1 - std::pow(get(beta), static_cast<double>(step + 1));
  }
};

inline UpdateScalars scalars_of(const UpdateStep& update) {
  return {update.rule, option_of(update.rule, "lr") * update.lr_factor, update.updates_before};
}

namespace formulas {

// NaN stays, as in torch.maximum.
template <typename T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

template <typename T>
T reciprocal(T a) {
  return T(1) / a;
}

// What weight decay does before an update: it is part of the gradient, or shrinks the parameter by
// itself (decoupled).
template <typename T>
struct Decay {
  T of_gradient;
  T shrink;

  Decay(const UpdateScalars& run, bool decoupled)
      : of_gradient(decoupled ? 0 : run.get("weight_decay")),
        shrink(decoupled ? 1 - run.lr * run.get("weight_decay") : 1) {}

  template <typename Parameter, typename Gradient>
  void operator()(Parameter& w, Gradient& g) const {
    if (shrink != 1) w *= shrink;
    if (of_gradient != 0) g += of_gradient * w;
  }
};

// The running averages of a gradient and of its square.
template <typename T>
struct Moments {
  T beta1, beta2, fresh1, fresh2;

  explicit Moments(const UpdateScalars& run)
      : beta1(run.get("beta1")),
        beta2(run.get("beta2")),
        fresh1(1 - run.get("beta1")),
        fresh2(1 - run.get("beta2")) {}

  template <typename Gradient, typename Moment>
  void operator()(const Gradient& g, Moment& m, Moment& v) const {
    m = m * beta1 + fresh1 * g;
    v = v * beta2 + fresh2 * g * g;
  }
};

template <typename Run>
void sgd(const Run& run) {
  using T = typename Run::T;
  const T decay(run.get("weight_decay"));
  const T rate(-run.lr);
  const T momentum(run.get("momentum"));
  if (momentum == 0) {
    run.each([=](auto& w, auto g) { w += rate * (decay != 0 ? g + decay * w : g); });
    return;
  }
  // The first update starts the buffer with the gradient, undamped.
  const bool first = run.step == 0;
  const bool nesterov = run.get("nesterov") != 0;
  const T kept(1 - run.get("dampening"));
  run.each(
      [=](auto& w, auto g, auto& buffer) {
        if (decay != 0) g += decay * w;
        buffer = first ? g : buffer * momentum + kept * g;
        w += rate * (nesterov ? g + momentum * buffer : buffer);
      },
      run.array(0));
}

template <typename Run>
void adam(const Run& run, bool decoupled) {
  using T = typename Run::T;
  const Decay<T> decay(run, decoupled);
  const Moments<T> moments(run);
  const T eps(run.get("eps"));
  const T rate(-(run.lr / run.bias_correction("beta1")));
  const T root(std::sqrt(run.bias_correction("beta2")));
  const auto move = [=](auto& w, auto m, auto v) {
    using std::sqrt;
    w += rate * m / (sqrt(v) / root + eps);
  };
  if (run.get("amsgrad") == 0) {
    run.each(
        [=](auto& w, auto g, auto& m, auto& v) {
          decay(w, g);
          moments(g, m, v);
          move(w, m, v);
        },
        run.array(0), run.array(1));
    return;
  }
  run.each(
      [=](auto& w, auto g, auto& m, auto& v, auto& largest) {
        decay(w, g);
        moments(g, m, v);
        largest = larger(v, largest);
        move(w, m, largest);
      },
      run.array(0), run.array(1), run.array(2));
}

template <typename Run>
void adagrad(const Run& run) {
  using T = typename Run::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T rate(-(run.lr / (1 + static_cast<double>(run.step) * run.get("lr_decay"))));
  run.each(
      [=](auto& w, auto g, auto& sum) {
        using std::sqrt;
        if (decay != 0) g += decay * w;
        sum += g * g;
        w += rate * g / (sqrt(sum) + eps);
      },
      run.array(0));
}

template <typename Run>
void adadelta(const Run& run) {
  using T = typename Run::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T rho(run.get("rho"));
  const T fresh(1 - run.get("rho"));
  const T rate(-run.lr);
  run.each(
      [=](auto& w, auto g, auto& square, auto& accumulated) {
        using std::sqrt;
        if (decay != 0) g += decay * w;
        square = square * rho + fresh * g * g;
        const auto delta = sqrt(accumulated + eps) / sqrt(square + eps) * g;
        accumulated = accumulated * rho + fresh * delta * delta;
        w += rate * delta;
      },
      run.array(0), run.array(1));
}

template <typename Run>
void adamax(const Run& run) {
  using T = typename Run::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T beta1(run.get("beta1"));
  const T beta2(run.get("beta2"));
  const T fresh1(1 - run.get("beta1"));
  const T rate(-(run.lr / run.bias_correction("beta1")));
  run.each(
      [=](auto& w, auto g, auto& m, auto& infinity) {
        using std::abs;
        if (decay != 0) g += decay * w;
        m = m * beta1 + fresh1 * g;
        infinity = larger(abs(g) + eps, infinity * beta2);
        w += rate * m / infinity;
      },
      run.array(0), run.array(1));
}

// torch keeps the product of the momenta in its default type, whatever the parameter's: in a float,
// or in a double where that is the default (`double_product`). A function of the step alone, so it
// is computed anew instead of being one more thing to save. torch 1.13 counts a step's momentum
// twice in the product that the next one is in; Dozat 2016 and torch 2 do not.
struct NAdamMomenta {
  double now;
  double next;
  double product;
  double product_next;
};

inline NAdamMomenta nadam_momenta(const ir::UpdateRule& rule, std::int64_t step) {
  const double beta1 = option_of(rule, "beta1");
  const double decay = option_of(rule, "momentum_decay");
  const auto momentum = [&](std::int64_t t) {
    return beta1 * (1. - 0.5 * std::pow(0.96, static_cast<double>(t) * decay));
  };
  const bool in_double = option_of(rule, "double_product") != 0;
  const auto kept = [&](double number) {
    return in_double ? number : static_cast<double>(static_cast<float>(number));
  };
  constexpr double kNothing = 1e-20;  // beside the 1 from which it is taken
  double product = 1;
  for (std::int64_t t = 1; t <= step + 1 && product > kNothing; ++t) {
    product = kept(product * kept(momentum(t)));
  }
  const double now = momentum(step + 1);
  const double next = momentum(step + 2);
  const double twice = kept(kept(product * kept(now)) * kept(next));
  return {now, next, product, option_of(rule, "as_published") != 0 ? product * next : twice};
}

template <typename Run>
void nadam(const Run& run) {
  using T = typename Run::T;
  const NAdamMomenta mu = nadam_momenta(run.rule, run.step);
  const Decay<T> decay(run, run.rule.option("decoupled_weight_decay") != 0);
  const Moments<T> moments(run);
  const T eps(run.get("eps"));
  const T correction(run.bias_correction("beta2"));
  const T gradient_rate(-run.lr * (1. - mu.now) / (1. - mu.product));
  const T moment_rate(-run.lr * mu.next / (1. - mu.product_next));
  run.each(
      [=](auto& w, auto g, auto& m, auto& v) {
        using std::sqrt;
        decay(w, g);
        moments(g, m, v);
        const auto root = sqrt(v / correction) + eps;
        w += gradient_rate * g / root;
        w += moment_rate * m / root;
      },
      run.array(0), run.array(1));
}

// By what an adaptive step is rectified, from the length of the average of squares: Liu et al.
// 2020, "On the variance of the adaptive learning rate and beyond", algorithm 2. 0 where that is
// too short for an adaptive step, as it is in the first five updates.
inline double radam_rectifier(const UpdateScalars& run) {
  const double beta2 = run.get("beta2");
  const auto updates = static_cast<double>(run.step + 1);
  const double most = 2 / (1 - beta2) - 1;
  const double length =
      most - 2 * updates * std::pow(beta2, updates) / run.bias_correction("beta2");
  if (length <= 5) return 0;
  return std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
}

template <typename Run>
void radam(const Run& run) {
  using T = typename Run::T;
  const Decay<T> decay(run, run.rule.option("decoupled_weight_decay") != 0);
  const Moments<T> moments(run);
  const T eps(run.get("eps"));
  const T correction(run.bias_correction("beta1"));
  const T root(std::sqrt(run.bias_correction("beta2")));
  const T rate(-run.lr);
  const T rectifier(radam_rectifier(run));
  run.each(
      [=](auto& w, auto g, auto& m, auto& v) {
        using std::sqrt;
        decay(w, g);
        moments(g, m, v);
        if (rectifier == 0) {
          w += m / correction * rate;
        } else {
          w += m / correction * rate * (reciprocal(sqrt(v) + eps) * root) * rectifier;
        }
      },
      run.array(0), run.array(1));
}

template <typename Run>
void rmsprop(const Run& run) {
  using T = typename Run::T;
  const T decay(run.get("weight_decay"));
  const T eps(run.get("eps"));
  const T alpha(run.get("alpha"));
  const T fresh(1 - run.get("alpha"));
  const T momentum(run.get("momentum"));
  const T rate(-run.lr);
  const bool centered = run.get("centered") != 0;
  const auto root = [=](auto g, auto& square, auto& mean) {
    using std::sqrt;
    square = square * alpha + fresh * g * g;
    if (!centered) return sqrt(square) + eps;
    mean = mean * alpha + fresh * g;
    return sqrt(square - mean * mean) + eps;
  };
  const auto coast = [=](auto& w, auto g, auto root, auto& buffer) {
    buffer = buffer * momentum + g / root;
    w += rate * buffer;
  };
  const auto decayed = [=](auto w, auto g) { return decay != 0 ? g + decay * w : g; };
  // In the order of state_names.
  auto* square = run.array(0);
  if (momentum > 0 && centered) {
    run.each([=](auto& w, auto g, auto& s, auto& buffer,
                 auto& mean) { g = decayed(w, g), coast(w, g, root(g, s, mean), buffer); },
             square, run.array(1), run.array(2));
  } else if (momentum > 0) {
    run.each(
        [=](auto& w, auto g, auto& s, auto& buffer) {
          auto unused = g;
          g = decayed(w, g);
          coast(w, g, root(g, s, unused), buffer);
        },
        square, run.array(1));
  } else if (centered) {
    run.each(
        [=](auto& w, auto g, auto& s, auto& mean) {
          g = decayed(w, g);
          w += rate * g / root(g, s, mean);
        },
        square, run.array(1));
  } else {
    run.each(
        [=](auto& w, auto g, auto& s) {
          auto unused = g;
          g = decayed(w, g);
          w += rate * g / root(g, s, unused);
        },
        square);
  }
}

}  // namespace formulas

// Whether apply_formula() knows the rule.
inline bool has_formula(ir::Rule rule) {
  return rule != ir::Rule::kFtrl && rule != ir::Rule::kLamb && rule != ir::Rule::kUser;
}

// REQUIRES: has_formula(run.rule.rule).
template <typename Run>
void apply_formula(const Run& run) {
  switch (run.rule.rule) {
    case ir::Rule::kSgd:
      return formulas::sgd(run);
    case ir::Rule::kAdam:
      return formulas::adam(run, /*decoupled=*/false);
    case ir::Rule::kAdamW:
      return formulas::adam(run, /*decoupled=*/true);
    case ir::Rule::kAdagrad:
      return formulas::adagrad(run);
    case ir::Rule::kAdadelta:
      return formulas::adadelta(run);
    case ir::Rule::kAdamax:
      return formulas::adamax(run);
    case ir::Rule::kNAdam:
      return formulas::nadam(run);
    case ir::Rule::kRAdam:
      return formulas::radam(run);
    case ir::Rule::kRmsProp:
      return formulas::rmsprop(run);
    case ir::Rule::kFtrl:
    case ir::Rule::kLamb:
    case ir::Rule::kUser:
      break;
  }
  AD_CHECK(false) << "no formula of " << ir::name_of(run.rule.rule);
}

}  // namespace autodist::exec
