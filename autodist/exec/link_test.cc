#include "autodist/exec/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::exec {
namespace {

using ::testing::HasSubstr;

constexpr Seconds kPatience{10};

class Library final : public comm::Collectives {
 public:
  void all_reduce(void*, std::size_t, DType) override {}
  void abort() override { ++aborts; }
  [[nodiscard]] std::string describe() const override { return "a library"; }

  std::atomic<int> aborts{0};
};

// The links of two ranks. What each has got is kept under its signal.
class LinkTest : public ::testing::Test {
 protected:
  struct Rank {
    Rank(const program::Program& program, std::uint32_t rank, const RunnerOptions& options)
        : trace(clock, program::Rank(rank), false),
          link({program, program::Rank(rank), options, signal, trace}) {}
    ~Rank() { link.stop(); }

    SteadyClock clock;
    Signal signal;
    std::vector<comm::Frame> got AD_GUARDED_BY(signal);
    std::unique_ptr<comm::Transport> transport;
    Library library;
    TraceRecorder trace;
    Link link;
  };

  LinkTest() {
    program_.ranks.resize(2);
    for (const std::uint32_t i : {0U, 1U}) {
      ranks_.push_back(std::make_unique<Rank>(program_, i, options_));
      ranks_[i]->transport = hub_.connect(i);
    }
  }
  void start() {
    for (const auto& each : ranks_) {
      Rank& rank = *each;
      rank.link.start({rank.transport.get(), &rank.library, &rank.clock},
                      [&](const comm::Frame& frame) {
                        {
                          const MutexLock lock(rank.signal);
                          rank.got.push_back(frame);
                        }
                        rank.signal.notify();
                      });
    }
  }
  // The n-th message that the rank gets, from 1 on.
  comm::Frame message(std::uint32_t at, std::size_t n = 1) {
    Rank& rank = *ranks_[at];
    const MutexLock lock(rank.signal);
    rank.signal.wait(
        kPatience, [&]() AD_REQUIRES(rank.signal) { return rank.got.size() >= n; },
        [] { return std::string("no message has come"); });
    return rank.got[n - 1];
  }
  // Why the rank's waits end.
  std::string failure_of(std::uint32_t at) {
    Rank& rank = *ranks_[at];
    try {
      const MutexLock lock(rank.signal);
      rank.signal.wait(
          kPatience, [] { return false; }, [] { return std::string("nothing has failed"); });
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  program::Program program_;
  RunnerOptions options_;
  comm::InProcessHub hub_{2};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(LinkTest, AMessageArrivesWithItsSubjectStepAndBytes) {
  start();
  ranks_[0]->link.post(program::Rank(1), {Topic::kWholeSum, 7}, 3,
                       comm::Payload::copy_of("sums of squares"));
  const comm::Frame frame = message(1);
  EXPECT_EQ(topic_of(frame.header), Topic::kWholeSum);
  EXPECT_EQ(frame.header.id, 7U);
  EXPECT_EQ(frame.header.step, 3U);
  EXPECT_EQ(frame.header.from, 0U);
  EXPECT_EQ(frame.payload.to_string(), "sums of squares");
}

TEST_F(LinkTest, WhatIsNoSlicesIsNotCountedAsPayload) {
  start();
  ranks_[0]->link.post_note(program::Rank(1), Topic::kStep, 0, "a loss");
  ranks_[0]->link.post(program::Rank(1), {Topic::kWholeSum, 7}, 1, comm::Payload::copy_of("12345"));
  message(1, 2);
  EXPECT_EQ(ranks_[0]->link.counters().payload_bytes_sent, 5U);
}

TEST_F(LinkTest, AMessageThatCannotBeTakenFailsTheRank) {
  Rank& rank = *ranks_[1];
  ranks_[0]->link.start({ranks_[0]->transport.get(), nullptr, &ranks_[0]->clock},
                        [](const comm::Frame&) {});
  rank.link.start({rank.transport.get(), nullptr, &rank.clock},
                  [](const comm::Frame&) { fail(ErrorCode::kUsage, "slice 7 is unknown."); });
  ranks_[0]->link.post(program::Rank(1), {Topic::kWholeSum, 7}, 0, comm::Payload::copy_of("x"));
  EXPECT_THAT(failure_of(1), HasSubstr("slice 7 is unknown"));
}

TEST_F(LinkTest, ARankThatLeavesSaysWhyToItsPeers) {
  start();
  ranks_[0]->link.leave("the batch has a shape that was not expected");
  EXPECT_THAT(failure_of(1), HasSubstr("the batch has a shape that was not expected"));
}

TEST_F(LinkTest, ALossEndsWaitsInALibraryAtAllRanks) {
  start();
  ranks_[0]->link.abort("it cannot go on");
  EXPECT_THAT(failure_of(1), HasSubstr("it cannot go on"));
  ranks_[1]->link.stop();  // its receiving thread, which says so
  for (const auto& each : ranks_) EXPECT_EQ(each->library.aborts, 1);
}

TEST_F(LinkTest, AnEndInOrderLeavesTheLibraryAlone) {
  start();
  std::thread other([this] { ranks_[1]->link.finish(); });
  ranks_[0]->link.finish();
  other.join();
  for (const auto& each : ranks_) {
    each->link.stop();
    EXPECT_EQ(each->library.aborts, 0);
  }
}

TEST_F(LinkTest, SeveralRanksWithoutATransportAreRefused) {
  EXPECT_THROW(ranks_[0]->link.start({}, [](const comm::Frame&) {}), Error);
}

TEST_F(LinkTest, ARankAloneNeedsNoTransport) {
  program_.ranks.resize(1);
  ranks_[0]->link.start({}, [](const comm::Frame&) {});
  EXPECT_EQ(ranks_[0]->link.counters().payload_bytes_sent, 0U);
  ranks_[0]->link.finish();
}

}  // namespace
}  // namespace autodist::exec
