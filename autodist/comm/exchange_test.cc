#include "autodist/comm/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

constexpr Seconds kLimit{30};

// One rank: its transport, its exchange and what its handlers saw.
class Member {
 public:
  Member(InProcessHub& hub, RankNumber rank, const ExchangeOptions& options)
      : transport_(hub.connect(rank)) {
    const auto record = [this](const Frame& frame) {
      if (before_) before_(frame);
      const std::lock_guard lock(mutex_);
      frames_.push_back(frame);
    };
    exchange_.emplace(*transport_, clock_, options, Handlers{record});
  }

  Exchange& exchange() { return *exchange_; }
  Transport& transport() { return *transport_; }
  void stop() { exchange_.reset(); }
  // Runs before a frame is recorded. REQUIRES: nothing has been sent to this rank yet.
  void before(std::function<void(const Frame&)> hook) { before_ = std::move(hook); }
  std::vector<Frame> frames() {
    const std::lock_guard lock(mutex_);
    return frames_;
  }

 private:
  SteadyClock clock_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::vector<Frame> frames_;
  std::function<void(const Frame&)> before_;
  std::optional<Exchange> exchange_;
};

ExchangeOptions quick(Seconds heartbeat = Seconds{0.05}) {
  ExchangeOptions options;
  options.name = [](FrameKind, MessageId id) { return "part " + std::to_string(id); };
  options.heartbeat = heartbeat;
  options.silence_limit = heartbeat * 3;
  options.first_contact = Seconds{5};
  return options;
}

Outgoing slice(std::uint64_t step, MessageId number, double needed, const std::string& bytes,
               FrameKind kind = FrameKind::kFirstMessage) {
  return {kind, step, number, 1, Seconds{needed}, Payload::copy_of(bytes)};
}

void finish_all(std::vector<std::unique_ptr<Member>>& members) {
  std::vector<std::future<void>> ends;
  for (auto& member : members) {
    ends.push_back(
        std::async(std::launch::async, [&member] { member->exchange().finish(kLimit); }));
  }
  for (auto& end : ends) end.get();
}

std::vector<std::unique_ptr<Member>> members_of(InProcessHub& hub, RankNumber size,
                                                const ExchangeOptions& options) {
  std::vector<std::unique_ptr<Member>> members;
  for (RankNumber rank = 0; rank < size; ++rank) {
    members.push_back(std::make_unique<Member>(hub, rank, options));
  }
  return members;
}

