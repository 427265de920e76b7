#include "autodist/job/torch/counted_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace autodist::job {
namespace {

constexpr std::int64_t kBefore = 10;      // steps that are not looked at: caches, and verification
constexpr std::int64_t kForEstimate = 5;  // steps that say how long one takes
constexpr std::int64_t kWarmup = 1;       // of a block
constexpr std::int64_t kLeastBlock = 4;   // measured steps
constexpr std::int64_t kMostBlock = 40;
constexpr Seconds kBlock{0.25};  // as many steps as fit, within these bounds
constexpr double kShareOfRun = 0.03;
constexpr Seconds kLongest{20};
constexpr int kMostRefusals = 20;

}  // namespace

CountedTrials::CountedTrials(JoinedJob& job, Rivals rivals, std::int64_t step)
    : job_(job),
      rivals_(std::move(rivals)),
      due_(step + kBefore + kForEstimate),
      timed_from_(step + kBefore) {}

bool CountedTrials::is_due(std::int64_t step) {
  if (step == timed_from_) timed_since_ = job_.clock().now();
  return step == due_;
}

// How many plans fit into what trials may take; false where not even two do.
bool CountedTrials::make_trials() {
  const Seconds now = job_.clock().now();
  const Seconds step = (now - timed_since_) * (1.0 / kForEstimate);
  const double fit = std::ceil(kBlock / step);
  block_ = std::clamp(std::isfinite(fit) ? static_cast<std::int64_t>(fit) : kMostBlock, kLeastBlock,
                      kMostBlock);
  PlanTrials::Limits limits{0, kLongest};
  const std::int64_t run = job_.options().search.run_steps;
  if (run > 0) {
    limits.steps = static_cast<std::int64_t>(kShareOfRun * static_cast<double>(run - due_));
  }
  const auto fits = [&](std::size_t plans) {
    const auto steps =
        static_cast<std::int64_t>(plans) * PlanTrials::kLeastRounds * (block_ + kWarmup);
    return (run == 0 || steps <= limits.steps) && step * static_cast<double>(steps) <= kLongest;
  };
  while (block_ > kLeastBlock && !fits(2)) --block_;
  std::size_t plans = rivals_.plans.size();
  while (plans >= 2 && !fits(plans)) --plans;
  if (plans < 2) return false;
  rivals_.plans.resize(plans);
  std::vector<Seconds> predicted;
  for (const Rivals::Plan& each : rivals_.plans) predicted.push_back(each.predicted);
  trials_.emplace(std::move(predicted), rivals_.reference, limits);
  first_ = now;
  return true;
}

void CountedTrials::end_block() {
  if (std::exchange(measured_, true)) return;
  const Seconds now = job_.clock().now();
  trials_->add((now - timed_since_) * (1.0 / static_cast<double>(block_)), block_ + kWarmup,
               now - first_);
}

PlanSequence::Decision CountedTrials::decide() {
  if (!trials_) {
    if (!make_trials()) return {};
  } else {
    end_block();
  }
  const std::optional<std::size_t> next = trials_->next(block_ + kWarmup);
  decided_ = next.value_or(trials_->best());
  Decision decision;
  if (next) decision.steps = block_;
  if (decided_ != runs_) decision.strategy = rivals_.plans[decided_].strategy;
  decision.name = rivals_.plans[decided_].name;
  return decision;
}

bool CountedTrials::begin_block(std::int64_t step, std::int64_t steps) {
  runs_ = decided_;
  refusals_ = 0;
  measured_ = false;
  timed_from_ = step + kWarmup;
  due_ = timed_from_ + steps;
  return steps > 0;
}

bool CountedTrials::put_off(std::int64_t step, const Error& /*why*/) {
  due_ = step + 1;
  return ++refusals_ < kMostRefusals;
}

std::string CountedTrials::lines() const {
  if (!trials_ || trials_->rounds() == 0) return "";
  std::string text;
  for (std::size_t i = 0; i < rivals_.plans.size(); ++i) {
    const auto gain = trials_->gain(i);
    std::string against;
    if (i != rivals_.reference && gain) {
      against = fmt::format(", {:.3f} times as fast as {} ({:.3f} to {:.3f})", gain->mean,
                            rivals_.plans[rivals_.reference].name, gain->low, gain->high);
    }
    text += fmt::format("trial          {}, {}{}\n", to_string(trials_->median(i)),
                        rivals_.plans[i].name, against);
  }
  const bool few = trials_->rounds() < PlanTrials::kLeastRounds;
  bool is_fastest = true;
  for (std::size_t i = 0; i < rivals_.plans.size(); ++i) {
    is_fastest = is_fastest && trials_->median(runs_) <= trials_->median(i);
  }
  text +=
      fmt::format("taken          {}, after {} rounds of steps of the training{}\n",
                  rivals_.plans[runs_].name, trials_->rounds(),
                  few          ? "; too few to tell"
                  : is_fastest ? ""
                               : "; that another is faster is less sure than what is predicted");
  if (job_.options().search.any_trials) {
    text += fmt::format("not reproducible: chosen by the clock; with --plans {} the same again\n",
                        job_.options().write_plans);
  }
  return text;
}

}  // namespace autodist::job
