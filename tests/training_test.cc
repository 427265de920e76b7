// Ten steps of every small model under every strategy on 1, 2 and 4 ranks (threads over the
// in-process transport), against plain libtorch on the union of the batches; and the same bits
// twice.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "autodist/models/catalogue.h"
#include "tests/reference.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// Float64; sums in another order than libtorch's own reduction over the batch.
constexpr double kTolerance = 1e-9;
// Ninety batch norms in a row over few values (twelve per channel at the end, on four ranks)
// amplify the last bits.
double tolerance_of(const std::string& model) {
  return model == "inception-small" ? 1e-8 : kTolerance;
}

Parameters train_distributed(const std::string& model, const std::string& builder,
                             std::uint32_t ranks, std::int64_t batch = kBatch) {
  std::vector<TrainingStep> steps;
  for (std::uint32_t r = 0; r < ranks; ++r) steps.push_back(make_step(model, kBatch / ranks));
  return run_job(steps, builder, optimizer_of(model), kSteps, [&](int step, std::uint32_t rank) {
    return rows_of(batch_at(model, step, batch), rank, ranks);
  });
}

struct Case {
  std::string model;
  std::string builder;
  std::uint32_t ranks;
};

class EverySmallModel : public testing::TestWithParam<Case> {};

TEST_P(EverySmallModel, EqualsPlainLibtorchAndItself) {
  const auto& [model, builder, ranks] = GetParam();
  const Parameters ours = train_distributed(model, builder, ranks);
  const Parameters plain = train_plain(model, ranks, kBatch, sgd_of(model));
  ASSERT_EQ(ours.size(), plain.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double difference = (ours[i] - plain[i]).abs().max().item<double>();
    EXPECT_LE(difference, tolerance_of(model) * (1 + plain[i].abs().max().item<double>()))
        << "tensor " << i;
  }
  const Parameters again = train_distributed(model, builder, ranks);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].equal(again[i])) << i;
}

// The families in which every way through the engine differs; the rest has the full product under
// the label `slow`, and two ranks here.
bool is_quick(const std::string& model) {
  const std::set<std::string> quick{"digits",    "digits-norm",      "gpt-small",
                                    "ncf-small", "ncf-small-sparse", "lstm-small"};
  return quick.count(model) > 0;
}