bool eventually(const std::function<bool()>& holds, Seconds limit = kLimit) {
  const SteadyClock clock;
  const Seconds until = clock.now() + limit;
  while (!holds()) {
    if (clock.now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string message_of(const std::exception_ptr& failure, ErrorCode code) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

using Key = std::tuple<FrameKind, std::uint64_t, MessageId, RankNumber>;

// Random traffic between `size` ranks over several steps; every payload must come exactly once,
// whatever the hub does to the frames.
void random_traffic_arrives_once(RankNumber size, InProcessHub& hub, unsigned seed,
                                 ExchangeOptions options = quick()) {
  options.window = Bytes{500};
  options.nic_budget = Bytes{1200};
  auto members = members_of(hub, size, options);
  std::mt19937 random(seed);
  std::vector<std::map<Key, std::string>> expected(size);
  constexpr std::array kKinds{FrameKind::kFirstMessage, FrameKind{17}, FrameKind{18},
                              FrameKind{19}};
  for (std::uint64_t step = 0; step < 20; ++step) {
    for (MessageId number = 0; number < 10; ++number) {
      const RankNumber from = random() % size;
      const RankNumber to = (from + random() % (size - 1) + 1) % size;
      const FrameKind kind = kKinds[random() % kKinds.size()];
      const std::string bytes(random() % 400, static_cast<char>('a' + number));
      if (!expected[to].emplace(Key{kind, step, number, from}, bytes).second) continue;
      members[from]->exchange().post(to, slice(step, number, random() % 9, bytes, kind));
    }
  }
  finish_all(members);
  for (RankNumber rank = 0; rank < size; ++rank) {
    std::map<Key, std::string> got;
    for (const Frame& frame : members[rank]->frames()) {
      const FrameHeader& h = frame.header;
      EXPECT_TRUE(got.emplace(Key{h.kind, h.step, h.id, h.from}, frame.payload.to_string()).second)
          << "slice " << h.id << " of step " << h.step << " came twice";
    }
    EXPECT_EQ(got, expected[rank]) << "at rank " << rank;
  }
}

TEST(Exchange, DeliversEverySliceOnce) {
  for (RankNumber size = 2; size <= 4; ++size) {
    InProcessHub hub(size);
    random_traffic_arrives_once(size, hub, size);
  }
}

TEST(Exchange, DeliversEverySliceOnceThroughANetworkThatDoublesAndDelays) {
  for (RankNumber size = 2; size <= 4; ++size) {
    InProcessHub hub(size);
    std::mutex mutex;
    std::mt19937 random(size);
    hub.bend([&](RankNumber, const Frame&) {
      const std::lock_guard lock(mutex);
      std::vector<Seconds> arrivals;
      const unsigned copies = random() % 3 == 0 ? 2 : 1;
      for (unsigned copy = 0; copy < copies; ++copy) {
        arrivals.push_back(Seconds{(random() % 10) * 1e-3});
      }
      return arrivals;
    });
    random_traffic_arrives_once(size, hub, size + 10);
  }
}

TEST(Exchange, SendsAgainWhatTheNetworkLoses) {
  InProcessHub hub(3);
  std::atomic<int> frames{0};
  hub.bend([&](RankNumber, const Frame& frame) {
    const bool may_vanish =
        is_message(frame.header.kind) || frame.header.kind == FrameKind::kAcknowledge;
    if (may_vanish && ++frames % 10 == 0) return std::vector<Seconds>{};
    return std::vector<Seconds>{Seconds{0}};
  });
  random_traffic_arrives_once(3, hub, 77);
  EXPECT_GT(frames, 100);
}

TEST(Exchange, WhatIsTooLargeForAFrameArrivesOnceInWhole) {
  InProcessHub hub(3);
  std::atomic<int> frames{0};
  std::atomic<int> pieces{0};
  hub.bend([&](RankNumber, const Frame& frame) {
    const bool may_vanish =
        is_message(frame.header.kind) || frame.header.kind == FrameKind::kAcknowledge;
    if (frame.header.pieces > 1) ++pieces;
    const int number = ++frames;
    if (may_vanish && number % 50 == 0) return std::vector<Seconds>{};
    return std::vector<Seconds>(number % 7 == 0 ? 2 : 1, Seconds{0});
  });
  ExchangeOptions options = quick();
  options.piece = Bytes{10};
  random_traffic_arrives_once(3, hub, 5, options);
  EXPECT_GT(pieces, 1000);
}

// Between two ranks nothing passes for a while, in one direction or in both.
void a_hole_changes_nothing(bool both_ways) {
  InProcessHub hub(2);
  std::atomic<bool> hole{false};
  hub.bend([&](RankNumber to, const Frame&) {
    const bool lost = hole && (both_ways || to == 0);
    return lost ? std::vector<Seconds>{} : std::vector<Seconds>{Seconds{0}};
  });
  ExchangeOptions options = quick();
  options.silence_limit = kLimit;
  std::mutex mutex;
  std::vector<std::string> lines;
  options.say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  const auto said = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find("rank 1 (in this process) is " + text) == 0;
    });
  };
  auto members = members_of(hub, 2, options);
  for (const RankNumber from : {0u, 1u}) {
    members[from]->exchange().post(1 - from, slice(0, 1, 0, "before"));
    ASSERT_TRUE(eventually([&] { return members[1 - from]->frames().size() == 1; }));
  }
  hole = true;
  for (const RankNumber from : {0u, 1u}) {
    members[from]->exchange().post(1 - from, slice(1, 1, 0, "meanwhile"));
  }
  ASSERT_TRUE(eventually([&] { return said("silent for "); }));
  EXPECT_FALSE(said("heard again"));
  hole = false;
  ASSERT_TRUE(eventually([&] { return said("heard again, after "); }));
  finish_all(members);
  for (const auto& member : members) {
    ASSERT_EQ(member->frames().size(), 2u);
    EXPECT_EQ(member->frames()[1].payload.to_string(), "meanwhile");
  }
}

