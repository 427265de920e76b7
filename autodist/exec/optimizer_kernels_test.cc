#include "autodist/exec/optimizer_kernels.h"

#include <gtest/gtest.h>
#include <torch/optim.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <sstream>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/half_float.h"

namespace autodist::exec {
namespace {

constexpr double kEpsilonF32 = std::numeric_limits<float>::epsilon();
constexpr double kEpsilonF64 = std::numeric_limits<double>::epsilon();

ir::UpdateRule rule_of(const std::string& text) { return ir::parse_optimizer(text).rule; }

template <typename T>
constexpr DType dtype_of() {
  return std::is_same_v<T, double> ? DType::kFloat64 : DType::kFloat32;
}

template <typename T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

template <typename T>
std::vector<T> update(const std::string& text, std::vector<T> parameters, int steps,
                      const UserRules* users = nullptr) {
  const ir::UpdateRule rule = rule_of(text);
  const auto n = static_cast<std::int64_t>(parameters.size());
  UpdateState state(rule, n, dtype_of<T>(), users);
  for (int step = 0; step < steps; ++step) {
    const std::vector<T> gradient = random_values<T>(parameters.size(), 100 + step);
    apply({rule, 1.0, step, users}, {parameters.data(), gradient.data(), n, dtype_of<T>()}, state);
  }
  return parameters;
}

// --- against libtorch's C++ optimizers ---------------------------------------------------------

using MakeTorch =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

template <typename Kind, typename Options>
MakeTorch torch_optimizer(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Kind>(std::move(parameters), options);
  };
}

template <typename T>
std::vector<T> update_by_torch(const MakeTorch& make, const std::vector<T>& start, int steps) {
  const auto options = torch::dtype(std::is_same_v<T, double> ? torch::kDouble : torch::kFloat);
  torch::Tensor parameter = torch::empty({static_cast<std::int64_t>(start.size())}, options);
  std::copy(start.begin(), start.end(), parameter.data_ptr<T>());
  parameter.requires_grad_();
  const auto optimizer = make({parameter});
  for (int step = 0; step < steps; ++step) {
    std::vector<T> gradient = random_values<T>(start.size(), 100 + step);
    parameter.mutable_grad() =
        torch::from_blob(gradient.data(), {static_cast<std::int64_t>(gradient.size())}, options)
            .clone();
    optimizer->step();
  }
  const T* data = parameter.data_ptr<T>();
  return std::vector<T>(data, data + start.size());
}

struct TorchCase {
  const char* text;
  MakeTorch make;
};

std::vector<TorchCase> torch_cases() {
  using namespace torch::optim;
  return {
      {"sgd:lr=0.1", torch_optimizer<SGD>(SGDOptions(0.1))},
      {"sgd:lr=0.1,decay=0.01", torch_optimizer<SGD>(SGDOptions(0.1).weight_decay(0.01))},
      {"sgd:lr=0.1,momentum=0.9,dampening=0.3",
       torch_optimizer<SGD>(SGDOptions(0.1).momentum(0.9).dampening(0.3))},
      {"sgd:lr=0.1,momentum=0.9,nesterov=1,decay=0.01",
       torch_optimizer<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01))},
      {"adam:lr=0.01,decay=0.01", torch_optimizer<Adam>(AdamOptions(0.01).weight_decay(0.01))},
      {"adam:lr=0.01,amsgrad=1,beta1=0.8,beta2=0.95",
       torch_optimizer<Adam>(AdamOptions(0.01).amsgrad(true).betas({0.8, 0.95}))},
      {"adamw:lr=0.01,decay=0.1", torch_optimizer<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"adamw:lr=0.01,decay=0.1,amsgrad=1",
       torch_optimizer<AdamW>(AdamWOptions(0.01).weight_decay(0.1).amsgrad(true))},
      {"adagrad:lr=0.1,lr_decay=0.1,initial_accumulator_value=0.5,decay=0.01",
       torch_optimizer<Adagrad>(
           AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.5).weight_decay(0.01))},
      {"rmsprop:lr=0.01,decay=0.01",
       torch_optimizer<RMSprop>(RMSpropOptions(0.01).weight_decay(0.01))},
      {"rmsprop:lr=0.01,centered=1", torch_optimizer<RMSprop>(RMSpropOptions(0.01).centered(true))},
      {"rmsprop:lr=0.01,momentum=0.9",
       torch_optimizer<RMSprop>(RMSpropOptions(0.01).momentum(0.9))},
      {"rmsprop:lr=0.01,momentum=0.9,centered=1,alpha=0.9",
       torch_optimizer<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true).alpha(0.9))},
  };
}

