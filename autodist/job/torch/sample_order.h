// In which order a job reads its samples, and which of them a replica reads.

#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace autodist::job {

// The samples of the whole job's batch at a step: every epoch is a new order, seeded by (seed,
// epoch), or the data's own; its last batch may be smaller. A function of the step, so that a
// resumed run reads on where it stopped.
class SampleOrder {
 public:
  // REQUIRES: samples >= 1, batch >= 1.
  SampleOrder(std::int64_t samples, std::int64_t batch, std::uint64_t seed, bool shuffle = true);

  std::vector<std::int64_t> rows(std::int64_t step);
  // The part [begin, end) of a step's rows that `part` says of so many.
  using Part = std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t samples)>;
  std::vector<std::int64_t> rows(std::int64_t step, const Part& part);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }

 private:
  void start(std::int64_t epoch);

  std::int64_t samples_;
  std::int64_t batch_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace autodist::job