TEST(Exchange, ASilenceThatEndsIsSaidAndChangesNothing) { a_hole_changes_nothing(true); }
TEST(Exchange, AHoleInOneDirectionIsSaidAndChangesNothing) { a_hole_changes_nothing(false); }

TEST(Exchange, WhatIsNeededFirstArrivesFirstUnderASmallWindow) {
  InProcessHub hub(2);
  ExchangeOptions options;
  options.window = Bytes{10};
  auto members = members_of(hub, 2, options);
  std::promise<void> all_posted;
  std::shared_future<void> gate = all_posted.get_future().share();
  members[1]->before([gate](const Frame&) { gate.wait(); });
  for (MessageId number = 0; number < 20; ++number) {
    members[0]->exchange().post(1, slice(0, number, 20.0 - number, "0123456789"));
  }
  all_posted.set_value();
  finish_all(members);
  const std::vector<Frame> frames = members[1]->frames();
  ASSERT_EQ(frames.size(), 20u);
  // The window lets the first go, and perhaps the one after it, before the rest is posted.
  for (std::size_t i = 3; i < frames.size(); ++i) {
    EXPECT_LT(frames[i].header.id, frames[i - 1].header.id);
  }
}

TEST(Exchange, CountsPayloadAndDropsCopies) {
  InProcessHub hub(2);
  hub.bend([](RankNumber, const Frame& frame) {
    const bool twice = frame.header.kind == FrameKind::kFirstMessage;
    return std::vector<Seconds>(twice ? 2 : 1, Seconds{0});
  });
  auto members = members_of(hub, 2, quick());
  members[0]->exchange().post(1, slice(0, 1, 0, "abc"));
  finish_all(members);
  EXPECT_EQ(members[0]->exchange().counters().payload_bytes_sent, 3u);
  EXPECT_EQ(members[1]->exchange().counters().payload_bytes_received, 3u);
  EXPECT_EQ(members[1]->exchange().counters().duplicates_dropped, 1u);
}