// The largest difference in units of the last place of numbers of size 1 (the parameters' size).
template <typename T>
double ulps_apart(const std::vector<T>& a, const std::vector<T>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double size = std::max(1.0, std::abs(static_cast<double>(b[i])));
    const double epsilon = std::is_same_v<T, double> ? kEpsilonF64 : kEpsilonF32;
    const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = std::max(worst, std::isnan(apart) ? 1e30 : apart / (size * epsilon));
  }
  return worst;
}

// libtorch's vector kernels fuse a product and a sum where this file rounds twice: at most an ulp
// per update and term. 103 elements: vector bodies and their remainders.
TEST(OptimizerKernels, FollowLibtorchStepForStep) {
  for (const TorchCase& each : torch_cases()) {
    for (int steps : {1, 2, 5, 20}) {
      const double allowed = 1.0 + 0.5 * steps;
      const auto start32 = random_values<float>(103, 7);
      EXPECT_LE(
          ulps_apart(update(each.text, start32, steps), update_by_torch(each.make, start32, steps)),
          allowed)
          << each.text << " f32 after " << steps;
      const auto start64 = random_values<double>(103, 7);
      EXPECT_LE(
          ulps_apart(update(each.text, start64, steps), update_by_torch(each.make, start64, steps)),
          allowed)
          << each.text << " f64 after " << steps;
    }
  }
}

// --- against recorded values of torch.optim ----------------------------------------------------

TEST(OptimizerKernels, FollowTorchOptimWhereCppHasNone) {
  std::ifstream file(AUTODIST_SOURCE_DIR "/autodist/exec/testdata/optimizer_goldens.txt");
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    ++cases;
    const std::size_t tab = line.find('\t');
    const ir::UpdateRule rule = rule_of(line.substr(0, tab));
    std::istringstream values(line.substr(tab));
    const std::vector<double> expected{std::istream_iterator<double>(values), {}};
    std::vector<double> w = {0.5, -1.3, 2.0, 0.0, -0.375};
    const std::size_t updates = expected.size() / w.size();
    ASSERT_GE(updates, 5U) << line;
    UpdateState state(rule, 5, DType::kFloat64);
    for (std::size_t step = 0; step < updates; ++step) {
      std::vector<double> gradient;
      for (std::size_t i = 0; i < w.size(); ++i) {
        gradient.push_back((static_cast<double>((7 * i + 11 * step) % 13) - 6) / 8);
      }
      apply({rule, 1.0, static_cast<std::int64_t>(step)},
            {w.data(), gradient.data(), 5, DType::kFloat64}, state);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double value = expected[step * w.size() + i];
        EXPECT_NEAR(w[i], value, 4 * kEpsilonF64 * std::max(1.0, std::abs(value)))
            << line.substr(0, tab) << " step " << step << " element " << i;
      }
    }
  }
  EXPECT_EQ(cases, 11) << "optimizer_goldens.txt";
}

// --- against the papers ------------------------------------------------------------------------

// McMahan et al. 2013, algorithm 1, per coordinate, in the paper's symbols: z, n, sigma; alpha is
// the learning rate and TensorFlow's l2 counts half.
TEST(OptimizerKernels, FtrlFollowsThePaper) {
  const double alpha = 0.1, beta = 0.5, lambda1 = 0.3, lambda2 = 0.2;
  const auto start = random_values<double>(64, 3);
  std::vector<double> w = start;
  std::vector<double> z(w.size(), 0.0);
  std::vector<double> n(w.size(), 0.1);
  // Algorithm 1 reads weights out of z before it sees a gradient; TensorFlow starts from given
  // weights and lets the first linear term carry them.
  for (int step = 0; step < 10; ++step) {
    const auto g = random_values<double>(w.size(), 100 + step);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double sigma = (std::sqrt(n[i] + g[i] * g[i]) - std::sqrt(n[i])) / alpha;
      z[i] += g[i] - sigma * w[i];
      n[i] += g[i] * g[i];
      const double sign = z[i] > 0 ? 1 : -1;
      w[i] = std::abs(z[i]) <= lambda1
                 ? 0
                 : -1 / ((beta + std::sqrt(n[i])) / alpha + lambda2) * (z[i] - sign * lambda1);
    }
  }
  const auto ours = update<double>("ftrl:lr=0.1,beta=0.5,l1=0.3,l2=0.1", start, 10);
  int zeros = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(ours[i], w[i], 1e-13);
    zeros += ours[i] == 0 ? 1 : 0;
  }
  EXPECT_GT(zeros, 0) << "l1 makes some weights exactly zero";
}

