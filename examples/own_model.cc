// A user's own torch::nn module, trained on two processes of this machine.
//
//   ./own_model              # two ranks
//   ./own_model local:1      # one process, the same numbers to rounding

#include <cstdio>

#include "autodist/app/torch/session.h"

struct Mlp : torch::nn::Module {
  Mlp() {
    fc1 = register_module("fc1", torch::nn::Linear(8, 32));
    fc2 = register_module("fc2", torch::nn::Linear(32, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::tanh(fc1(x))); }

  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

int main(int argc, char** argv) try {
  autodist::AutoDist ad{argc > 1 ? argv[1] : "local:2"};

  torch::manual_seed(1);
  auto model = std::make_shared<Mlp>();
  const auto mean_squared_error = [](Mlp& mlp, const autodist::Batch& batch) {
    return torch::mse_loss(mlp.forward(batch[0]), batch[1]);
  };
  const torch::Tensor x = torch::randn({64, 8});
  const torch::Tensor y = x.sum(1, true).sin();

  // What one replica gets in a step: its shapes count, not its values.
  const autodist::Batch example{x.slice(0, 0, 32), y.slice(0, 0, 32)};
  auto session = ad.distribute(model, mean_squared_error, autodist::Adam{1e-2}, example);

  for (int step = 0; step < 200; ++step) {
    const double loss = session.run({x, y});
    if (session.is_chief() && step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss);
  }
  session.synchronize();
  if (session.is_chief()) {
    std::printf("trained: loss %.4f\n", mean_squared_error(*model, {x, y}).item<double>());
  }
  session.finish();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