TEST(Exchange, NamesALostPeerAndWhatWasLastHeardOfItWithinThreeHeartbeats) {
  InProcessHub hub(3);
  auto members = members_of(hub, 3, quick(Seconds{0.1}));
  std::promise<void> woken;
  members[0]->exchange().on_failure([&] { woken.set_value(); });
  // To both, because whoever notices first tells the other.
  for (const RankNumber to : {0u, 1u}) {
    members[2]->exchange().post(to, slice(4, 17, 0, "last words"));
    ASSERT_TRUE(eventually([&] { return members[to]->frames().size() == 1; }));
  }
  // Everybody has been heard by everybody before the accident.
  std::this_thread::sleep_for(std::chrono::milliseconds(150));

  const SteadyClock clock;
  const Seconds killed = clock.now();
  hub.kill(2);
  ASSERT_EQ(woken.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_LT((clock.now() - killed).value, 1.0);
  const std::string message = message_of(members[0]->exchange().failure(), ErrorCode::kPeersLost);
  EXPECT_NE(message.find("rank 2 (in this process) is lost: silent for "), std::string::npos)
      << message;
  EXPECT_NE(message.find("part 17, step 4"), std::string::npos) << message;
  EXPECT_TRUE(eventually([&] { return members[1]->exchange().failure() != nullptr; }));
  EXPECT_THROW(members[0]->exchange().finish(kLimit), Error);
}

// Its connections may be there still, in a process that it has forked.
TEST(Exchange, APeerThatIsKnownToBeKilledIsLostAtOnce) {
  InProcessHub hub(2);
  std::atomic<bool> killed{false};
  ExchangeOptions options = quick(Seconds{10});
  options.killed = [&]() -> std::optional<RankNumber> {
    return killed ? std::optional<RankNumber>(1) : std::nullopt;
  };
  Member chief(hub, 0, options);
  Member other(hub, 1, quick(Seconds{10}));
  killed = true;
  ASSERT_TRUE(eventually([&] { return chief.exchange().failure() != nullptr; }));
  const std::string message = message_of(chief.exchange().failure(), ErrorCode::kPeersLost);
  EXPECT_NE(message.find("rank 1 (in this process) is lost: its process has ended"),
            std::string::npos)
      << message;
}

TEST(Exchange, ALongHandlerNeitherSilencesThisRankNorMakesItMistakeItsPeersForDead) {
  InProcessHub hub(2);
  auto members = members_of(hub, 2, quick());
  members[1]->before([](const Frame&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // four times the silence allowed
  });
  members[0]->exchange().post(1, slice(0, 1, 0, "a"));
  members[0]->exchange().post(1, slice(0, 2, 0, "b"));
  finish_all(members);
  EXPECT_EQ(members[1]->frames().size(), 2u);
}

TEST(Exchange, APeerThatLeavesWithAReasonEndsTheOthersAtOnceWithThatReason) {
  InProcessHub hub(3);
  auto members = members_of(hub, 3, ExchangeOptions{});
  members[1]->exchange().abort("the loss is not finite at step 3");
  for (const RankNumber rank : {0u, 2u}) {
    ASSERT_TRUE(eventually([&] { return members[rank]->exchange().failure() != nullptr; }));
    const std::string message =
        message_of(members[rank]->exchange().failure(), ErrorCode::kPeersLost);
    EXPECT_NE(message.find("the loss is not finite at step 3"), std::string::npos) << message;
  }
}

TEST(Exchange, AHandlerThatThrowsEndsBothSidesWithItsReason) {
  InProcessHub hub(2);
  auto members = members_of(hub, 2, ExchangeOptions{});
  members[1]->before([](const Frame&) { fail(ErrorCode::kInfeasible, "no room for the sum"); });
  members[0]->exchange().post(1, slice(0, 1, 0, "a"));
  ASSERT_TRUE(eventually([&] { return members[1]->exchange().failure() != nullptr; }));
  EXPECT_EQ(message_of(members[1]->exchange().failure(), ErrorCode::kInfeasible),
            "no room for the sum");
  ASSERT_TRUE(eventually([&] { return members[0]->exchange().failure() != nullptr; }));
  EXPECT_EQ(message_of(members[0]->exchange().failure(), ErrorCode::kPeersLost),
            "rank 1 (in this process) left: no room for the sum");
}

TEST(Exchange, ARankThatVanishesWithoutGoodbyeTellsItsPeersOnTheWayOut) {
  InProcessHub hub(2);
  auto members = members_of(hub, 2, ExchangeOptions{});
  members[1]->stop();
  ASSERT_TRUE(eventually([&] { return members[0]->exchange().failure() != nullptr; }));
}

TEST(Exchange, FinishNamesWhoDoesNotAnswer) {
  InProcessHub hub(2);
  auto members = members_of(hub, 2, ExchangeOptions{});
  try {
    members[0]->exchange().finish(Seconds{0.1});
    FAIL() << "rank 1 never says goodbye";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("the goodbye of rank 1"), std::string::npos)
        << error.what();
  }
}

TEST(Exchange, RefusesFramesOfAnEarlierGeneration) {
  InProcessHub hub(2);
  ExchangeOptions options = quick();
  options.generation = 3;
  Member member(hub, 0, options);
  const auto stranger = hub.connect(1);
  stranger->send(0, {{FrameKind::kFirstMessage, 2, 0, 1, 1, 1}, Payload::copy_of("old")});
  EXPECT_TRUE(eventually([&] { return member.exchange().counters().frames_refused == 1; }));
  EXPECT_TRUE(member.frames().empty());
}

