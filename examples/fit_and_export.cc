// A data set of one's own: training by epochs with callbacks, evaluation over all ranks, values of
// a step by name, and the trained model as a TorchScript file.
//
//   ./fit_and_export FILE.pt            # two ranks; each reads its own part of every batch

#include <cstdio>

#include "autodist/app/torch/fit.h"

struct Mlp : torch::nn::Module {
  Mlp() {
    fc1 = register_module("fc1", torch::nn::Linear(2, 32));
    fc2 = register_module("fc2", torch::nn::Linear(32, 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::tanh(fc1(x))); }

  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

// Points in a square; the class says whether they lie in a circle.
class Points : public torch::data::Dataset<Points> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    torch::manual_seed(index);
    const torch::Tensor point = torch::rand({2}) * 2 - 1;
    return {point, point.square().sum().lt(0.6).to(torch::kInt64)};
  }
  torch::optional<std::size_t> size() const override { return 1001; }
};

int main(int argc, char** argv) try {
  autodist::AutoDist ad{"local:2"};
  torch::manual_seed(1);
  auto model = std::make_shared<Mlp>();
  const autodist::SampleSource points = autodist::samples_of(Points());

  autodist::TrainingStep step = autodist::make_training_step(
      "points", model,
      [](Mlp& mlp, const autodist::Batch& batch) {
        return torch::nn::functional::cross_entropy(mlp.forward(batch[0]), batch[1]);
      },
      points.batch({0, 1, 2, 3}));
  step.evaluate = [model](const autodist::Batch& batch) {
    return std::vector<torch::Tensor>{model->forward(batch[0])};
  };
  autodist::Session session = ad.distribute(step, autodist::Adam{3e-2});

  autodist::FitOptions options;
  options.epochs = 40;
  options.batch = 64;
  autodist::FitCallbacks callbacks;
  callbacks.on_epoch_end = [&](std::int64_t epoch, double loss) {
    if (session.is_chief()) std::printf("epoch %2ld  loss %.4f\n", static_cast<long>(epoch), loss);
    return loss > 0.08;  // enough
  };
  const autodist::FitResult result = autodist::fit(session, points, options, callbacks);

  // Each sample once, whatever the number of ranks.
  const std::vector<double> right = autodist::evaluate(
      session, points, 128,
      [](const std::vector<torch::Tensor>& outputs, const autodist::Batch& batch) {
        return std::vector<double>{
            outputs[0].argmax(1).eq(batch[1]).sum().item<double>(),
            static_cast<double>(batch[1].size(0)),
        };
      });

  // Of one more step: the loss over the whole batch, and how large a gradient is.
  const auto values = session.run_and_fetch(points.batch({0, 1, 2, 3, 4, 5, 6}),
                                            {"loss", "fc1.weight.grad", "fc2"});
  if (argc > 1) session.export_torchscript(argv[1]);
  session.finish();
  if (session.is_chief()) {
    std::printf("%.0f of %.0f samples right after %ld epochs; %ld logits, gradient of norm %.4f\n",
                right[0], right[1], static_cast<long>(result.epochs),
                static_cast<long>(values.at("fc2").size(0)),
                values.at("fc1.weight.grad").norm().item<double>());
    std::printf("trained: loss %.4f\n", result.losses.back());
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