TEST(OptimizerKernels, FtrlTakesOtherPowers) {
  const auto root = update<double>("ftrl:lr=0.1", random_values<double>(16, 3), 4);
  const auto near =
      update<double>("ftrl:lr=0.1,lr_power=-0.500000001", random_values<double>(16, 3), 4);
  const auto far = update<double>("ftrl:lr=0.1,lr_power=-0.8", random_values<double>(16, 3), 4);
  for (std::size_t i = 0; i < root.size(); ++i) EXPECT_NEAR(root[i], near[i], 1e-6);
  EXPECT_NE(root, far);
}

// You et al. 2020, algorithm 2, with phi the identity.
std::vector<double> lamb_by_the_paper(std::vector<double> x, int steps) {
  const double eta = 0.01, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, lambda = 0.05;
  std::vector<double> m(x.size(), 0.0);
  std::vector<double> v(x.size(), 0.0);
  for (int t = 1; t <= steps; ++t) {
    const auto g = random_values<double>(x.size(), 99 + t);
    std::vector<double> u(x.size());
    double x_norm = 0;
    double u_norm = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(beta1, t));
      const double v_hat = v[i] / (1 - std::pow(beta2, t));
      u[i] = m_hat / (std::sqrt(v_hat) + epsilon) + lambda * x[i];
      x_norm += x[i] * x[i];
      u_norm += u[i] * u[i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] -= eta * std::sqrt(x_norm) / std::sqrt(u_norm) * u[i];
    }
  }
  return x;
}

// As an owner does it: all slices' norms, then all slices' steps.
std::vector<double> lamb_in_slices(std::vector<double> w, int steps, std::size_t slice) {
  const ir::UpdateRule rule = rule_of("lamb:lr=0.01,beta2=0.99,decay=0.05");
  std::vector<UpdateState> states;
  for (std::size_t begin = 0; begin < w.size(); begin += slice) {
    states.emplace_back(rule, static_cast<std::int64_t>(std::min(slice, w.size() - begin)),
                        DType::kFloat64);
  }
  for (int step = 0; step < steps; ++step) {
    const auto g = random_values<double>(w.size(), 100 + step);
    SquaredSums norms;
    for (std::size_t k = 0; k < states.size(); ++k) {
      norms += sum_lamb_norms({rule, 1.0, step},
                              {&w[k * slice], &g[k * slice], states[k].elements(), DType::kFloat64},
                              states[k]);
    }
    for (std::size_t k = 0; k < states.size(); ++k) {
      apply_lamb({rule, 1.0, step}, {&w[k * slice], nullptr, states[k].elements(), DType::kFloat64},
                 states[k], norms);
    }
  }
  return w;
}

TEST(OptimizerKernels, LambFollowsThePaperWholeAndInSlices) {
  const auto start = random_values<double>(50, 5);
  const auto expected = lamb_by_the_paper(start, 10);
  for (std::size_t slice : {50u, 17u, 1u}) {
    EXPECT_LE(ulps_apart(lamb_in_slices(start, 10, slice), expected), 50) << slice;
  }
}

TEST(OptimizerKernels, LambStartsFromZeroParameters) {
  const auto w = lamb_in_slices(std::vector<double>(4, 0.0), 1, 4);
  for (double value : w) EXPECT_NEAR(std::abs(value), 0.01, 1e-4) << "ratio 1: a step of lr";
}

// --- slices, types, state ----------------------------------------------------------------------

const char* const kElementwise[] = {
    "sgd:lr=0.1",
    "sgd:lr=0.1,momentum=0.9,nesterov=1,decay=0.01",
    "adam:lr=0.01,amsgrad=1",
    "adamw:lr=0.01",
    "adagrad",
    "adadelta",
    "adamax",
    "nadam",
    "radam:decay=0.1,decoupled_weight_decay=1",
    "rmsprop:momentum=0.9,centered=1",
    "ftrl:l1=0.1",
};