// A rank that has gone on to the next generation is heard, but what it says there is for later.
TEST(Exchange, AHeartbeatOfAnotherGenerationIsASignOfLifeAndNoPosition) {
  InProcessHub hub(2);
  Member member(hub, 0, quick());
  const auto peer = hub.connect(1);
  FrameHeader beat;
  beat.kind = FrameKind::kHeartbeat;
  beat.generation = 1;
  beat.step = 5;
  peer->send(0, {beat, {}});
  EXPECT_TRUE(eventually([&] { return member.exchange().position_of(1).has_value(); }));
  beat.generation = 2;
  beat.step = 6;
  peer->send(0, {beat, {}});
  beat.kind = FrameKind::kAlive;
  beat.generation = 0;
  beat.step = 7;
  peer->send(0, {beat, {}});
  FrameHeader goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  goodbye.generation = 1;
  peer->send(0, {goodbye, {}});
  member.exchange().finish(kLimit);
  EXPECT_EQ(member.exchange().position_of(1)->step, 5U);
  EXPECT_EQ(member.exchange().counters().frames_refused, 0U);
}

TEST(Exchange, LeavesWhatIsMeantForALaterReaderInTheTransportInOrder) {
  InProcessHub hub(2);
  Member member(hub, 0, ExchangeOptions{});
  const auto peer = hub.connect(1);
  peer->send(0, {{FrameKind::kControl, 0, 1, 0, 1, 0}, Payload::copy_of("first")});
  peer->send(0, {{FrameKind::kFirstMessage, 2, 0, 1, 1, 1}, Payload::copy_of("second")});
  peer->send(0, {{FrameKind::kGoodbye, 1, 0, 0, 1, 0}, {}});
  member.exchange().finish(kLimit);
  member.stop();
  EXPECT_EQ(member.transport().receive(Seconds{1})->payload.to_string(), "first");
  EXPECT_EQ(member.transport().receive(Seconds{1})->payload.to_string(), "second");
}

TEST(Exchange, PostingToOneselfIsADefect) {
  InProcessHub hub(2);
  Member member(hub, 0, ExchangeOptions{});
  EXPECT_THROW(member.exchange().post(0, slice(0, 1, 0, "a")), InternalError);
}

TEST(Exchange, ARankAloneFinishesAtOnce) {
  InProcessHub hub(1);
  Member member(hub, 0, ExchangeOptions{});
  member.exchange().finish(kLimit);
  EXPECT_FALSE(member.exchange().failure());
}

// A clock that is off by so much.
class ShiftedClock final : public Clock {
 public:
  explicit ShiftedClock(Seconds by) : by_(by) {}
  [[nodiscard]] Seconds now() const override { return clock_.now() + by_; }

 private:
  SteadyClock clock_;
  Seconds by_;
};

TEST(Exchange, AcknowledgementsShowThePeersClockAndTheSlicesWay) {
  InProcessHub hub(2);
  const SteadyClock here;
  const ShiftedClock there(Seconds{1000});
  const auto transport = hub.connect(0);
  const auto peers = hub.connect(1);
  std::mutex mutex;
  std::vector<DeliveredMessage> deliveries;
  Handlers handlers;
  handlers.delivered = [&](const DeliveredMessage& delivery) {
    const std::lock_guard lock(mutex);
    deliveries.push_back(delivery);
  };
  Handlers takes;
  takes.message = [](const Frame&) {};
  Exchange exchange(*transport, here, quick(), std::move(handlers));
  Exchange peer(*peers, there, quick(), std::move(takes));
  EXPECT_FALSE(exchange.clock_of(1)) << "nothing was said";
  for (MessageId number = 0; number < 20; ++number) {
    exchange.post(1, slice(4, number, 0, "12345"));
  }
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return deliveries.size() == 20;
  }));
  const ClockDifference difference = exchange.clock_of(1).value();
  EXPECT_NEAR(difference.ahead.value, 1000, difference.round_trip.value);
  EXPECT_LT(difference.round_trip, Seconds{0.5});
  for (const DeliveredMessage& each : deliveries) {
    EXPECT_EQ(each.step, 4u);
    EXPECT_EQ(each.to, 1u);
    EXPECT_EQ(each.bytes, 5u);
    EXPECT_LE(each.posted, each.left);
    EXPECT_LE(each.left, each.acknowledged);
  }
  auto end = std::async(std::launch::async, [&] { peer.finish(kLimit); });
  exchange.finish(kLimit);
  end.get();
}

}  // namespace
}  // namespace autodist::comm
