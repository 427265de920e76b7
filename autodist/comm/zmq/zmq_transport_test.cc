#include "autodist/comm/zmq/zmq_transport.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <zmq.hpp>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/exchange.h"
#include "autodist/comm/wire.h"

namespace autodist::comm {
namespace {

const std::string kLoopback = "127.0.0.1";
constexpr Seconds kLimit{20};

// The transports of a job of `size` ranks, all in this process.
std::vector<std::unique_ptr<ZmqTransport>> job_of(RankNumber size) {
  std::vector<ZmqListener> listeners;
  std::vector<Member> members;
  for (RankNumber rank = 0; rank < size; ++rank) {
    listeners.emplace_back(kLoopback);
    members.push_back({kLoopback, listeners.back().port(), "here", 100 + rank});
  }
  std::vector<std::unique_ptr<ZmqTransport>> transports;
  for (RankNumber rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<ZmqTransport>(std::move(listeners[rank]), rank, members));
  }
  return transports;
}

Frame contribution(MessageId slice, const std::string& bytes) {
  return {{FrameKind::kFirstMessage, 1, 4, slice, 0, 8}, Payload::copy_of(bytes)};
}

TEST(ZmqTransport, CarriesHeaderAndPayload) {
  auto job = job_of(2);
  job[1]->send(0, contribution(7, "gradient"));
  const auto frame = job[0]->receive(kLimit);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->header, (FrameHeader{FrameKind::kFirstMessage, 1, 4, 7, 1, 8}));
  EXPECT_EQ(frame->payload.to_string(), "gradient");
  EXPECT_EQ(job[0]->describe(1), "rank 1 (127.0.0.1, here, pid 101)");
}

// Two ranks of this process, which is a machine of its own.
std::vector<std::unique_ptr<ZmqTransport>> neighbours(const std::string& second_host = "here") {
  std::vector<ZmqListener> listeners;
  std::vector<std::unique_ptr<SharedBlocks>> blocks;
  std::vector<Member> members;
  for (RankNumber rank = 0; rank < 2; ++rank) {
    listeners.emplace_back(kLoopback);
    blocks.push_back(SharedBlocks::make(1 << 20));
    members.push_back({kLoopback, listeners.back().port(), rank == 0 ? "here" : second_host,
                       getpid(), blocks.back()->name()});
  }
  std::vector<std::unique_ptr<ZmqTransport>> job;
  for (RankNumber rank = 0; rank < 2; ++rank) {
    job.push_back(std::make_unique<ZmqTransport>(std::move(listeners[rank]), rank, members,
                                                 std::move(blocks[rank])));
  }
  return job;
}

TEST(ZmqTransport, SharesLargePayloadsWithItsNeighbours) {
  auto job = neighbours();
  const std::string large(300'000, 'l');
  // More than the memory holds at once: the rest goes over the socket, in order all the same.
  for (MessageId slice = 0; slice < 10; ++slice) job[1]->send(0, contribution(slice, large));
  job[1]->send(0, contribution(10, "small"));
  EXPECT_EQ(job[1]->shared_frames(), 3);
  for (MessageId slice = 0; slice < 10; ++slice) {
    const auto frame = job[0]->receive(kLimit);
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->header.id, slice);
    EXPECT_EQ(frame->payload.to_string(), large);
  }
  EXPECT_EQ(job[0]->receive(kLimit)->payload.to_string(), "small");
  job[1]->send(0, contribution(11, large));
  EXPECT_EQ(job[1]->shared_frames(), 4) << "the receiver has let go of the first ones";
  EXPECT_EQ(job[0]->receive(kLimit)->payload.to_string(), large);
  EXPECT_EQ(job[0]->refusals().count, 0);
}