std::vector<Case> cases(bool slow) {
  std::vector<Case> all;
  for (const models::ModelInfo& model : models::catalogue()) {
    if (!model.small) continue;
    for (const char* builder : {"PS", "PSLoadBalancing", "PartitionedPS", "AllReduce",
                                "PartitionedAR", "AllReduce:algorithm=library"}) {
      for (const std::uint32_t ranks : {1u, 2u, 4u}) {
        const bool is_slow = !is_quick(model.name) && ranks != 2;
        if (is_slow == slow) all.push_back({model.name, builder, ranks});
      }
    }
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name =
      info.param.model + "_" + info.param.builder + "_" + std::to_string(info.param.ranks);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EverySmallModel, testing::ValuesIn(cases(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Slow, EverySmallModel, testing::ValuesIn(cases(true)), name_of);

// Batches that do not divide: 7 rows on 2 and 3 ranks, and 2 rows on 3, where one rank has none.
TEST(Training, UnevenBatchesAreWeightedBySamples) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    for (const std::int64_t batch : {std::int64_t{7}, std::int64_t{2}}) {
      for (const char* builder : {"PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
        const Parameters ours = train_distributed("digits", builder, ranks, batch);
        const Parameters plain = train_plain("digits", ranks, batch, sgd_of("digits"));
        for (std::size_t i = 0; i < ours.size(); ++i) {
          EXPECT_TRUE(torch::allclose(ours[i], plain[i], kTolerance, kTolerance))
              << builder << ", " << batch << " rows on " << ranks << ", tensor " << i;
        }
      }
    }
  }
}

// Wherever the owners sit, the sums are made in rank order: the bits are the same.
TEST(Training, OwnersDoNotChangeTheBits) {
  const Parameters ps = train_distributed("digits", "PS", 2);
  for (const char* builder : {"PSLoadBalancing", "PartitionedPS", "AllReduce", "PartitionedAR"}) {
    const Parameters other = train_distributed("digits", builder, 2);
    for (std::size_t i = 0; i < ps.size(); ++i) EXPECT_TRUE(ps[i].equal(other[i])) << builder;
  }
}

// --- optimizers, against libtorch's own or their formula ---

struct OptimizerCase {
  std::string name;
  std::string text;  // as --optimizer takes it
  std::function<Update()> reference;
};

// libtorch's optimizer, made when the parameters are known; `edit` changes gradients (clipping) or
// the learning rate before its step.
template <typename Optimizer, typename Options>
std::function<Update()> torch_optimizer(
    Options options,
    std::function<void(std::vector<torch::Tensor>&, Optimizer&, int)> edit = nullptr) {
  return [=] {
    auto optimizer = std::make_shared<std::unique_ptr<Optimizer>>();
    return [=](std::vector<torch::Tensor>& parameters, int step) {
      if (!*optimizer) *optimizer = std::make_unique<Optimizer>(parameters, options);
      if (edit) edit(parameters, **optimizer, step);
      (*optimizer)->step();
    };
  };
}

// State per parameter, for the rules that libtorch lacks.
struct Moments {
  std::vector<torch::Tensor> first, second;

  void prepare(const std::vector<torch::Tensor>& parameters) {
    if (!first.empty()) return;
    for (const torch::Tensor& each : parameters) {
      first.push_back(torch::zeros_like(each));
      second.push_back(torch::zeros_like(each));
    }
  }
};

// You et al., ICLR 2020, algorithm 2.
Update lamb(double lr, double decay) {
  auto moments = std::make_shared<Moments>();
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    const torch::NoGradGuard no_grad;
    moments->prepare(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& w = parameters[i];
      torch::Tensor& m = moments->first[i];
      torch::Tensor& v = moments->second[i];
      m.mul_(0.9).add_(w.grad(), 0.1);
      v.mul_(0.999).addcmul_(w.grad(), w.grad(), 0.001);
      const torch::Tensor r =
          m / (1 - std::pow(0.9, step + 1)) / ((v / (1 - std::pow(0.999, step + 1))).sqrt() + 1e-6);
      const torch::Tensor direction = r + decay * w;
      const double size = w.norm().item<double>();
      const double length = direction.norm().item<double>();
      w.sub_(lr * (size > 0 && length > 0 ? size / length : 1) * direction);
    }
  };
}

// McMahan et al., KDD 2013, algorithm 1, with the learning-rate power of -1/2.
Update ftrl(double lr, double l1, double l2) {
  auto state = std::make_shared<Moments>();  // z and n
  return [=](std::vector<torch::Tensor>& parameters, int) {
    const torch::NoGradGuard no_grad;
    if (state->first.empty()) {
      state->prepare(parameters);
      for (torch::Tensor& n : state->second) n.fill_(0.1);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& w = parameters[i];
      torch::Tensor& z = state->first[i];
      torch::Tensor& n = state->second[i];
      const torch::Tensor grown = n + w.grad() * w.grad();
      z.add_(w.grad() - (grown.sqrt() - n.sqrt()) / lr * w);
      n.copy_(grown);
      w.copy_(torch::where(z.abs() > l1, -(z - z.sign() * l1) / (n.sqrt() / lr + 2 * l2),
                           torch::zeros_like(w)));
    }
  };
}

// Weights alone decay.
std::vector<torch::optim::OptimizerParamGroup> without_decay_of_biases(
    const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (const torch::Tensor& each : parameters) (each.dim() > 1 ? weights : biases).push_back(each);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions(0.01).weight_decay(0.1)));
  groups.emplace_back(biases, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(0.01).weight_decay(0)));
  return groups;
}

