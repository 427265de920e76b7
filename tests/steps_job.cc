// A user's program for steps_test.cc: a generator and a critic over one set of variables, a step
// that trains both, and one that only computes a loss, in turns. Every rank compares all losses and
// the parameters with plain libtorch, whose optimizers are as many.
//
//   steps_job CLUSTER BUILDER FIRST LAST [LOAD] SAVE
//
// Runs the rounds FIRST … LAST - 1; what came before is in the folder LOAD.

#include <cstdio>
#include <cstdlib>
#include <map>

#include "autodist/app/torch/session.h"
#include "autodist/base/error.h"
#include "autodist/exec/replay.h"
#include "tests/reference.h"

namespace autodist {
namespace {

using namespace testing_jobs;

struct GanImpl : torch::nn::Module {
  GanImpl() {
    generator = register_module("generator",
                                torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(),
                                                      torch::nn::Linear(16, 6)));
    critic = register_module(
        "critic", torch::nn::Sequential(torch::nn::Linear(6, 12), torch::nn::BatchNorm1d(12),
                                        torch::nn::Tanh(), torch::nn::Linear(12, 1)));
    to(torch::kFloat64);
  }
  // As many as there are rows, from noise that the step draws.
  torch::Tensor fakes(const torch::Tensor& rows) {
    return generator->forward(torch::randn({rows.size(0), 4}, torch::kFloat64));
  }
  torch::nn::Sequential generator{nullptr}, critic{nullptr};
};
TORCH_MODULE(Gan);

torch::Tensor critic_loss(GanImpl& gan, const Batch& batch) {
  const torch::Tensor real = gan.critic->forward(batch[0]);
  const torch::Tensor fake = gan.critic->forward(gan.fakes(batch[0]));
  return (torch::softplus(-real) + torch::softplus(fake)).mean();
}
torch::Tensor generator_loss(GanImpl& gan, const Batch& batch) {
  return torch::softplus(-gan.critic->forward(gan.fakes(batch[0]))).mean();
}
torch::Tensor joint_loss(GanImpl& gan, const Batch& batch) {
  const torch::Tensor both = gan.critic->forward(batch[0] + gan.fakes(batch[0]));
  return both.square().mean();
}
torch::Tensor evaluation_loss(GanImpl& gan, const Batch& batch) {
  gan.eval();
  torch::Tensor loss = torch::softplus(-gan.critic->forward(batch[0])).mean();
  gan.train();
  return loss;
}

struct Kind {
  const char* name;
  torch::Tensor (*loss)(GanImpl&, const Batch&);
  std::vector<std::string> trains;
  const char* optimizer;  // nothing: it trains nothing
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list{
      {"critic", critic_loss, {"critic"}, "sgd:lr=0.05,momentum=0.9"},
      {"generator", generator_loss, {"generator"}, "adam:lr=0.01"},
      {"joint", joint_loss, {"generator", "critic.0", "critic.3"}, "sgd:lr=0.02,momentum=0.5"},
      {"evaluate", evaluation_loss, {}, nullptr}};
  return list;
}
// A round: the steps in these turns, each on a batch of its own.
const std::vector<std::size_t> kTurns{0, 0, 1, 3, 2, 0, 1};

Gan make_gan() {
  torch::manual_seed(kSeed);
  return {};
}

Batch batch_of(int round, std::size_t turn) {
  const auto seed = 1000 + static_cast<std::uint64_t>(round) * kTurns.size() + turn;
  const auto generator = at::detail::createCPUGenerator(seed);
  return {torch::randn({kBatch - 1, 6}, generator, torch::kFloat64)};
}

// The job's training on one process: each replica's rows with its own generator and statistics.
class Plain {
 public:
  explicit Plain(std::uint32_t replicas) : gan_(make_gan()), replicas_(replicas) {
    for (std::uint32_t r = 0; r < replicas; ++r) buffers_.push_back(copies());
    for (std::size_t i = 0; i < kinds().size(); ++i) {
      for (const auto& item : gan_->named_parameters()) {
        for (const std::string& prefix : kinds()[i].trains) {
          if (item.key().rfind(prefix + ".", 0) == 0) trained_[i].push_back(item.value());
        }
      }
    }
    optimizers_[0] = std::make_unique<torch::optim::SGD>(
        trained_[0], torch::optim::SGDOptions(0.05).momentum(0.9));
    optimizers_[1] =
        std::make_unique<torch::optim::Adam>(trained_[1], torch::optim::AdamOptions(0.01));
    optimizers_[2] = std::make_unique<torch::optim::SGD>(
        trained_[2], torch::optim::SGDOptions(0.02).momentum(0.5));
  }

