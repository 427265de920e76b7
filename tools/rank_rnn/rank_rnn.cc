#include "tools/rank_rnn/rank_rnn.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "tools/rank_rnn/plan_sequence.h"

namespace autodist::learned {
namespace {

using search::Sample;

constexpr auto kFeatures = static_cast<std::int64_t>(kStepFeatures);

class NetworkImpl : public torch::nn::Module {
 public:
  explicit NetworkImpl(std::int64_t hidden)
      : reader_(register_module(
            "reader",
            torch::nn::LSTM(torch::nn::LSTMOptions(kFeatures, hidden).batch_first(true)))),
        hidden_(register_module("hidden", torch::nn::Linear(hidden, hidden))),
        score_(register_module("score", torch::nn::Linear(hidden, 1))) {}

  // `plans`: [B, T, kStepFeatures], the shorter ones filled up behind their end; `last`: [B] where
  // each ends. Returns [B].
  torch::Tensor forward(const torch::Tensor& plans, const torch::Tensor& last) {
    const torch::Tensor read = std::get<0>(reader_->forward(plans));
    const torch::Tensor at = last.view({-1, 1, 1}).expand({-1, 1, read.size(2)});
    return score_->forward(torch::tanh(hidden_->forward(read.gather(1, at).squeeze(1)))).squeeze(1);
  }

 private:
  torch::nn::LSTM reader_;
  torch::nn::Linear hidden_;
  torch::nn::Linear score_;
};
TORCH_MODULE(Network);

struct Plans {
  torch::Tensor rows;  // [B, T, kStepFeatures]
  torch::Tensor last;  // [B]
};

class RankRnn {
 public:
  RankRnn(const Sequences& sequences, const RankRnnOptions& options)
      : sequences_(sequences), options_(options), network_(options.hidden) {}

  void fit(const std::vector<Sample>& samples) {
    if (search::pairs_of(samples).empty()) return;
    is_trained_ = true;
    standardise(samples);
    std::map<std::size_t, std::vector<const Sample*>> cells;
    for (const Sample& sample : samples) cells[sample.cell].push_back(&sample);
    torch::optim::Adam adam(network_->parameters(), torch::optim::AdamOptions(options_.rate));
    for (std::uint32_t epoch = 0; epoch < options_.epochs; ++epoch) {
      for (const auto& [cell, all] : cells) fit_once(drawn(all), adam);
    }
  }

  [[nodiscard]] std::vector<double> scores(const std::vector<Sample>& samples) {
    if (!is_trained_ || samples.empty()) return std::vector<double>(samples.size());
    const torch::NoGradGuard no_gradients;
    std::vector<const Sample*> asked;
    for (const Sample& sample : samples) asked.push_back(&sample);
    const Plans plans = plans_of(asked);
    const torch::Tensor scores =
        network_->forward(plans.rows, plans.last).to(torch::kFloat64).contiguous();
    const auto* values = scores.data_ptr<double>();
    return {values, values + scores.numel()};
  }

 private:
  [[nodiscard]] const std::vector<std::vector<float>>& sequence(const Sample& sample) const {
    return sequences_[sample.cell][sample.point];
  }

  void standardise(const std::vector<Sample>& samples) {
    std::vector<float> all;
    for (const Sample& sample : samples) {
      for (const std::vector<float>& row : sequence(sample)) {
        all.insert(all.end(), row.begin(), row.end());
      }
    }
    const torch::Tensor rows = torch::from_blob(
        all.data(), {static_cast<std::int64_t>(all.size()) / kFeatures, kFeatures});
    mean_ = rows.mean(0);
    const torch::Tensor spread = rows.std(0, /*unbiased=*/false);
    scale_ = torch::where(spread > 1e-6, 1 / spread.clamp_min(1e-6), torch::zeros_like(spread));
  }

  [[nodiscard]] Plans plans_of(const std::vector<const Sample*>& samples) const {
    std::size_t longest = 1;
    for (const Sample* each : samples) longest = std::max(longest, sequence(*each).size());
    const auto count = static_cast<std::int64_t>(samples.size());
    Plans plans{torch::zeros({count, static_cast<std::int64_t>(longest), kFeatures}),
                torch::zeros({count}, torch::kInt64)};
    auto* const to = plans.rows.data_ptr<float>();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto& rows = sequence(*samples[i]);
      for (std::size_t row = 0; row < rows.size(); ++row) {
        std::memcpy(to + (i * longest + row) * kStepFeatures, rows[row].data(),
                    kStepFeatures * sizeof(float));
      }
      plans.last[static_cast<std::int64_t>(i)] =
          static_cast<std::int64_t>(std::max<std::size_t>(1, rows.size())) - 1;
    }
    plans.rows = (plans.rows - mean_) * scale_;
    return plans;
  }

  [[nodiscard]] std::vector<const Sample*> drawn(const std::vector<const Sample*>& all) const {
    if (static_cast<std::int64_t>(all.size()) <= options_.plans_at_once) return all;
    const torch::Tensor order = torch::randperm(static_cast<std::int64_t>(all.size()));
    std::vector<const Sample*> some;
    for (std::int64_t i = 0; i < options_.plans_at_once; ++i) {
      some.push_back(all[static_cast<std::size_t>(order[i].item<std::int64_t>())]);
    }
    return some;
  }

  // Pairwise logistic loss over the pairs of one cell.
  void fit_once(const std::vector<const Sample*>& samples, torch::optim::Adam& adam) {
    std::vector<float> measured;
    for (const Sample* each : samples) measured.push_back(static_cast<float>(each->measured));
    const torch::Tensor times =
        torch::from_blob(measured.data(), {static_cast<std::int64_t>(measured.size()), 1});
    const torch::Tensor is_slower = times > (1 + search::kAlike) * times.t();
    if (!is_slower.any().item<bool>()) return;
    adam.zero_grad();
    const Plans plans = plans_of(samples);
    const torch::Tensor scores = network_->forward(plans.rows, plans.last).unsqueeze(1);
    const torch::Tensor margins = (scores - scores.t()).masked_select(is_slower);
    torch::softplus(-margins).mean().backward();
    torch::nn::utils::clip_grad_norm_(network_->parameters(), 1.0);
    adam.step();
  }

  const Sequences& sequences_;
  const RankRnnOptions options_;
  Network network_;
  bool is_trained_ = false;
  torch::Tensor mean_;   // [kStepFeatures] of the plans that it was trained on
  torch::Tensor scale_;  // 1 / their spread
};

}  // namespace

search::Ranker rank_rnn(const Sequences& sequences, const RankRnnOptions& options) {
  return {"RankRNN", [&sequences, options](const std::vector<Sample>& training,
                                           const std::vector<Sample>& asked) {
            torch::manual_seed(options.seed);
            RankRnn ranker(sequences, options);
            ranker.fit(training);
            return ranker.scores(asked);
          }};
}

}  // namespace autodist::learned