std::vector<OptimizerCase> optimizer_cases() {
  using namespace torch::optim;
  const auto clip_all = [](std::vector<torch::Tensor>& parameters, SGD&, int) {
    torch::nn::utils::clip_grad_norm_(parameters, 0.05);
  };
  // conv1 and conv2 of digits: weight and bias each.
  const auto clip_convolutions = [](std::vector<torch::Tensor>& parameters, SGD&, int) {
    torch::nn::utils::clip_grad_norm_(
        std::vector<torch::Tensor>(parameters.begin(), parameters.begin() + 4), 0.02);
  };
  // Two steps of warm-up, then half as much after every three.
  const auto schedule = [](std::vector<torch::Tensor>&, SGD& sgd, int step) {
    const double rate = step < 2 ? 0.1 * step / 2 : 0.1 * std::pow(0.5, (step - 2) / 3);
    static_cast<SGDOptions&>(sgd.param_groups().front().options()).lr(rate);
  };
  return {
      {"schedule", "sgd:lr=0.1,schedule=step,warmup=2,period=3,factor=0.5",
       torch_optimizer<SGD>(SGDOptions(0.1), {schedule})},
      {"adam", "adam:lr=0.01", torch_optimizer<torch::optim::Adam>(AdamOptions(0.01))},
      {"amsgrad", "adam:lr=0.01,amsgrad=1",
       torch_optimizer<torch::optim::Adam>(AdamOptions(0.01).amsgrad(true))},
      {"adagrad", "adagrad:lr=0.01", torch_optimizer<Adagrad>(AdagradOptions(0.01))},
      {"rmsprop", "rmsprop:lr=0.001,centered=1",
       torch_optimizer<RMSprop>(RMSpropOptions(0.001).centered(true))},
      {"groups", "adamw:lr=0.01,decay=0.1,no_decay=bias",
       [] {
         auto adamw = std::make_shared<std::unique_ptr<torch::optim::AdamW>>();
         return [=](std::vector<torch::Tensor>& parameters, int) {
           if (!*adamw) {
             *adamw = std::make_unique<torch::optim::AdamW>(without_decay_of_biases(parameters));
           }
           (*adamw)->step();
         };
       }},
      {"clip", "sgd:lr=0.1,clip=0.05", torch_optimizer<SGD>(SGDOptions(0.1), {clip_all})},
      {"clip_some", "sgd:lr=0.1,clip=0.02,clip_only=conv",
       torch_optimizer<SGD>(SGDOptions(0.1), {clip_convolutions})},
      {"lamb", "lamb:lr=0.01,decay=0.01", [] { return lamb(0.01, 0.01); }},
      {"ftrl", "ftrl:lr=0.1,l1=1e-3,l2=1e-2", [] { return ftrl(0.1, 1e-3, 1e-2); }},
  };
}

TEST(Training, EveryOptimizerEqualsItsReferenceOnSlicesAndShards) {
  // Every way of synchronising once; the kernels are the same for any number of ranks.
  const std::map<std::uint32_t, std::vector<const char*>> builders{
      {2, {"PartitionedPS", "AllReduce:algorithm=library"}}, {3, {"PS", "AllReduce"}}};
  for (const OptimizerCase& each : optimizer_cases()) {
    for (const auto& [ranks, names] : builders) {
      const Parameters plain = train_plain("digits", ranks, kBatch, each.reference());
      for (const char* builder : names) {
        std::vector<TrainingStep> steps;
        for (std::uint32_t r = 0; r < ranks; ++r) steps.push_back(make_step("digits", 4));
        const Parameters ours = run_job(steps, builder, each.text, kSteps,
                                        [count = ranks](int step, std::uint32_t rank) {
                                          return rows_of(batch_at("digits", step), rank, count);
                                        });
        for (std::size_t i = 0; i < ours.size(); ++i) {
          EXPECT_TRUE(torch::allclose(ours[i], plain[i], kTolerance, kTolerance))
              << each.name << " by " << builder << " on " << ranks << ", tensor " << i << ": "
              << (ours[i] - plain[i]).abs().max().item<double>();
        }
      }
    }
  }
}

// Lion (Chen et al., 2023) as a user would bring it: elementwise, with one accumulator.
exec::UserRules lion_rule() {
  exec::UserRules rules;
  rules.add("lion", 1, [](const exec::UserUpdate& update) {
    auto* w = static_cast<double*>(update.parameters);
    const auto* g = static_cast<const double*>(update.gradient);
    auto* m = static_cast<double*>(update.states.at(0));
    for (std::int64_t i = 0; i < update.elements; ++i) {
      const double direction = 0.9 * m[i] + 0.1 * g[i];
      w[i] -= update.lr * ((direction > 0 ? 1 : 0) - (direction < 0 ? 1 : 0));
      m[i] = 0.99 * m[i] + 0.01 * g[i];
    }
  });
  return rules;
}

Update lion(double lr) {
  auto moments = std::make_shared<Moments>();
  return [=](std::vector<torch::Tensor>& parameters, int) {
    const torch::NoGradGuard no_grad;
    moments->prepare(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& m = moments->first[i];
      const torch::Tensor& g = parameters[i].grad();
      parameters[i].sub_(lr * (0.9 * m + 0.1 * g).sign());
      m.mul_(0.99).add_(g, 0.01);
    }
  };
}

// On smooth data, where no direction is so near to zero that its sign is a matter of rounding.
TEST(Training, AUsersOwnRuleRunsOnSlicesAndShards) {
  const exec::UserRules rules = lion_rule();
  const Parameters plain = train_plain("gpt-small", 2, kBatch, lion(1e-3));
  for (const char* builder : {"PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
    const Parameters ours = run_job(
        {make_step("gpt-small", 6), make_step("gpt-small", 6)}, builder, "user:rule=lion,lr=1e-3",
        kSteps,
        [](int step, std::uint32_t rank) { return rows_of(batch_at("gpt-small", step), rank, 2); },
        &rules);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_TRUE(torch::allclose(ours[i], plain[i], kTolerance, kTolerance))
          << builder << ", tensor " << i;
    }
  }
}

