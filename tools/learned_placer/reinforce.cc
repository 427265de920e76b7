#include "tools/learned_placer/reinforce.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/search/placement/placeto_simulator.h"

namespace autodist::learned {
namespace {

namespace placement = search::placement;

constexpr double kRate = 3e-3;     // Adam's
constexpr double kEntropy = 1e-2;  // its weight in the loss, at the start; falls to 0
constexpr double kMostNorm = 1.0;  // of a gradient
constexpr std::uint32_t kEvaluateEvery = 5;
constexpr std::int64_t kChunk = 64;  // states of one backward pass: memory

// What a visit saw, did and got.
struct Visit {
  torch::Tensor state;  // [N, features]
  std::int64_t asked = 0;
  std::int64_t device = 0;
  double reward = 0;  // the step's time saved, over the time on one device
};

class Trainer {
 public:
  Trainer(const placement::TaskGraph& graph, Policy& policy, const TrainingOptions& options)
      : policy_(policy),
        options_(options),
        tensors_(graph, options.seed),
        simulator_(graph, options.devices),
        optimizer_(policy->parameters(), torch::optim::AdamOptions(kRate)),
        random_(options.seed) {
    members_.resize(graph.tasks.size());
    for (const std::uint32_t task : placement::traversal(graph, options.order, random_)) {
      // Tasks of a colour move together, when the first of them is visited.
      const std::uint32_t colour = graph.tasks[task].colour;
      std::uint32_t leader = task;
      if (colour != placement::kNoColour) {
        const auto [at, is_new] = leader_.emplace(colour, task);
        if (!is_new) leader = at->second;
      }
      if (leader == task) visits_.push_back(task);
      members_[leader].push_back(task);
    }
    result_.placement.assign(graph.tasks.size(), 0);
    result_.time = placement::kNotSupported;
    baseline_.assign(visits_.size(), 0);
  }

  Trained run(const std::function<void(std::uint32_t, double)>& done) {
    std::uint32_t taught = 0;
    for (std::uint32_t episode = 0; episode < options_.episodes; ++episode) {
      const bool evaluates = episode % kEvaluateEvery == kEvaluateEvery - 1;
      const std::vector<Visit> visits = go_through(evaluates);
      if (!evaluates && options_.learns)
        learn(visits, taught++, 1 - static_cast<double>(episode) / options_.episodes);
      result_.best_after.push_back(result_.time);
      if (done) done(episode, result_.time);
    }
    return std::move(result_);
  }

 private:
  double simulate(const placement::Placement& placement) {
    ++result_.simulations;
    return simulator_.run(placement);
  }

  // Costs, start times in the last simulation, who was visited, who is asked, devices.
  torch::Tensor state_of(const placement::Placement& placement, const std::vector<bool>& visited,
                         std::uint32_t asked) const {
    torch::Tensor state =
        torch::zeros({tensors_.tasks, features(static_cast<std::int64_t>(options_.devices))});
    auto values = state.accessor<float, 2>();
    const auto costs = tensors_.costs.accessor<float, 2>();
    const std::vector<double>& starts = simulator_.timeline().start;
    for (std::int64_t t = 0; t < tensors_.tasks; ++t) {
      const auto task = static_cast<std::size_t>(t);
      values[t][0] = std::log1p(costs[t][0]);
      values[t][1] = std::log1p(costs[t][1]);
      values[t][2] = static_cast<float>(starts[task] / alone_);
      values[t][3] = visited[task] ? 1 : 0;
      values[t][4] = task == asked ? 1 : 0;
      values[t][5 + placement[task]] = 1;
    }
    return state;
  }

  std::int64_t choose(const torch::Tensor& logits, bool likeliest) {
    if (likeliest) return logits.argmax().item<std::int64_t>();
    const torch::Tensor shares = torch::softmax(logits.to(torch::kFloat64), 0);
    double luck = static_cast<double>(random_() >> 11) * 0x1p-53;
    const auto devices = static_cast<std::int64_t>(options_.devices);
    for (std::int64_t device = 0; device + 1 < devices; ++device) {
      luck -= shares[device].item<double>();
      if (luck < 0) return device;
    }
    return devices - 1;
  }