  // The loss of replica `own`.
  double run(std::size_t kind, const Batch& batch, std::uint32_t own) {
    std::vector<torch::Tensor> sums(trained_[kind].size());
    double loss_of_own = 0;
    for (std::uint32_t r = 0; r < replicas_; ++r) {
      const Batch rows = rows_of(batch, r, replicas_);
      put(buffers_[r]);
      torch::manual_seed(exec::step_seed(kSeed + kind, r, steps_[kind]));
      gan_->zero_grad();
      const torch::Tensor loss = kinds()[kind].loss(*gan_, rows);
      if (r == own) loss_of_own = loss.item<double>();
      buffers_[r] = copies();
      if (trained_[kind].empty()) continue;
      loss.backward();
      const double share =
          static_cast<double>(rows[0].size(0)) / static_cast<double>(batch[0].size(0));
      for (std::size_t p = 0; p < sums.size(); ++p) {
        const torch::Tensor part = trained_[kind][p].grad() * share;
        sums[p] = sums[p].defined() ? sums[p] + part : part;
      }
    }
    for (std::size_t p = 0; p < sums.size(); ++p) trained_[kind][p].mutable_grad() = sums[p];
    if (!trained_[kind].empty()) optimizers_[kind]->step();
    ++steps_[kind];
    return loss_of_own;
  }

  Gan& gan() { return gan_; }

 private:
  std::vector<torch::Tensor> copies() {
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& each : gan_->buffers()) all.push_back(each.clone());
    return all;
  }
  void put(const std::vector<torch::Tensor>& values) {
    const auto buffers = gan_->buffers();
    for (std::size_t i = 0; i < values.size(); ++i) buffers[i].copy_(values[i]);
  }

  Gan gan_;
  std::uint32_t replicas_;
  std::vector<std::vector<torch::Tensor>> buffers_;  // by replica
  std::map<std::size_t, std::vector<torch::Tensor>> trained_;
  std::map<std::size_t, std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  std::map<std::size_t, std::uint64_t> steps_;
};

double largest_difference(Gan& a, Gan& b) {
  double largest = 0;
  const auto ours = a->named_parameters();
  for (const auto& item : b->named_parameters()) {
    const torch::Tensor difference = ours[item.key()].detach() - item.value().detach();
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

// Whether a turn of this kind left alone what it does not train.
bool keeps_others(std::size_t kind, Gan& gan, const std::map<std::string, torch::Tensor>& before) {
  for (const auto& item : gan->named_parameters()) {
    bool trained = false;
    for (const std::string& prefix : kinds()[kind].trains) {
      trained = trained || item.key().rfind(prefix + ".", 0) == 0;
    }
    if (!trained && !item.value().equal(before.at(item.key()))) return false;
  }
  return true;
}

std::vector<NamedStep> declare(Gan& gan, std::uint32_t ranks) {
  std::vector<NamedStep> steps;
  for (const Kind& kind : kinds()) {
    TrainingStep step = make_training_step("gan", gan.ptr(), kind.loss,
                                           {torch::ones({kBatch / ranks, 6}, torch::kFloat64)});
    // Rows that are all alike would have no variance to normalise by.
    step.example[0] += torch::arange(step.example[0].numel(), torch::kFloat64).view({-1, 6}) / 50;
    step.trains = kind.trains;
    NamedStep named{kind.name, std::move(step), std::nullopt, ""};
    if (kind.optimizer != nullptr) named.optimizer = ir::parse_optimizer(kind.optimizer);
    steps.push_back(std::move(named));
  }
  return steps;
}

int run(const std::string& cluster, const std::string& builder, int first, int last,
        const std::string& load, const std::string& save) {
  JobOptions options;
  options.builder = builder;
  options.seed = kSeed;
  options.measure = false;
  AutoDist autodist(cluster, options);
  Gan gan = make_gan();
  Steps steps = autodist.distribute(declare(gan, autodist.size()));
  if (!load.empty()) {
    const std::int64_t done = steps.load(load);
    if (done != first * static_cast<std::int64_t>(kTurns.size())) return 1;
  }
  Plain plain(steps.size());
  double losses = 0;
  bool alone = true;
  for (int round = 0; round < last; ++round) {
    for (std::size_t turn = 0; turn < kTurns.size(); ++turn) {
      const std::size_t kind = kTurns[turn];
      const Batch batch = batch_of(round, turn);
      const double expected = plain.run(kind, batch, steps[kinds()[kind].name].replica());
      if (round < first) continue;
      std::map<std::string, torch::Tensor> before;
      if (turn != 0) {  // else what the turn before changed is still on its way
        steps.synchronize();
        for (const auto& item : gan->named_parameters()) {
          before[item.key()] = item.value().detach().clone();
        }
      }
      const double loss = steps[kinds()[kind].name].run(batch);
      losses = std::max(losses, std::abs(loss - expected));
      if (turn == 0) continue;
      steps.synchronize();
      alone = alone && keeps_others(kind, gan, before);
    }
  }
  steps.synchronize();
  const double difference = largest_difference(gan, plain.gan());
  steps.save(save);
  const auto counts = fmt::format("{} {} {} {}", steps["critic"].step(), steps["generator"].step(),
                                  steps["joint"].step(), steps["evaluate"].step());
  std::string refusal;
  try {
    steps.at("generater");
  } catch (const Error& error) {
    refusal = error.what();
  }
  steps.finish();
  std::printf("rank %u losses %.3g parameters %.3g alone %d steps %s; %s\n", autodist.rank(),
              losses, difference, alone ? 1 : 0, counts.c_str(), refusal.c_str());
  return 0;
}

}  // namespace
}  // namespace autodist

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) return 2;
  return autodist::testing_jobs::job_main("steps_job", [&] {
    return autodist::run(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]),
                         argc == 7 ? argv[5] : "", argv[argc - 1]);
  });
}
