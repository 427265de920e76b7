#include "autodist/job/plan_trials.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/statistics.h"

namespace autodist::job {
namespace {

// Of intervals that hold the mean with 95 % and with 99 %.
constexpr PlanTrials::Quantiles k95{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                    2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                    2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064};
constexpr PlanTrials::Quantiles k99{63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355,
                                    3.250,  3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
                                    2.898,  2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797};

}  // namespace

PlanTrials::PlanTrials(std::vector<Seconds> predicted, std::size_t reference, const Limits& limits)
    : predicted_(std::move(predicted)),
      reference_(reference),
      limits_(limits),
      times_(predicted_.size()),
      left_(predicted_.size()) {
  AD_CHECK(reference < predicted_.size()) << reference << " of " << predicted_.size();
  std::iota(left_.begin(), left_.end(), std::size_t{0});
}

std::optional<std::size_t> PlanTrials::next(std::int64_t block_steps) const {
  if (passed_ > limits_.seconds) return std::nullopt;
  if (at_ > 0) return left_[at_];  // a round is ended
  if (left_.size() < 2 || rounds_ >= kMostRounds) return std::nullopt;
  const auto blocks = static_cast<std::int64_t>(left_.size());
  if (limits_.steps > 0 && steps_ + blocks * block_steps > limits_.steps) return std::nullopt;
  const Seconds round = rounds_ == 0 ? Seconds{} : passed_ * (1.0 / static_cast<double>(rounds_));
  if (passed_ + round > limits_.seconds) return std::nullopt;
  return left_[at_];
}

void PlanTrials::add(Seconds step, std::int64_t block_steps, Seconds since_the_first) {
  std::vector<std::optional<Seconds>>& times = times_[left_[at_]];
  times.resize(static_cast<std::size_t>(rounds_));
  times.emplace_back(step);
  steps_ += block_steps;
  passed_ = since_the_first;
  if (++at_ == left_.size()) end_round();
}

void PlanTrials::end_round() {
  at_ = 0;
  ++rounds_;
  if (rounds_ >= kLeastRounds) {
    const std::size_t fastest = *std::min_element(
        left_.begin(), left_.end(),
        [&](std::size_t a, std::size_t b) { return ratio(a, b, k99).value_or(Gain{}).mean > 1; });
    std::erase_if(left_, [&](std::size_t plan) {
      const auto against = ratio(plan, fastest, k99);
      return plan != fastest && against && against->high < 1;
    });
  }
  // Nobody is always behind the same one.
  std::rotate(left_.begin(), left_.begin() + 1, left_.end());
}

std::optional<PlanTrials::Gain> PlanTrials::ratio(std::size_t plan, std::size_t to,
                                                  const Quantiles& quantiles) const {
  std::vector<double> logarithms;
  const std::size_t rounds = std::min(times_[plan].size(), times_[to].size());
  for (std::size_t i = 0; i < rounds; ++i) {
    if (!times_[plan][i] || !times_[to][i]) continue;
    logarithms.push_back(std::log(times_[to][i]->value / times_[plan][i]->value));
  }
  if (logarithms.size() < 2) return std::nullopt;
  const auto count = static_cast<double>(logarithms.size());
  const double mean = std::accumulate(logarithms.begin(), logarithms.end(), 0.0) / count;
  double squares = 0;
  for (const double each : logarithms) squares += (each - mean) * (each - mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double half = quantiles[std::min(logarithms.size() - 1, quantiles.size()) - 1] * error;
  return Gain{std::exp(mean), std::exp(mean - half), std::exp(mean + half), error};
}

std::optional<PlanTrials::Gain> PlanTrials::gain(std::size_t plan) const {
  return ratio(plan, reference_, k95);
}

// The logarithm of a plan's gain over the reference, by what was predicted and what was measured.
double PlanTrials::expected_gain(std::size_t plan) const {
  if (plan == reference_) return 0;
  const double predicted = std::log(predicted_[reference_] / predicted_[plan]);
  const std::optional<Gain> measured = gain(plan);
  if (rounds_ < kLeastRounds || !measured) return predicted;
  const double trust = measured->error * measured->error;
  const double scatter = kPredictionScatter * kPredictionScatter;
  return (predicted * trust + std::log(measured->mean) * scatter) / (trust + scatter);
}

std::size_t PlanTrials::best() const {
  std::size_t best = 0;
  for (std::size_t plan = 1; plan < times_.size(); ++plan) {
    if (expected_gain(plan) > expected_gain(best)) best = plan;
  }
  return best;
}

Seconds PlanTrials::median(std::size_t plan) const {
  std::vector<Seconds> there;
  for (const std::optional<Seconds>& each : times_[plan]) {
    if (each) there.push_back(*each);
  }
  return there.empty() ? Seconds{} : median_of(std::move(there));
}

}  // namespace autodist::job
