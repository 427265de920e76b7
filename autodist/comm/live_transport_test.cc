#include "autodist/comm/live_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/channels.h"
#include "autodist/comm/exchange.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

using namespace std::chrono_literals;

constexpr Seconds kBeat{0.02};
constexpr Seconds kLimit{0.3};

// A rank that computes for far longer than the others' limit before it comes.
TEST(LiveTransport, ARankThatIsAliveIsWaitedForBeyondTheLimit) {
  InProcessHub hub(3);
  std::vector<std::future<std::vector<std::string>>> ranks;
  for (RankNumber rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&hub, rank] {
      LiveTransport transport(hub.connect(rank), kBeat);
      if (rank == 0) std::this_thread::sleep_for(1s);
      auto all = all_gather(transport, std::to_string(rank), "ranks", kLimit);
      if (rank == 2) std::this_thread::sleep_for(1s);
      broadcast(transport, 2, "late", "word", kLimit);
      return all;
    }));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), (std::vector<std::string>{"0", "1", "2"}));
}

TEST(LiveTransport, WhoIsSilentIsNamedAmongThoseWhoAreAlive) {
  InProcessHub hub(3);
  LiveTransport busy(hub.connect(1), kBeat);
  LiveTransport chief(hub.connect(0), kBeat);
  try {
    all_gather(chief, "", "plan", kLimit);
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(message.find("plan: nothing from rank 2 (in this process) for"), std::string::npos)
        << message;
    EXPECT_NE(message.find("--join-timeout"), std::string::npos) << message;
  }
}

// What a rank finds out while it waits (a child that died, a signal) ends the wait.
TEST(LiveTransport, WhoWaitsLooksAround) {
  InProcessHub hub(2);
  LiveTransport other(hub.connect(1), kBeat);
  LiveTransport chief(hub.connect(0), kBeat, [](const Wait& wait) {
    EXPECT_EQ(wait.what, "plan");
    EXPECT_EQ(wait.whom, std::vector<RankNumber>{1});
    if (wait.since > Seconds{0.05}) throw std::runtime_error("enough");
  });
  EXPECT_THROW(all_gather(chief, "", "plan", Seconds{20}), std::runtime_error);
}

// Ranks do not come to their first step at the same moment.
TEST(LiveTransport, APeerThatHasNotBegunItsExchangeIsNoLostOne) {
  for (const bool channels : {false, true}) {
    InProcessHub hub(2);
    LiveTransport late(hub.connect(1), kBeat);
    LiveTransport early(hub.connect(0), kBeat);
    ExchangeOptions options;
    options.first_contact = kLimit;
    const SteadyClock clock;
    std::unique_ptr<Channels> shared;
    if (channels) shared = std::make_unique<Channels>(early, 2);
    Exchange exchange(channels ? shared->at(1) : early, clock, options, {});
    std::this_thread::sleep_for(1s);
    EXPECT_EQ(exchange.failure(), nullptr);
  }
}

}  // namespace
}  // namespace autodist::comm
