// A network that delays, reorders and doubles frames at random changes no bit of what is trained,
// however long it goes on, and no memory grows.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "autodist/base/clock.h"
#include "autodist/capture/bindings.h"
#include "autodist/comm/testing/in_process.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/testing/small_steps.h"

namespace autodist::exec {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr std::int64_t kGlobalBatch = 6;

// Of three slices one is late, by up to a millisecond, and another comes twice, so that neighbours
// overtake each other; nothing is lost.
class Disturbance {
 public:
  std::vector<Seconds> operator()(const comm::Frame& frame) {
    if (!comm::is_message(frame.header.kind)) return {Seconds{0}};
    const std::lock_guard lock(mutex_);
    const std::uint32_t fate = random_() % 3;
    const Seconds late{1e-3 * (random_() % 1000) / 1000.0};
    if (fate == 0) return {Seconds{0}};
    if (fate == 1) return {late};
    ++doubled_;
    return {Seconds{0}, late};
  }
  [[nodiscard]] std::uint64_t doubled() const { return doubled_; }

 private:
  std::mutex mutex_;
  std::mt19937 random_{7};
  std::atomic<std::uint64_t> doubled_{0};
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t whole = 0;
  std::size_t resident = 0;
  file >> whole >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

struct Outcome {
  std::vector<torch::Tensor> values;  // of rank 0
  std::uint64_t dropped = 0;          // copies, at rank 0
  std::size_t grown = 0;              // bytes between a fifth of the steps and their end
};

Outcome train(std::int64_t steps, comm::InProcessHub& hub) {
  const auto graph = testing::two_layers(ir::default_rule(ir::Rule::kAdam));
  testing::Plan plan;
  plan.ranks = kRanks;
  plan.owner = testing::spread_over(kRanks);
  const auto program = testing::program_of(graph, plan);
  Outcome outcome;
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const SteadyClock clock;
      const auto transport = hub.connect(rank);
      const auto values = testing::initial_values(*graph, 7);
      Runner runner(program, program::Rank(rank), capture::Bindings{values, {}, {}},
                    {transport.get(), nullptr, &clock}, {});
      std::size_t early = 0;
      for (std::int64_t step = 0; step < steps; ++step) {
        const Batch batch = testing::random_batch(kGlobalBatch, step % 64);
        runner.step(testing::rows_of(batch, rank, kRanks));
        if (step == steps / 5) early = resident_bytes();
      }
      runner.synchronize();
      if (rank == 0) {
        const std::size_t late = resident_bytes();
        outcome.grown = late > early ? late - early : 0;
        outcome.dropped = runner.counters().duplicates_dropped;
        outcome.values = values;
      }
      runner.finish();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcome;
}

void expect_undisturbed(std::int64_t steps) {
  comm::InProcessHub quiet(kRanks);
  const Outcome expected = train(steps, quiet);
  comm::InProcessHub hub(kRanks);
  const auto disturbance = std::make_shared<Disturbance>();
  hub.bend(
      [disturbance](comm::RankNumber, const comm::Frame& frame) { return (*disturbance)(frame); });
  const Outcome disturbed = train(steps, hub);
  EXPECT_GT(disturbance->doubled(), static_cast<std::uint64_t>(steps));
  EXPECT_GT(disturbed.dropped, 0U);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    EXPECT_TRUE(torch::equal(expected.values[i], disturbed.values[i])) << "variable " << i;
  }
  EXPECT_LT(disturbed.grown, std::size_t{4} << 20);
  std::cout << steps << " steps, " << disturbance->doubled() << " slices doubled, "
            << disturbed.grown / 1024 << " KiB grown\n";
}

TEST(Disturbance, ChangesNothingIn500Steps) { expect_undisturbed(500); }

TEST(SlowDisturbance, ChangesNothingIn10000Steps) { expect_undisturbed(10'000); }

}  // namespace
}  // namespace autodist::exec
