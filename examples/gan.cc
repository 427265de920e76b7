// Several steps over one set of variables: a generator and its critic, each with an optimizer and a
// Program of its own, and a step that only measures. Two ranks; every step's rows are split.
//
//   ./gan [DIRECTORY]            # a checkpoint of all steps at the end

#include <cmath>
#include <cstdio>

#include "autodist/app/torch/session.h"

namespace nn = torch::nn;

// Points on a circle, from noise.
struct Gan : nn::Module {
  Gan() {
    generator = register_module("generator",
                                nn::Sequential(nn::Linear(2, 32), nn::Tanh(), nn::Linear(32, 2)));
    const auto bent = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
    critic = register_module("critic", nn::Sequential(nn::Linear(2, 32), bent(), nn::Linear(32, 32),
                                                      bent(), nn::Linear(32, 1)));
  }
  // One point for each row of `real`.
  torch::Tensor fake(const torch::Tensor& real) {
    return generator->forward(torch::randn_like(real));
  }

  nn::Sequential generator{nullptr}, critic{nullptr};
};

torch::Tensor circle(std::int64_t points) {
  const torch::Tensor angle = torch::rand(points) * 2 * M_PI;
  return torch::stack({angle.cos(), angle.sin()}, 1);
}

int main(int argc, char** argv) try {
  autodist::AutoDist ad{"local:2"};
  torch::manual_seed(1);
  auto model = std::make_shared<Gan>();
  const autodist::Batch example{circle(64)};

  autodist::TrainingStep critic = autodist::make_training_step(
      "gan", model,
      [](Gan& gan, const autodist::Batch& batch) {
        const torch::Tensor real = gan.critic->forward(batch[0]);
        const torch::Tensor fake = gan.critic->forward(gan.fake(batch[0]));
        return (torch::softplus(-real) + torch::softplus(fake)).mean();
      },
      example);
  critic.trains = {"critic"};  // it reads the generator as it is

  autodist::TrainingStep generator = autodist::make_training_step(
      "gan", model,
      [](Gan& gan, const autodist::Batch& batch) {
        return torch::softplus(-gan.critic->forward(gan.fake(batch[0]))).mean();
      },
      example);
  generator.trains = {"generator"};

  autodist::TrainingStep distance = autodist::make_training_step(
      "gan", model,
      [](Gan& gan, const autodist::Batch& batch) {
        return (gan.fake(batch[0]).norm(2, 1) - 1).square().mean();
      },
      example);

  const auto adam = [](const std::string& options) {
    return autodist::ir::parse_optimizer("adam:beta1=0.5,beta2=0.9," + options);
  };
  autodist::Steps steps = ad.distribute({
      {"critic", critic, adam("lr=4e-3")},
      {"generator", generator, adam("lr=2e-3")},
      {"distance", distance, std::nullopt},  // trains nothing
  });
  for (int i = 0; i < 600; ++i) {
    steps["critic"].run({circle(128)});
    steps["generator"].run({circle(128)});
    if (i % 100 != 99) continue;
    steps["distance"].run({circle(1000)});
    steps["distance"].summarise();
    const double mean = steps["distance"].last_summary().loss;  // over the rows of all ranks
    if (steps.is_chief()) std::printf("round %3d  distance %.4f\n", i + 1, mean);
  }
  if (argc > 1) steps.save(argv[1]);
  const double last = steps["distance"].last_summary().loss;
  steps.finish();
  if (steps.is_chief()) std::printf("trained: squared distance from the circle %.4f\n", last);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
