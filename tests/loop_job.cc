// A user's loop for loops_test.cc: a small model with a batch norm, and one thing that loops do.
//
//   loop_job WHAT CLUSTER BUILDER

#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>

#include "autodist/app/torch/session.h"

namespace autodist {
namespace {

constexpr int kSteps = 6;
constexpr int kAt = 3;  // the step before which it happens

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    still = register_module("still", torch::nn::Dropout(0.5));
    last = register_module("last", torch::nn::Linear(8, 2));
    still->eval();
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(still(torch::tanh(norm(first(x))))); }

  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout still{nullptr};
};

struct Loop {
  std::shared_ptr<Net> net;
  Session& session;
  Batch batch;
};

// The error of each, by a line; none of them may be taken.
void refuses(Session& session, const std::vector<Batch>& batches) {
  for (const Batch& each : batches) {
    try {
      session.run(each);
      std::printf("taken\n");
    } catch (const Error& error) {
      std::printf("%d %s\n", static_cast<int>(error.code()), error.what());
    }
  }
}

void evaluate(const Loop& loop) {
  const torch::Tensor outputs = loop.session.evaluate({loop.batch[0]}).front();
  const bool kept =
      loop.net->is_training() && loop.net->norm->is_training() && !loop.net->still->is_training();
  loop.net->eval();
  const double difference = (outputs - loop.net->forward(loop.batch[0])).abs().max().item<double>();
  loop.net->train();
  loop.net->still->eval();
  std::printf("evaluated, difference %g, modes %s\n", difference, kept ? "kept" : "lost");
}

const std::map<std::string, std::function<void(const Loop&)>>& happenings() {
  static const std::map<std::string, std::function<void(const Loop&)>> all{
      {"nothing", [](const Loop&) {}},
      {"written", [](const Loop& loop) { loop.net->first->weight.data().mul_(0.5); }},
      {"synchronized",
       [](const Loop& loop) {
         loop.session.synchronize();
         loop.net->first->weight.data().mul_(0.5);
       }},
      {"frozen", [](const Loop& loop) { loop.net->first->weight.requires_grad_(false); }},
      {"thrown",
       [](const Loop& loop) {
         if (loop.session.rank() == 1) throw std::runtime_error("trouble in the loop");
       }},
      {"evaluated", evaluate},
      {"batches",
       [](const Loop& loop) {
         const torch::Tensor& x = loop.batch[0];
         const torch::Tensor& y = loop.batch[1];
         refuses(loop.session, {{}, {x}, {torch::Tensor(), y}, {x, y.slice(0, 0, 7)}});
       }},
  };
  return all;
}

int run(const std::string& what, const std::string& cluster, const std::string& builder) {
  JobOptions options;
  options.builder = builder;
  AutoDist autodist(cluster, options);
  torch::manual_seed(1);
  const auto net = std::make_shared<Net>();
  const Batch batch{torch::randn({8, 6}), torch::randn({8, 2})};
  TrainingStep step = make_training_step(
      "net", net,
      [](Net& model, const Batch& of) { return torch::mse_loss(model.forward(of[0]), of[1]); },
      batch);
  step.evaluate = [net](const Batch& of) -> std::vector<torch::Tensor> {
    return {net->forward(of[0])};
  };
  Session session = autodist.distribute(step, Sgd{what == "negative" ? -0.1 : 0.1});
  for (int i = 0; i < kSteps; ++i) {
    if (what == "left" && i == kAt && session.is_chief()) break;
    if (i == kAt && what != "left" && what != "unfinished") {
      happenings().at(what)({net, session, batch});
    }
    session.run(batch);
  }
  if (what == "unfinished") return 0;
  session.synchronize();
  if (session.is_chief()) std::printf("trained, %g\n", net->first->weight.norm().item<double>());
  session.finish();
  return 0;
}

}  // namespace
}  // namespace autodist

// As the examples end.
int main(int argc, char** argv) try {
  if (argc != 4) return 2;
  return autodist::run(argv[1], argv[2], argv[3]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return autodist::exit_code_of(error);
}