template <typename T>
void expect_same_bits_in_slices(const std::string& text) {
  const ir::UpdateRule rule = rule_of(text);
  const auto start = random_values<T>(257, 11);
  const int steps = 6;  // RAdam's sixth update is another one than those before
  const std::vector<T> whole = update<T>(text, start, steps);
  for (std::size_t slice : {1u, 3u, 64u, 250u}) {
    std::vector<T> w = start;
    for (std::size_t begin = 0; begin < w.size(); begin += slice) {
      const auto n = static_cast<std::int64_t>(std::min(slice, w.size() - begin));
      UpdateState state(rule, n, dtype_of<T>());
      for (int step = 0; step < steps; ++step) {
        const auto g = random_values<T>(w.size(), 100 + step);
        apply({rule, 1.0, step}, {&w[begin], &g[begin], n, dtype_of<T>()}, state);
      }
    }
    EXPECT_EQ(std::memcmp(w.data(), whole.data(), w.size() * sizeof(T)), 0)
        << text << " in slices of " << slice;
  }
}

TEST(OptimizerKernels, AnySplitInSlicesGivesTheSameBits) {
  for (const char* text : kElementwise) {
    expect_same_bits_in_slices<float>(text);
    expect_same_bits_in_slices<double>(text);
  }
}

TEST(OptimizerKernels, TheSchedulesFactorScalesTheLearningRate) {
  for (const char* text : {"adamw:lr=0.01", "ftrl:lr=0.01", "nadam:lr=0.01", "sgd:lr=0.01"}) {
    const ir::UpdateRule full = rule_of(text);
    ir::UpdateRule half = full;
    half.options["lr"] = 0.005;
    const auto g = random_values<double>(8, 1);
    auto a = random_values<double>(8, 2);
    auto b = a;
    UpdateState state_a(full, 8, DType::kFloat64);
    UpdateState state_b(half, 8, DType::kFloat64);
    apply({full, 0.5, 0}, {a.data(), g.data(), 8, DType::kFloat64}, state_a);
    apply({half, 1.0, 0}, {b.data(), g.data(), 8, DType::kFloat64}, state_b);
    EXPECT_EQ(a, b) << text;
  }
}

// Computed in float and rounded once: the float result, rounded.
template <typename Half>
void expect_half_is_rounded_float(const char* text, DType dtype) {
  const ir::UpdateRule rule = rule_of(text);
  const auto values = random_values<float>(67, 1);
  const auto slopes = random_values<float>(67, 2);
  std::vector<Half> w, g;
  std::vector<float> wide_w, wide_g;
  for (std::size_t i = 0; i < values.size(); ++i) {
    w.push_back(narrow<Half>(values[i]));
    g.push_back(narrow<Half>(slopes[i]));
    wide_w.push_back(widen(w.back()));
    wide_g.push_back(widen(g.back()));
  }
  UpdateState state(rule, 67, dtype);
  UpdateState wide_state(rule, 67, DType::kFloat32);
  EXPECT_EQ(state.dtype(), DType::kFloat32);
  apply({rule, 1.0, 0}, {w.data(), g.data(), 67, dtype}, state);
  apply({rule, 1.0, 0}, {wide_w.data(), wide_g.data(), 67, DType::kFloat32}, wide_state);
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_EQ(w[i].bits, narrow<Half>(wide_w[i]).bits) << text << " " << i;
  }
}

TEST(OptimizerKernels, SixteenBitParametersAreComputedInFloat) {
  for (const char* text : kElementwise) {
    expect_half_is_rounded_float<Float16>(text, DType::kFloat16);
    expect_half_is_rounded_float<BFloat16>(text, DType::kBFloat16);
  }
}

TEST(HalfFloat, RoundsAsTorchDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = float_of(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(narrow<Float16>(value).bits, c10::Half(value).x) << value;
    ASSERT_EQ(narrow<BFloat16>(value).bits, c10::BFloat16(value).x) << value;
  }
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const float expected = static_cast<float>(c10::Half(half.bits, c10::Half::from_bits()));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widen(half)));
      ASSERT_TRUE(std::isnan(widen(narrow<Float16>(expected))));
    } else {
      ASSERT_EQ(bits_of(widen(half)), bits_of(expected)) << bits;
    }
  }
}

