// Every optimizer, on every way of synchronising, against libtorch's own or its formula.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "autodist/base/error.h"
#include "tests/library_collectives.h"
#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

struct OptimizerCase {
  std::string name;
  std::string text;  // as --optimizer takes it
  std::function<Update()> reference;
};

template <typename Optimizer, typename Options>
std::function<Update()> torch_optimizer(
    Options options,
    std::function<void(std::vector<torch::Tensor>&, Optimizer&, int)> edit = nullptr) {
  return [=] { return updated_by<Optimizer>(options, edit); };
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
  // Adam's averages of a gradient and of its square, with the default betas.
  void add(std::size_t i, const torch::Tensor& g) {
    first[i].mul_(0.9).add_(g, 0.1);
    second[i].mul_(0.999).addcmul_(g, g, 0.001);
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

// Zeiler 2012, algorithm 1, scaled by a learning rate.
Update adadelta(double lr, double rho, double eps) {
  auto state = std::make_shared<Moments>();  // of gradients and of updates
  return [=](std::vector<torch::Tensor>& parameters, int) {
    const torch::NoGradGuard no_grad;
    state->prepare(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& gradients = state->first[i];
      torch::Tensor& updates = state->second[i];
      const torch::Tensor& g = parameters[i].grad();
      gradients.mul_(rho).addcmul_(g, g, 1 - rho);
      const torch::Tensor update = (updates + eps).sqrt() / (gradients + eps).sqrt() * g;
      updates.mul_(rho).addcmul_(update, update, 1 - rho);
      parameters[i].sub_(update, lr);
    }
  };
}

// Kingma and Ba, ICLR 2015, algorithm 2.
Update adamax(double lr) {
  auto state = std::make_shared<Moments>();
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    const torch::NoGradGuard no_grad;
    state->prepare(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor& g = parameters[i].grad();
      torch::Tensor& mean = state->first[i];
      torch::Tensor& infinity = state->second[i];
      mean.mul_(0.9).add_(g, 0.1);
      infinity.copy_(torch::max(infinity * 0.999, g.abs() + 1e-8));
      parameters[i].sub_(mean / infinity, lr / (1 - std::pow(0.9, step + 1)));
    }
  };
}

// Dozat 2016, as torch.optim.NAdam 1.13 has it: the product of the momenta is a float, and the next
// one counts this step's momentum twice; or as published, and in torch 2.
Update nadam(double lr, bool as_published = false) {
  auto state = std::make_shared<Moments>();
  auto product = std::make_shared<float>(1.0F);
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    const torch::NoGradGuard no_grad;
    state->prepare(parameters);
    const auto momentum = [](int t) { return 0.9 * (1 - 0.5 * std::pow(0.96, 0.004 * t)); };
    const double now = momentum(step + 1);
    const double next = momentum(step + 2);
    *product *= static_cast<float>(now);
    const float twice = *product * static_cast<float>(now) * static_cast<float>(next);
    const double product_next = as_published ? *product * next : twice;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor& g = parameters[i].grad();
      state->add(i, g);
      const torch::Tensor& mean = state->first[i];
      const torch::Tensor& square = state->second[i];
      const torch::Tensor root = (square / (1 - std::pow(0.999, step + 1))).sqrt() + 1e-8;
      parameters[i].sub_(g / root, lr * (1 - now) / (1 - double{*product}));
      parameters[i].sub_(mean / root, lr * next / (1 - double{product_next}));
    }
  };
}

