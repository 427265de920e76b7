// A training loop of a user's own: every rank reads its own rows, all hear of the mean loss, and a
// second run goes on where the first one stopped.
//
//   ./own_loop checkpoints            # 400 steps, a checkpoint after every 200
//   ./own_loop checkpoints resume     # from there to step 800

#include <cstdio>
#include <string>

#include "autodist/app/torch/session.h"

int main(int argc, char** argv) try {
  const std::string folder = argc > 1 ? argv[1] : "own_loop_checkpoints";
  const bool resume = argc > 2 && std::string(argv[2]) == "resume";
  autodist::AutoDist ad{"local:2"};

  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  const torch::Tensor x = torch::randn({512, 8});
  const torch::Tensor y = x.sum(1, true).sin();

  // The same step as distribute(model, loss, …) makes, and outputs for evaluation.
  constexpr std::int64_t kRows = 32;
  const auto loss = [](torch::nn::SequentialImpl& mlp, const autodist::Batch& batch) {
    return torch::mse_loss(mlp.forward(batch[0]), batch[1]);
  };
  autodist::TrainingStep step = autodist::make_training_step(
      "mlp", model.ptr(), loss, {x.slice(0, 0, kRows), y.slice(0, 0, kRows)});
  step.evaluate = [model](const autodist::Batch& batch) mutable {
    const torch::NoGradGuard no_gradients;
    return std::vector<torch::Tensor>{model->forward(batch[0])};
  };
  auto session = ad.distribute(step, autodist::Adam{1e-2});
  if (resume) session.load(folder);

  // Rank r of n reads the samples r, r + n, r + 2 n, …: here its share is a tensor of its own.
  const auto share = [&](const torch::Tensor& all) {
    return all.slice(0, session.rank(), all.size(0), session.size()).contiguous();
  };
  const torch::Tensor own_x = share(x);
  const torch::Tensor own_y = share(y);
  const std::int64_t steps = resume ? 800 : 400;
  while (session.step() < steps) {
    const std::int64_t begin = session.step() * kRows % own_x.size(0);
    session.run_local({own_x.slice(0, begin, begin + kRows), own_y.slice(0, begin, begin + kRows)});
    const autodist::StepSummary all = session.summarise();
    if (session.is_chief() && all.step % 100 == 0) {
      std::printf("step %3d  mean loss %.4f of %d samples\n", static_cast<int>(all.step), all.loss,
                  static_cast<int>(all.samples));
    }
    if (session.step() % 200 == 0) session.save(folder);
  }
  session.synchronize();
  if (session.is_chief()) {
    const torch::Tensor outputs = session.evaluate({x}).front();
    std::printf("trained: loss %.4f\n", torch::mse_loss(outputs, y).item<double>());
  }
  session.finish();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