  std::vector<Visit> go_through(bool likeliest) {
    const torch::NoGradGuard no_grad;
    placement::Placement placement = result_.placement;
    double before = simulate(placement);
    if (alone_ == 0) {
      AD_CHECK(before > 0 && before < placement::kNotSupported) << "the step takes " << before;
      alone_ = result_.time = before;
    }
    std::vector<bool> visited(placement.size());
    std::vector<Visit> visits;
    for (const std::uint32_t task : visits_) {
      Visit visit;
      visit.state = state_of(placement, visited, task);
      visit.asked = task;
      const torch::Tensor logits =
          policy_->forward(tensors_, visit.state.unsqueeze(0), torch::tensor({visit.asked}));
      visit.device = choose(logits[0], likeliest);
      for (const std::uint32_t member : members_[task]) {
        placement[member] = static_cast<placement::DeviceIndex>(visit.device);
        visited[member] = true;
      }
      const double time = simulate(placement);
      visit.reward = (before - time) / alone_;
      before = time;
      if (time < result_.time) {
        result_.time = time;
        result_.placement = placement;
      }
      visits.push_back(std::move(visit));
    }
    return visits;
  }

  void learn(const std::vector<Visit>& visits, std::uint32_t taught, double left) {
    std::vector<double> advantages(visits.size());
    double sum = 0;
    double squares = 0;
    double coming = 0;
    for (std::size_t i = visits.size(); i-- > 0;) {
      coming += visits[i].reward;
      advantages[i] = coming - baseline_[i];
      baseline_[i] += (coming - baseline_[i]) / (taught + 1.0);
      sum += advantages[i];
      squares += advantages[i] * advantages[i];
    }
    const auto count = static_cast<double>(visits.size());
    const double deviation =
        std::sqrt(std::max(1e-12, squares / count - sum * sum / count / count));
    optimizer_.zero_grad();
    for (std::size_t begin = 0; begin < visits.size(); begin += kChunk) {
      const std::size_t end = std::min(visits.size(), begin + kChunk);
      std::vector<torch::Tensor> states;
      std::vector<std::int64_t> asked;
      std::vector<std::int64_t> devices;
      std::vector<float> weights;
      for (std::size_t i = begin; i < end; ++i) {
        states.push_back(visits[i].state);
        asked.push_back(visits[i].asked);
        devices.push_back(visits[i].device);
        weights.push_back(static_cast<float>(advantages[i] / deviation / count));
      }
      const torch::Tensor logs = torch::log_softmax(
          policy_->forward(tensors_, torch::stack(states), torch::tensor(asked)), 1);
      const torch::Tensor taken = logs.gather(1, torch::tensor(devices).unsqueeze(1)).squeeze(1);
      const torch::Tensor entropy = -(logs.exp() * logs).sum() / count;
      const torch::Tensor loss =
          -(taken * torch::tensor(weights)).sum() - kEntropy * left * entropy;
      loss.backward();
    }
    torch::nn::utils::clip_grad_norm_(policy_->parameters(), kMostNorm);
    optimizer_.step();
  }

  Policy& policy_;
  const TrainingOptions options_;
  const GraphTensors tensors_;
  placement::PlacetoSimulator simulator_;
  torch::optim::Adam optimizer_;
  std::mt19937_64 random_;
  std::map<std::uint32_t, std::uint32_t> leader_;    // by colour
  std::vector<std::uint32_t> visits_;                // first task of every class, in order
  std::vector<std::vector<std::uint32_t>> members_;  // by first task
  std::vector<double> baseline_;                     // by visit
  double alone_ = 0;                                 // µs, all on device 0
  Trained result_;
};

}  // namespace

Trained train(const search::placement::TaskGraph& graph, Policy& policy,
              const TrainingOptions& options,
              const std::function<void(std::uint32_t, double)>& done) {
  return Trainer(graph, policy, options).run(done);
}

}  // namespace autodist::learned