// A frozen parameter is a constant of the job: the chief's everywhere, never planned, never
// changed.
TEST(Training, FrozenParametersStayAsTheChiefHasThem) {
  const auto frozen_step = [](double value) {
    TrainingStep step = make_step("digits", 6);
    step.parameters[0].tensor.set_requires_grad(false).fill_(value);  // conv1.weight
    return step;
  };
  const std::vector<TrainingStep> ranks{frozen_step(0.01), frozen_step(0.5)};
  const TrainingStep before = frozen_step(0.01);
  for (const char* builder : {"PartitionedPS", "AllReduce"}) {
    const Parameters after = run_job(
        ranks, builder, "sgd:lr=0.1", kSteps,
        [](int step, std::uint32_t rank) { return rows_of(batch_at("digits", step), rank, 2); });
    EXPECT_TRUE(after[0].equal(before.parameters[0].tensor)) << builder;
    EXPECT_FALSE(after[1].equal(before.parameters[1].tensor)) << builder;
  }
}

// NumPy's legacy generator: RandomState(seed).randn, which the published gradients of case c0 rest
// on.
class LegacyNormal {
 public:
  explicit LegacyNormal(std::uint32_t seed) : random_(seed) {}

  double next() {
    if (cached_) {
      const double value = *cached_;
      cached_.reset();
      return value;
    }
    double x1 = 0;
    double x2 = 0;
    double square = 0;
    do {
      x1 = 2 * uniform() - 1;
      x2 = 2 * uniform() - 1;
      square = x1 * x1 + x2 * x2;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    cached_ = factor * x1;
    return factor * x2;
  }

 private:
  double uniform() {
    const std::uint64_t a = random_() >> 5;
    const std::uint64_t b = random_() >> 6;
    return (static_cast<double>(a) * 67108864.0 + static_cast<double>(b)) / 9007199254740992.0;
  }

  std::mt19937 random_;
  std::optional<double> cached_;
};

// y = 3x + 2 + noise, 1,000 samples.
Batch c0_samples(std::uint32_t seed) {
  LegacyNormal normal(seed);
  torch::Tensor x = torch::empty({1000}, torch::kFloat64);
  torch::Tensor y = torch::empty({1000}, torch::kFloat64);
  for (int i = 0; i < 1000; ++i) x[i] = normal.next();
  for (int i = 0; i < 1000; ++i) y[i] = 3 * x[i].item<double>() + 2 + normal.next();
  return {x, y};
}

TrainingStep c0_step(std::uint32_t seed) {
  const auto real = torch::TensorOptions().dtype(torch::kFloat64).requires_grad(true);
  const torch::Tensor w = torch::full({}, 5.0, real);
  const torch::Tensor b = torch::full({}, 0.0, real);
  TrainingStep step;
  step.name = "c0";
  step.parameters = {{"W", w}, {"b", b}};
  step.loss = [w, b](const Batch& batch) { return (w * batch[0] + b - batch[1]).pow(2).mean(); };
  step.example = c0_samples(seed);
  return step;
}

// AutoDist's one numeric test. d0 replicas read the samples of seed 123, d1 those of 456; the
// average is weighted by samples (AutoDist's parameter server averages over workers).
TEST(Training, CaseC0HasThePublishedResult) {
  for (const auto& [d0, d1] : {std::pair{1, 0}, std::pair{1, 1}, std::pair{2, 1}}) {
    const double db = (4.175035 * d0 + 4.055307 * d1) / (d0 + d1);
    const double dw = (4.231471 * d0 + 3.890763 * d1) / (d0 + d1);
    for (const char* builder : {"PS", "PartitionedPS", "AllReduce", "PartitionedAR"}) {
      const auto seed_of = [first = static_cast<std::uint32_t>(d0)](std::uint32_t rank) {
        return rank < first ? 123u : 456u;
      };
      std::vector<TrainingStep> steps;
      for (int r = 0; r < d0 + d1; ++r) {
        steps.push_back(c0_step(seed_of(static_cast<std::uint32_t>(r))));
      }
      const Parameters after =
          run_job(steps, builder, "sgd:lr=0.01", 1,
                  [&](int, std::uint32_t rank) { return c0_samples(seed_of(rank)); });
      EXPECT_NEAR(after[0].item<double>(), 5 - 0.01 * dw, 1e-5) << builder;
      EXPECT_NEAR(after[1].item<double>(), 0.01 * db, 1e-5) << builder;
    }
  }
}

}  // namespace
}  // namespace autodist
