// Stale-synchronous training: how far ranks may be apart, what is summed all the same, and that a
// bound of 0 is the synchronous training. Ranks as threads; nothing here depends on how long
// anything takes, except that 0.2 s are time enough to run ahead if nothing holds a rank back.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/threaded_job.h"

namespace autodist {
namespace {

using namespace testing_jobs;

// Which step a rank has begun, for others to wait for.
class Progress {
 public:
  void begin(int step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    step_ = step;
    changed_.notify_all();
  }
  // Whether the rank begins `step` in time, and then no later one.
  bool stops_at(int step) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return step_ >= step; })) {
      return false;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(200), [&] { return step_ > step; });
    return step_ == step;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int step_ = -1;
};

// Rank 0 runs; rank 1 begins those steps that `pauses` names only when rank 0 has come as far as
// the bound lets it: it has begun step (rank 1's + staleness + 1) and waits at its first gate.
void expect_lead(const std::string& builder, int staleness, const std::vector<int>& pauses) {
  const std::string model = "digits";
  std::vector<TrainingStep> steps;
  for (int rank = 0; rank < 2; ++rank) steps.push_back(make_step(model, kBatch / 2));
  Progress fast;
  run_job(steps, builder, optimizer_of(model), kSteps, [&](int step, std::uint32_t rank) {
    if (rank == 0) fast.begin(step);
    const bool pause = std::find(pauses.begin(), pauses.end(), step) != pauses.end();
    if (rank == 1 && pause) {
      EXPECT_TRUE(fast.stops_at(step + staleness + 1)) << "rank 1 at step " << step;
    }
    return rows_of(batch_at(model, step), rank, 2);
  });
}

TEST(Staleness, TheLeadReachesTheBoundAndNeverPassesIt) {
  for (const int staleness : {0, 1, 2, 5}) {
    std::vector<int> all;  // as long as rank 0 has a step that it could begin too early
    for (int step = 0; step + staleness + 2 < kSteps; ++step) all.push_back(step);
    expect_lead("PartitionedPS:staleness=" + std::to_string(staleness), staleness, all);
  }
}

// AutoDist's case c9: a worker pauses every third step, staleness 3. The other starts the steps 0
// to 6 without waiting, and waits at the gate of step 7.
TEST(Staleness, CaseC9) { expect_lead("PS:staleness=3", 3, {3}); }

// Nothing ties asynchronous ranks together: one makes all its steps while the other waits in its
// second.
TEST(Asynchronous, AFastRankGoesAtItsOwnRate) {
  const std::string model = "digits";
  std::vector<TrainingStep> steps;
  for (int rank = 0; rank < 2; ++rank) steps.push_back(make_step(model, kBatch / 2));
  Progress fast;
  run_job(steps, "PartitionedPS:sync=false", optimizer_of(model), kSteps,
          [&](int step, std::uint32_t rank) {
            if (rank == 0) fast.begin(step);
            if (rank == 1 && step == 1) {
              EXPECT_TRUE(fast.stops_at(kSteps - 1));
            }
            return rows_of(batch_at(model, step), rank, 2);
          });
}

// A loss whose gradient does not depend on the parameters.
TrainingStep linear() {
  const auto options = torch::dtype(torch::kFloat64);
  torch::Tensor w = torch::linspace(-1, 1, 24, options).view({8, 3}).set_requires_grad(true);
  torch::Tensor b = torch::zeros({3}, options).set_requires_grad(true);
  TrainingStep step;
  step.name = "linear";
  step.parameters = {{"w", w}, {"b", b}};
  step.loss = [w, b](const Batch& batch) { return (batch[0].matmul(w) + b).sum(1).mean(); };
  step.example = {torch::ones({4, 8}, options)};
  return step;
}

torch::Tensor linear_batch(int step) {
  return torch::arange(7 * 8, torch::kFloat64).view({7, 8}).mul(0.1).add(step).sin();
}

// Whatever versions the ranks read, the owner must have summed every contribution of every step,
// once.
TEST(Staleness, NoContributionIsLostOrCountedTwice) {
  constexpr int kLong = 40;
  for (const std::uint32_t ranks : {2u, 3u}) {
    std::vector<TrainingStep> steps;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) steps.push_back(linear());
    const Parameters ours =
        run_job(steps, "UnevenPartitionedPS:staleness=3", "sgd:lr=0.1,momentum=0.9", kLong,
                [&](int step, std::uint32_t rank) {
                  // Slow in turn.
                  if (step % 4 == static_cast<int>(rank)) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  }
                  return rows_of({linear_batch(step)}, rank, ranks);
                });
    torch::Tensor w = linear().parameters[0].tensor.detach().clone();
    torch::Tensor velocity = torch::zeros_like(w);
    for (int step = 0; step < kLong; ++step) {
      velocity = 0.9 * velocity + linear_batch(step).mean(0).unsqueeze(1).expand({8, 3});
      w -= 0.1 * velocity;
    }
    EXPECT_TRUE(torch::allclose(ours[0], w, 1e-12, 1e-12)) << ranks << " ranks";
  }
}

// Each contribution moves the parameters by itself, in whatever order, and is counted once; after
// the last all ranks have the owners' parameters.
TEST(Asynchronous, EveryContributionIsAppliedOnce) {
  constexpr int kLong = 40;
  for (const std::uint32_t ranks : {2u, 3u}) {
    std::vector<TrainingStep> steps;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) steps.push_back(linear());
    const Parameters ours = run_job(steps, "UnevenPartitionedPS:sync=false", "sgd:lr=0.1", kLong,
                                    [&](int step, std::uint32_t rank) {
                                      if (step % 4 == static_cast<int>(rank)) {
                                        std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                      }
                                      return rows_of({linear_batch(step)}, rank, ranks);
                                    });
    torch::Tensor w = linear().parameters[0].tensor.detach().clone();
    for (int step = 0; step < kLong; ++step) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const torch::Tensor rows = rows_of({linear_batch(step)}, rank, ranks)[0];
        w -= 0.1 * rows.mean(0).unsqueeze(1).expand({8, 3});
      }
    }
    EXPECT_TRUE(torch::allclose(ours[0], w, 1e-12, 1e-12)) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace autodist
