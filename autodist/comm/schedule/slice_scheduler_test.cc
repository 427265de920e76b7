#include "autodist/comm/schedule/slice_scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace autodist::comm {
namespace {

constexpr Bytes kSlice{100};

Transfer transfer(std::uint32_t id, double needed, std::uint64_t step = 0, Bytes size = kSlice) {
  return {TransferId{id}, size, step, Seconds{needed}};
}

std::vector<std::uint32_t> drain(SliceScheduler& scheduler) {
  std::vector<std::uint32_t> order;
  while (auto next = scheduler.next()) {
    order.push_back(next->id.value);
    scheduler.acknowledge(next->size);
  }
  return order;
}

TEST(SliceScheduler, WhatIsNeededFirstLeavesFirst) {
  SliceScheduler scheduler(kSlice);
  scheduler.add(transfer(1, 3));
  scheduler.add(transfer(2, 1));
  scheduler.add(transfer(3, 2));
  EXPECT_EQ(drain(scheduler), (std::vector<std::uint32_t>{2, 3, 1}));
}

TEST(SliceScheduler, AnEarlierStepLeavesBeforeALaterOneHoweverUrgent) {
  SliceScheduler scheduler(kSlice);
  scheduler.add(transfer(1, 0, 8));
  scheduler.add(transfer(2, 9, 7));
  EXPECT_EQ(drain(scheduler), (std::vector<std::uint32_t>{2, 1}));
}

TEST(SliceScheduler, EqualNeedsKeepTheirOrderOfArrival) {
  SliceScheduler scheduler(kSlice);
  for (const std::uint32_t id : {7, 3, 9, 1}) scheduler.add(transfer(id, 1));
  EXPECT_EQ(drain(scheduler), (std::vector<std::uint32_t>{7, 3, 9, 1}));
}

TEST(SliceScheduler, AnUrgentSliceOvertakesAllThatIsNotYetInTheWindow) {
  SliceScheduler scheduler(kSlice);
  scheduler.add(transfer(1, 5));
  scheduler.add(transfer(2, 6));
  EXPECT_EQ(scheduler.next()->id, TransferId{1});
  EXPECT_FALSE(scheduler.next()) << "the window is full";
  scheduler.add(transfer(3, 0));
  scheduler.acknowledge(kSlice);
  EXPECT_EQ(scheduler.next()->id, TransferId{3});
}

TEST(SliceScheduler, ASliceLargerThanTheWindowStillLeavesAnIdleLink) {
  SliceScheduler scheduler(Bytes{10});
  scheduler.add(transfer(1, 0));
  EXPECT_EQ(scheduler.next()->id, TransferId{1});
}

TEST(SliceScheduler, ASmallSliceDoesNotSlipPastALargeOneThatIsMoreUrgent) {
  SliceScheduler scheduler(kSlice);
  scheduler.add(transfer(1, 0, 0, Bytes{60}));
  scheduler.add(transfer(2, 1, 0, Bytes{60}));
  scheduler.add(transfer(3, 2, 0, Bytes{10}));
  EXPECT_EQ(scheduler.next()->id, TransferId{1});
  EXPECT_FALSE(scheduler.next());
}

// Over random histories: no byte is lost, the window holds, and what leaves is what is needed
// first of all that waits, and came first among equals.
TEST(SliceScheduler, KeepsItsLawsOverRandomHistories) {
  std::mt19937 random(17);
  for (int history = 0; history < 200; ++history) {
    const Bytes window{static_cast<std::int64_t>(random() % 4 + 1) * 100};
    SliceScheduler scheduler(window);
    std::set<std::tuple<std::uint64_t, double, std::uint32_t>> waiting;  // id by arrival
    std::vector<Bytes> on_the_way;
    Bytes in_flight{0};
    for (std::uint32_t event = 0; event < 500; ++event) {
      if (random() % 2 == 0) {
        const double needed = random() % (history % 2 == 0 ? 20 : 3);
        const std::uint64_t step = event / 100 + random() % 2;
        const Bytes size{static_cast<std::int64_t>(random() % 100 + 1)};
        scheduler.add(transfer(event, needed, step, size));
        waiting.insert({step, needed, event});
      } else if (auto next = scheduler.next()) {
        EXPECT_EQ(std::tuple(next->step, next->needed.value, next->id.value), *waiting.begin());
        waiting.erase(waiting.begin());
        on_the_way.push_back(next->size);
        in_flight += next->size;
        EXPECT_LE(in_flight.value, window.value);
      } else if (!on_the_way.empty()) {
        scheduler.acknowledge(on_the_way.back());
        in_flight -= on_the_way.back();
        on_the_way.pop_back();
      }
      EXPECT_EQ(scheduler.in_flight(), in_flight);
    }
  }
}

}  // namespace
}  // namespace autodist::comm