// Liu et al., ICLR 2020, algorithm 2.
Update radam(double lr) {
  auto state = std::make_shared<Moments>();
  return [=](std::vector<torch::Tensor>& parameters, int step) {
    const torch::NoGradGuard no_grad;
    state->prepare(parameters);
    const double t = step + 1;
    const double beta = std::pow(0.999, t);
    const double most = 2 / (1 - 0.999) - 1;
    const double length = most - 2 * t * beta / (1 - beta);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor& g = parameters[i].grad();
      state->add(i, g);
      const torch::Tensor& mean = state->first[i];
      const torch::Tensor& square = state->second[i];
      torch::Tensor update = mean / (1 - std::pow(0.9, t));
      if (length > 5) {
        const double rectifier =
            std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
        update = update * rectifier * std::sqrt(1 - beta) / (square.sqrt() + 1e-8);
      }
      parameters[i].sub_(update, lr);
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
      {"momentum", "sgd:lr=0.1,momentum=0.9", torch_optimizer<SGD>(SGDOptions(0.1).momentum(0.9))},
      {"nesterov", "sgd:lr=0.1,momentum=0.9,nesterov=1",
       torch_optimizer<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"adadelta", "adadelta:lr=0.5", [] { return adadelta(0.5, 0.9, 1e-6); }},
      {"adamax", "adamax:lr=0.01", [] { return adamax(0.01); }},
      {"nadam", "nadam:lr=0.01", [] { return nadam(0.01); }},
      {"nadam_as_published", "nadam:lr=0.01,as_published=1", [] { return nadam(0.01, true); }},
      {"radam", "radam:lr=0.01", [] { return radam(0.01); }},
      {"rmsprop_momentum", "rmsprop:lr=0.001,momentum=0.9",
       torch_optimizer<RMSprop>(RMSpropOptions(0.001).momentum(0.9))},
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

TEST(Optimizers, EqualTheirReferenceOnSlicesAndShards) {
  // Every way of synchronising once; the kernels are the same for any number of ranks.
  const std::map<std::uint32_t, std::vector<const char*>> builders{
      {2, {"PartitionedPS", "AllReduce:algorithm=library"}}, {3, {"PS", "AllReduce"}}};
  for (const OptimizerCase& each : optimizer_cases()) {
    for (const auto& [ranks, names] : builders) {
      const Parameters plain = train_plain("digits", ranks, kBatch, each.reference());
      for (const char* builder : names) {
        if (testing_jobs::is_left_out(builder)) continue;
        expect_close(run_job({"digits", builder, ranks, kBatch, 1, each.text}), plain,
                     fmt::format("{} by {} on {}", each.name, builder, ranks));
      }
    }
  }
}

// Sparse gradients under every rule that takes them: by rows where the rule leaves other rows alone
// (SGD, Adagrad; Adam is in sparse_test.cc), else as if they were dense. Rules with momentum or
// decay refuse.
TEST(Optimizers, TakeSparseGradientsOrRefuseThem) {
  const char* model = "ncf-small-sparse";
  const std::set<std::string> refused{"momentum", "nesterov", "rmsprop_momentum", "groups", "lamb"};
  const std::set<std::string> elsewhere{"adam", "clip_some"};
  for (const OptimizerCase& each : optimizer_cases()) {
    if (elsewhere.count(each.name) != 0) continue;
    Parameters plain;
    if (refused.count(each.name) == 0) plain = train_plain(model, 2, kBatch, each.reference());
    for (const char* builder : {"PS", "PartitionedPS", "AllReduce"}) {
      const SmallJob job{model, builder, 2, kBatch, 1, each.text};
      if (refused.count(each.name) != 0) {
        EXPECT_THROW(run_job(job), Error) << each.name;
      } else {
        expect_close(run_job(job), plain, fmt::format("{} by {}", each.name, builder));
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
TEST(Optimizers, AUsersOwnRuleRunsOnSlicesAndShards) {
  const exec::UserRules rules = lion_rule();
  const Parameters plain = train_plain("gpt-small", 2, kBatch, lion(1e-3));
  for (const char* builder : {"PartitionedPS", "AllReduce", "AllReduce:algorithm=library"}) {
    if (testing_jobs::is_left_out(builder)) continue;
    SmallJob job{"gpt-small", builder, 2, kBatch, 1, "user:rule=lion,lr=1e-3"};
    job.user_rules = &rules;
    expect_close(run_job(job), plain, builder);
  }
}

// A frozen parameter is a constant of the job: the chief's everywhere, never planned, never
// changed.
TEST(Optimizers, FrozenParametersStayAsTheChiefHasThem) {
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

}  // namespace
}  // namespace autodist
