#include "autodist/job/same_batch.h"

#include <fmt/format.h>

namespace autodist::job {
namespace {

constexpr std::size_t kNumbers = 3;

// So few bits that every sum, and a product of two, is exact.
constexpr std::uint64_t kMask = 0xFFFF;

}  // namespace

// How many, and their first two moments: digests are all alike exactly if they have no variance.
std::vector<double> batch_numbers(std::uint64_t digest) {
  const auto low = static_cast<double>(digest & kMask);
  return {1, low, low * low};
}

std::string other_batch_line(std::int64_t step, const std::vector<double>& sums) {
  if (sums.size() < kNumbers) return "";
  const double* const numbers = sums.data() + sums.size() - kNumbers;
  const auto count = static_cast<std::uint64_t>(numbers[0]);
  const auto sum = static_cast<std::uint64_t>(numbers[1]);
  const auto squares = static_cast<std::uint64_t>(numbers[2]);
  if (count * squares == sum * sum) return "";
  return fmt::format(
      "step {}: the ranks have given it different batches. A step takes the whole batch, the same "
      "at every rank, and each trains on rows of it: shuffle with one seed and without a "
      "DistributedSampler, or give rows of each rank's own with run_local().",
      step);
}

}  // namespace autodist::job