TEST(ZmqTransport, SharesNothingWithOtherMachines) {
  auto job = neighbours("there");
  job[1]->send(0, contribution(0, std::string(300'000, 'l')));
  EXPECT_EQ(job[1]->shared_frames(), 0);
  EXPECT_EQ(job[0]->receive(kLimit)->payload.size, 300'000);
}

TEST(ZmqTransport, AnExchangeCarriesWhatIsLargerThanAFrame) {
  auto job = job_of(2);
  const SteadyClock clock;
  std::string large(kLargestPayload + 12'345, '\0');
  for (std::size_t i = 0; i < large.size(); i += 4001) large[i] = static_cast<char>(i);
  std::promise<std::string> came;
  Handlers handlers;
  handlers.message = [&](const Frame& frame) { came.set_value(frame.payload.to_string()); };
  Exchange sender(*job[0], clock, {}, {});
  Exchange receiver(*job[1], clock, {}, std::move(handlers));
  sender.post(1, {FrameKind{19}, 3, 7, 0, Seconds{}, Payload::copy_of(large)});
  auto result = came.get_future();
  ASSERT_EQ(result.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_TRUE(result.get() == large);
  auto end = std::async(std::launch::async, [&] { receiver.finish(kLimit); });
  sender.finish(kLimit);
  end.get();
}

TEST(ZmqTransport, KeepsTheOrderOfAPairBeyondItsHighWaterMark) {
  auto job = job_of(2);
  constexpr MessageId kFrames = 5000;  // more than libzmq queues
  auto receiver = std::async(std::launch::async, [&] {
    for (MessageId slice = 0; slice < kFrames; ++slice) {
      const auto frame = job[0]->receive(kLimit);
      if (!frame || frame->header.id != slice) return slice;
    }
    return kFrames;
  });
  for (MessageId slice = 0; slice < kFrames; ++slice) {
    job[1]->send(0, contribution(slice, std::string(2000, 'x')));
  }
  job[1]->close(kLimit);
  EXPECT_EQ(receiver.get(), kFrames);
}

TEST(ZmqTransport, SendsFromTheCallersBytesAndLetsGoOfThem) {
  auto job = job_of(2);
  auto bytes = std::make_shared<std::string>(std::string(1'000'000, 'q'));
  const std::weak_ptr<std::string> watch = bytes;
  Payload payload{reinterpret_cast<const std::byte*>(bytes->data()), bytes->size(), bytes};
  bytes.reset();
  job[1]->send(0, {{FrameKind::kFirstMessage, 1, 0, 0, 0, 1}, std::move(payload)});
  const auto frame = job[0]->receive(kLimit);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->payload.to_string(), std::string(1'000'000, 'q'));
  job[1]->close(kLimit);
  EXPECT_TRUE(watch.expired());
}

TEST(ZmqTransport, GivesAlignedPayloadsThatOutliveTheTransport) {
  auto job = job_of(2);
  std::vector<Frame> frames;
  for (const std::size_t size : {1u, 5u, 33u, 100u, 4001u, 70'001u}) {
    job[1]->send(0, contribution(0, std::string(size, 'z')));
  }
  while (frames.size() < 6) frames.push_back(job[0]->receive(kLimit).value());
  job.clear();
  for (const Frame& frame : frames) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.payload.data) % 8, 0u);
    EXPECT_EQ(frame.payload.to_string(), std::string(frame.payload.size, 'z'));
  }
}

TEST(ZmqTransport, GivesNothingAfterTheTimeOut) {
  auto job = job_of(2);
  const SteadyClock clock;
  const Seconds before = clock.now();
  EXPECT_FALSE(job[0]->receive(Seconds{0.05}));
  EXPECT_GE((clock.now() - before).value, 0.045);
}

TEST(ZmqTransport, RefusesStrangersAndNoise) {
  auto listener = ZmqListener(kLoopback);
  const std::uint16_t port = listener.port();
  ZmqTransport transport(std::move(listener), 0,
                         {{kLoopback, port, "here", 1}, {kLoopback, 1, "", 2}});
  zmq::context_t context;
  zmq::socket_t stranger(context, zmq::socket_type::push);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.connect("tcp://127.0.0.1:" + std::to_string(port));
  const auto say = [&](const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      stranger.send(zmq::buffer(parts[i]), last ? zmq::send_flags::none : zmq::send_flags::sndmore);
    }
  };
  const auto wire = [](RankNumber from, std::size_t size) {
    const WireHeader header = encode({FrameKind::kFirstMessage, 1, 0, 0, from, 0}, size);
    return std::string(reinterpret_cast<const char*>(header.data()), header.size());
  };
  say({"noise"});
  EXPECT_FALSE(transport.receive(Seconds{0.3}));
  EXPECT_EQ(transport.refusals().last_reason, "a header of 5 bytes, at least 48");
  say({wire(9, 1), "x"});
  EXPECT_FALSE(transport.receive(Seconds{0.1}));
  EXPECT_EQ(transport.refusals().last_reason, "rank 9 is not a peer of rank 0 of 2");
  say({wire(1, 1), "x", "y"});
  EXPECT_FALSE(transport.receive(Seconds{0.1}));
  EXPECT_EQ(transport.refusals().last_reason, "a frame of more than two parts");
  say({wire(1, 1), "x"});
  EXPECT_TRUE(transport.receive(kLimit)) << "noise must not end the job";
  EXPECT_EQ(transport.refusals().count, 3u);
}

TEST(ZmqTransport, ListensOnOneAddressOnlyAndNamesAPortInUse) {
  EXPECT_THROW(ZmqListener("0.0.0.0"), Error);
  EXPECT_THROW(ZmqListener("*"), Error);
  const ZmqListener first(kLoopback);
  try {
    const ZmqListener second(kLoopback, first.port());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port())), std::string::npos);
  }
}

