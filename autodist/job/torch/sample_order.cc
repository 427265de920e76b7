#include "autodist/job/torch/sample_order.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "autodist/base/check.h"

namespace autodist::job {

SampleOrder::SampleOrder(std::int64_t samples, std::int64_t batch, std::uint64_t seed, bool shuffle)
    : samples_(samples), batch_(std::min(batch, samples)), seed_(seed), shuffle_(shuffle) {
  AD_CHECK(samples >= 1 && batch >= 1) << samples << " samples in batches of " << batch;
}

std::vector<std::int64_t> SampleOrder::rows(std::int64_t step) {
  return rows(step, [](std::int64_t samples) { return std::pair(std::int64_t{0}, samples); });
}

std::vector<std::int64_t> SampleOrder::rows(std::int64_t step, const Part& part) {
  const std::int64_t epoch = step / steps_per_epoch();
  if (epoch != epoch_) start(epoch);
  const std::int64_t first = step % steps_per_epoch() * batch_;
  const std::int64_t size = std::min(batch_, samples_ - first);
  const auto [begin, end] = part(size);
  return {order_.begin() + first + begin, order_.begin() + first + end};
}

void SampleOrder::start(std::int64_t epoch) {
  epoch_ = epoch;
  order_.resize(static_cast<std::size_t>(samples_));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  if (!shuffle_) return;
  std::mt19937_64 random(seed_ * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(epoch));
  // Not std::shuffle: its use of the generator is the library's own.
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
}

}  // namespace autodist::job
