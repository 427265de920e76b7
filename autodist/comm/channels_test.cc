#include "autodist/comm/channels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "autodist/base/clock.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/exchange.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

Frame message(std::uint16_t channel, std::uint64_t step) {
  Frame frame;
  frame.header.kind = FrameKind{19};
  frame.header.channel = channel;
  frame.header.step = step;
  return frame;
}

TEST(Channels, HandFramesToTheirChannelInOrder) {
  InProcessHub hub(2);
  const auto there = hub.connect(0);
  const auto here = hub.connect(1);
  Channels channels(*here, 2);
  there->send(1, message(1, 7));
  there->send(1, message(0, 8));
  there->send(1, message(1, 9));
  EXPECT_EQ(channels.at(0).receive(Seconds{1})->header.step, 8U);
  EXPECT_EQ(channels.at(1).receive(Seconds{1})->header.step, 7U);
  EXPECT_EQ(channels.at(1).receive(Seconds{1})->header.step, 9U);
  EXPECT_FALSE(channels.at(0).receive(Seconds{0.01}));
  EXPECT_EQ(channels.at(1).self(), 1U);
  EXPECT_EQ(channels.at(1).describe(0), here->describe(0));
}

TEST(Channels, GiveBackWhatBelongsToNone) {
  InProcessHub hub(2);
  const auto there = hub.connect(0);
  const auto here = hub.connect(1);
  {
    Channels channels(*here, 1);
    Frame control = message(0, 1);
    control.header.kind = FrameKind::kControl;
    there->send(1, control);
    there->send(1, message(1, 2));
    there->send(1, message(0, 3));
    EXPECT_EQ(channels.at(0).receive(Seconds{1})->header.step, 3U);
  }
  EXPECT_EQ(here->receive(Seconds{1})->header.step, 1U);
  EXPECT_EQ(here->receive(Seconds{1})->header.step, 2U);
}

TEST(Channels, GiveBackWhatWasLeftInThem) {
  InProcessHub hub(2);
  const auto there = hub.connect(0);
  const auto here = hub.connect(1);
  {
    Channels channels(*here, 2);
    there->send(1, message(1, 5));
    there->send(1, message(0, 6));
    there->send(1, message(0, 7));
    channels.at(0).give_back({*channels.at(0).receive(Seconds{1})});
    EXPECT_EQ(channels.at(1).receive(Seconds{1})->header.step, 5U);
    EXPECT_EQ(channels.at(0).receive(Seconds{1})->header.step, 6U);
    channels.at(0).give_back({message(0, 6)});
  }
  EXPECT_EQ(here->receive(Seconds{1})->header.step, 6U);
  EXPECT_EQ(here->receive(Seconds{1})->header.step, 7U);
  EXPECT_FALSE(here->receive(Seconds{0.01}));
}

// Two exchanges at each of two ranks, which post to each other all at once.
TEST(Channels, CarryExchangesSideBySide) {
  constexpr std::uint64_t kNotes = 50;
  InProcessHub hub(2);
  std::vector<std::atomic<std::uint64_t>> sums(4);
  std::vector<std::thread> ranks;
  for (RankNumber rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const SteadyClock clock;
      const auto transport = hub.connect(rank);
      Channels channels(*transport, 2);
      std::vector<std::unique_ptr<Exchange>> exchanges;
      for (std::uint16_t channel = 0; channel < 2; ++channel) {
        Handlers handlers;
        handlers.message = [&sum = sums[2 * rank + channel], channel](const Frame& frame) {
          EXPECT_EQ(frame.header.channel, channel);
          sum += frame.header.step * (channel + 1);
        };
        exchanges.push_back(
            std::make_unique<Exchange>(channels.at(channel), clock, ExchangeOptions{}, handlers));
      }
      for (std::uint64_t step = 0; step < kNotes; ++step) {
        for (auto& exchange : exchanges) {
          exchange->post(1 - rank, {FrameKind{19}, step, 0, 0, Seconds{}, {}});
        }
      }
      for (auto& exchange : exchanges) exchange->finish(Seconds{30});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i], (i % 2 + 1) * kNotes * (kNotes - 1) / 2) << i;
  }
}

}  // namespace
}  // namespace autodist::comm
