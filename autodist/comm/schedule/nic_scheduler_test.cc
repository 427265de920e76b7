#include "autodist/comm/schedule/nic_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "autodist/base/check.h"

namespace autodist::comm {
namespace {

constexpr Bytes kSlice{100};
constexpr Bytes kWide{1'000'000};

Transfer transfer(std::uint32_t id, double needed, std::uint64_t step = 0, Bytes size = kSlice) {
  return {TransferId{id}, size, step, Seconds{needed}};
}

TEST(NicScheduler, TheMostUrgentLeavesFirstWhicheverItsDestination) {
  NicScheduler nic(0, 3, kSlice, kSlice);
  nic.add(1, transfer(10, 5));
  nic.add(2, transfer(20, 1));
  const auto first = nic.next();
  EXPECT_EQ(first->to, 2u);
  EXPECT_EQ(first->transfer.id, TransferId{20});
  EXPECT_FALSE(nic.next()) << "the card's budget is spent";
  nic.acknowledge(2, kSlice);
  EXPECT_EQ(nic.next()->to, 1u);
}

TEST(NicScheduler, EqualDestinationsAreVisitedFromTheNextRankOnwards) {
  for (std::uint32_t self = 0; self < 4; ++self) {
    NicScheduler nic(self, 4, kWide, kWide);
    for (std::uint32_t to = 0; to < 4; ++to) {
      if (to != self) nic.add(to, transfer(to, 1));
    }
    for (std::uint32_t distance = 1; distance < 4; ++distance) {
      EXPECT_EQ(nic.next()->to, (self + distance) % 4) << "at rank " << self;
    }
  }
}

TEST(NicScheduler, ADestinationWithAFullWindowDoesNotHoldUpTheOthers) {
  NicScheduler nic(0, 3, kSlice, kWide);
  nic.add(1, transfer(1, 0));
  nic.add(1, transfer(2, 0));
  nic.add(2, transfer(3, 9));
  EXPECT_EQ(nic.next()->transfer.id, TransferId{1});
  EXPECT_EQ(nic.next()->transfer.id, TransferId{3});
  EXPECT_FALSE(nic.next());
  nic.acknowledge(1, kSlice);
  EXPECT_EQ(nic.next()->transfer.id, TransferId{2});
}

TEST(NicScheduler, ASliceLargerThanTheBudgetLeavesAnIdleCard) {
  NicScheduler nic(0, 2, Bytes{10}, Bytes{10});
  nic.add(1, transfer(1, 0));
  EXPECT_TRUE(nic.next());
}

TEST(NicScheduler, RefusesToSendToItself) {
  NicScheduler nic(1, 2, kSlice, kSlice);
  EXPECT_THROW(nic.add(1, transfer(1, 0)), InternalError);
}

// A model of the same contract in the plainest form: look at everything, take the best.
struct Model {
  struct Waiting {
    std::uint64_t step;
    double needed;
    std::uint32_t distance;
    std::uint32_t arrival;
    std::uint32_t to;
    Bytes size;
    auto order() const { return std::tie(step, needed, distance, arrival); }
    bool operator<(const Waiting& o) const { return order() < o.order(); }
  };
  std::set<Waiting> waiting;
  std::map<std::uint32_t, Bytes> in_flight;
  Bytes total{0};
  Bytes window;
  Bytes budget;

  // The first of each destination, if it fits its window; of these the first, if it fits the
  // budget.
  const Waiting* next() const {
    std::set<std::uint32_t> seen;
    for (const Waiting& w : waiting) {
      if (!seen.insert(w.to).second) continue;
      const auto found = in_flight.find(w.to);
      const Bytes used = found == in_flight.end() ? Bytes{0} : found->second;
      if (used != Bytes{0} && used + w.size > window) continue;
      return total == Bytes{0} || total + w.size <= budget ? &w : nullptr;
    }
    return nullptr;
  }
};

TEST(NicScheduler, AgreesWithThePlainModelOverRandomHistoriesAndLosesNothing) {
  std::mt19937 random(23);
  for (int history = 0; history < 200; ++history) {
    const std::uint32_t ranks = random() % 5 + 2;
    const std::uint32_t self = random() % ranks;
    Model model;
    model.window = Bytes{static_cast<std::int64_t>(random() % 4 + 1) * 60};
    model.budget = Bytes{static_cast<std::int64_t>(random() % 8 + 1) * 60};
    NicScheduler nic(self, ranks, model.window, model.budget);
    std::vector<std::pair<std::uint32_t, Bytes>> on_the_way;
    const auto acknowledge_one = [&] {
      const std::size_t pick = random() % on_the_way.size();
      const auto [from, size] = on_the_way[pick];
      on_the_way.erase(on_the_way.begin() + static_cast<std::ptrdiff_t>(pick));
      nic.acknowledge(from, size);
      model.in_flight[from] -= size;
      model.total -= size;
    };
    const auto send_one = [&] {
      const Model::Waiting* expected = model.next();
      const auto got = nic.next();
      ASSERT_EQ(got.has_value(), expected != nullptr);
      if (!got) return;
      EXPECT_EQ(got->transfer.id.value, expected->arrival);
      EXPECT_EQ(got->to, expected->to);
      on_the_way.emplace_back(got->to, got->transfer.size);
      model.in_flight[got->to] += got->transfer.size;
      model.total += got->transfer.size;
      model.waiting.erase(*expected);
    };
    for (std::uint32_t event = 0; event < 300; ++event) {
      if (random() % 2 == 0) {
        const std::uint32_t distance = random() % (ranks - 1) + 1;
        const std::uint32_t to = (self + distance) % ranks;
        const double needed = random() % 10;
        const std::uint64_t step = event / 100 + random() % 2;
        const Bytes size{static_cast<std::int64_t>(random() % 80)};
        nic.add(to, transfer(event, needed, step, size));
        model.waiting.insert({step, needed, distance, event, to, size});
      } else if (random() % 2 == 0 && !on_the_way.empty()) {
        acknowledge_one();
      } else {
        send_one();
      }
      ASSERT_EQ(nic.in_flight(), model.total);
    }
    // Whatever happened, acknowledgements alone empty the queues: nothing starves.
    while (!model.waiting.empty() || !on_the_way.empty()) {
      if (model.next() == nullptr) {
        ASSERT_FALSE(on_the_way.empty()) << "stuck with " << model.waiting.size() << " waiting";
        acknowledge_one();
      } else {
        send_one();
      }
    }
    EXPECT_FALSE(nic.next());
  }
}

}  // namespace
}  // namespace autodist::comm