TEST(UpdateState, IsNamedAsInTorchAndStartsAtTheRulesValue) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(state_names(rule_of("sgd"), nullptr), Names{});
  EXPECT_EQ(state_names(rule_of("sgd:momentum=0.9"), nullptr), Names{"momentum_buffer"});
  EXPECT_EQ(state_names(rule_of("adam:amsgrad=1"), nullptr),
            (Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}));
  EXPECT_EQ(state_names(rule_of("rmsprop:centered=1,momentum=0.5"), nullptr),
            (Names{"square_avg", "momentum_buffer", "grad_avg"}));
  const UpdateState ftrl(rule_of("ftrl"), 3, DType::kFloat32);
  EXPECT_EQ(static_cast<const float*>(ftrl.data(0))[2], 0.1f);
  EXPECT_EQ(static_cast<const float*>(ftrl.data(1))[2], 0.0f);
  EXPECT_EQ(ftrl.bytes_per_state(), 12u);
  EXPECT_THROW(UpdateState(rule_of("adam"), 3, DType::kInt64), Error);
}

// What a resume does: the accumulators' bytes and the step are all there is.
TEST(UpdateState, RestoredBytesContinueToTheBit) {
  for (const char* text : kElementwise) {
    const ir::UpdateRule rule = rule_of(text);
    const auto n = std::int64_t{31};
    auto w = random_values<float>(31, 11);
    UpdateState state(rule, n, DType::kFloat32);
    const auto step_once = [&](std::int64_t step, std::vector<float>& into, UpdateState& with) {
      const auto g = random_values<float>(31, static_cast<unsigned>(step));
      apply({rule, 1.0, step}, {into.data(), g.data(), n, DType::kFloat32}, with);
    };
    for (int step = 0; step < 3; ++step) step_once(step, w, state);
    auto resumed = w;
    UpdateState restored(rule, n, DType::kFloat32);
    for (std::size_t i = 0; i < state.names().size(); ++i) {
      std::memcpy(restored.data(i), state.data(i), state.bytes_per_state());
    }
    for (int step = 3; step < 6; ++step) {
      step_once(step, w, state);
      step_once(step, resumed, restored);
    }
    EXPECT_EQ(w, resumed) << text;
  }
}

TEST(UserRules, RunWithTheirOwnStateAndOptions) {
  UserRules users;
  users.add("signed_momentum", 1, [](const UserUpdate& update) {
    auto* w = static_cast<float*>(update.parameters);
    const auto* g = static_cast<const float*>(update.gradient);
    auto* m = static_cast<float*>(update.states.at(0));
    const auto keep = static_cast<float>(update.options->at("keep"));
    for (std::int64_t i = 0; i < update.elements; ++i) {
      m[i] = keep * m[i] + g[i];
      w[i] -= static_cast<float>(update.lr) * (m[i] > 0 ? 1.0f : -1.0f);
    }
  });
  const auto start = random_values<float>(9, 1);
  const auto after = update<float>("user:rule=signed_momentum,lr=0.25,keep=0.5", start, 1, &users);
  const auto g = random_values<float>(9, 100);
  for (std::size_t i = 0; i < start.size(); ++i) {
    EXPECT_EQ(after[i], start[i] - (g[i] > 0 ? 0.25f : -0.25f));
  }
}

TEST(UserRules, AnUnknownNameIsAnsweredWithTheNearest) {
  UserRules users;
  users.add("lion", 1, [](const UserUpdate&) {});
  try {
    static_cast<void>(users.find("loin"));
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("Did you mean 'lion'?"), std::string::npos);
  }
  EXPECT_THROW(UpdateState(rule_of("user:rule=lion"), 1, DType::kFloat32, nullptr), Error);
}

TEST(OptimizerKernels, AStateOfAnotherSizeIsADefect) {
  const ir::UpdateRule rule = rule_of("adam");
  UpdateState state(rule, 3, DType::kFloat32);
  std::vector<float> w(4), g(4);
  EXPECT_THROW(apply({rule, 1.0, 0}, {w.data(), g.data(), 4, DType::kFloat32}, state),
               InternalError);
  EXPECT_THROW(apply({rule, 1.0, 0}, {w.data(), g.data(), 3, DType::kFloat64}, state),
               InternalError);
}

}  // namespace
}  // namespace autodist::exec