TEST(ZmqTransport, ClosesInTimeWhenAPeerNeverComes) {
  auto listener = ZmqListener(kLoopback);
  const std::uint16_t port = listener.port();
  ZmqTransport transport(std::move(listener), 0, {{kLoopback, port, "", 1}, {kLoopback, 1, "", 2}});
  for (MessageId slice = 0; slice < 3000; ++slice) transport.send(1, contribution(slice, "x"));
  const SteadyClock clock;
  const Seconds before = clock.now();
  transport.close(Seconds{0.2});
  EXPECT_LT((clock.now() - before).value, 2.0);
}

TEST(ZmqTransport, CarriesAnAgreementAndThenAnExchange) {
  auto job = job_of(3);
  const std::string parameters(20'000'000, 'p');
  std::atomic<int> received{0};
  std::vector<std::future<void>> ranks;
  for (RankNumber rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Transport& transport = *job[rank];
      EXPECT_TRUE(broadcast(transport, 0, rank == 0 ? parameters : "", "parameters", kLimit) ==
                  parameters);
      const SteadyClock clock;
      ExchangeOptions options;
      options.window = Bytes{1 << 16};
      Exchange exchange(transport, clock, options, {[&](const Frame&) { ++received; }, {}});
      for (MessageId slice = 0; slice < 100; ++slice) {
        for (RankNumber to = 0; to < 3; ++to) {
          if (to == rank) continue;
          exchange.post(to, {FrameKind::kFirstMessage, 0, slice, 1, Seconds{1.0 * slice},
                             Payload::copy_of(std::string(10'000, 'g'))});
        }
      }
      exchange.finish(kLimit);
    }));
  }
  for (auto& rank : ranks) rank.get();
  EXPECT_EQ(received, 600);
}

TEST(ZmqTransport, APeerWhoseProcessHasEndedIsGoneAndOneThatNeverCameIsNot) {
  auto job = job_of(3);
  job[0]->send(1, contribution(0, "connected"));
  ASSERT_TRUE(job[1]->receive(kLimit));
  const SteadyClock clock;
  const auto gone_within = [&](Seconds limit) {
    const Seconds until = clock.now() + limit;
    std::optional<RankNumber> gone;
    while (!gone && clock.now() < until) {
      (void)job[0]->receive(Seconds{0.01});
      gone = job[0]->gone();
    }
    return gone;
  };
  EXPECT_EQ(gone_within(Seconds{0.5}), std::nullopt);
  job[1].reset();
  EXPECT_EQ(gone_within(kLimit), std::optional<RankNumber>(1));
  job[0]->send(1, contribution(1, "for nobody"));
  const Seconds until = clock.now() + kLimit;
  job[0]->close(kLimit * 2);
  EXPECT_LT(clock.now(), until) << "waited until somebody takes it";
}

TEST(ZmqTransport, WithKeysFramesCrossAndThoseOfOtherKeysDoNot) {
  const CurveKeys keys = curve_keys_of("job");
  std::vector<ZmqListener> listeners;
  listeners.emplace_back(kLoopback, 0, keys);
  listeners.emplace_back(kLoopback, 0, keys);
  listeners.emplace_back(kLoopback, 0, curve_keys_of("another"));
  std::vector<Member> members;
  for (const ZmqListener& each : listeners) members.push_back({kLoopback, each.port(), "here", 1});
  ZmqTransport first(std::move(listeners[0]), 0, members);
  ZmqTransport second(std::move(listeners[1]), 1, members);
  ZmqTransport stranger(std::move(listeners[2]), 2, members);
  stranger.send(0, contribution(1, "from elsewhere"));
  second.send(0, contribution(2, std::string(300'000, 'e')));
  const auto frame = first.receive(kLimit);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->header.from, 1u);
  EXPECT_EQ(frame->payload.to_string(), std::string(300'000, 'e'));
  EXPECT_FALSE(first.receive(Seconds{0.5})) << "the stranger came in";
}

}  // namespace
}  // namespace autodist::comm
