#include "autodist/comm/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <optional>
#include <thread>
#include <zmq.hpp>

#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/bytes.h"
#include "autodist/comm/exchange.h"

namespace autodist::comm {
namespace {

const std::string kLoopback = "127.0.0.1";

RendezvousOptions options_of(RankNumber rank, RankNumber size, std::uint16_t port) {
  RendezvousOptions options;
  options.rank = rank;
  options.size = size;
  options.chief_port = port;
  options.job_key = "secret-of-this-job";
  options.build = "1.0";
  options.limit = Seconds{20};
  return options;
}

struct Outcome {
  std::unique_ptr<Transport> transport;
  std::optional<Error> error;
};

std::future<Outcome> joining(const RendezvousOptions& options, ChiefListener* listener = nullptr) {
  return std::async(std::launch::async, [options, listener]() -> Outcome {
    try {
      return {join(options, listener), std::nullopt};
    } catch (const Error& error) {
      return {nullptr, error};
    }
  });
}

bool says(const Outcome& outcome, ErrorCode code, const std::string& words) {
  if (!outcome.error) return false;
  SCOPED_TRACE(outcome.error->what());
  EXPECT_EQ(std::string(outcome.error->what()).find("secret"), std::string::npos);
  return outcome.error->code() == code &&
         std::string(outcome.error->what()).find(words) != std::string::npos;
}

TEST(Rendezvous, RanksFindEachOtherInWhateverOrderTheyCome) {
  ChiefListener listener(kLoopback, 0);
  std::vector<std::future<Outcome>> ranks;
  for (const RankNumber rank : {3u, 1u, 2u}) {
    ranks.push_back(joining(options_of(rank, 4, listener.port())));
  }
  ranks.push_back(joining(options_of(0, 4, listener.port()), &listener));
  std::vector<std::future<std::vector<std::string>>> talks;
  for (auto& rank : ranks) {
    talks.push_back(std::async(std::launch::async, [&rank] {
      const Outcome outcome = rank.get();
      EXPECT_FALSE(outcome.error) << outcome.error->what();
      auto all = all_gather(*outcome.transport, std::to_string(outcome.transport->self()), "ranks",
                            Seconds{20});
      outcome.transport->close(Seconds{5});
      return all;
    }));
  }
  for (auto& talk : talks) EXPECT_EQ(talk.get(), (std::vector<std::string>{"0", "1", "2", "3"}));
}

TEST(Rendezvous, TheMissingAreNamedToTheChiefAndToThoseWhoWait) {
  ChiefListener listener(kLoopback, 0);
  RendezvousOptions chief = options_of(0, 4, listener.port());
  chief.limit = Seconds{0.5};
  auto waiting = joining(options_of(2, 4, listener.port()));
  const std::string expected = "ranks 1, 3 did not join within";
  EXPECT_TRUE(says(joining(chief, &listener).get(), ErrorCode::kPeersLost, expected));
  EXPECT_TRUE(says(waiting.get(), ErrorCode::kPeersLost, expected));
}

TEST(Rendezvous, AnotherBuildIsRefusedWithBothShown) {
  ChiefListener listener(kLoopback, 0);
  RendezvousOptions other = options_of(1, 2, listener.port());
  other.build = "0.9";
  auto chief = joining(options_of(0, 2, listener.port()), &listener);
  const std::string expected = "is build '0.9', the chief is build '1.0'";
  EXPECT_TRUE(says(joining(other).get(), ErrorCode::kEnvironment, expected));
  EXPECT_TRUE(says(chief.get(), ErrorCode::kEnvironment, expected));
}

TEST(Rendezvous, AnotherSizeIsRefusedWithBothShown) {
  ChiefListener listener(kLoopback, 0);
  auto chief = joining(options_of(0, 2, listener.port()), &listener);
  const std::string expected = "expects 3 ranks, the chief 2";
  EXPECT_TRUE(says(joining(options_of(1, 3, listener.port())).get(), ErrorCode::kUsage, expected));
  EXPECT_TRUE(says(chief.get(), ErrorCode::kUsage, expected));
}

TEST(Rendezvous, AnotherKeyIsRefusedAndTheJobGoesOnWithoutIt) {
  ChiefListener listener(kLoopback, 0);
  auto chief = joining(options_of(0, 2, listener.port()), &listener);
  for (const std::string& key : {std::string("secret-of-another"), std::string()}) {
    RendezvousOptions stranger = options_of(1, 2, listener.port());
    stranger.job_key = key;
    EXPECT_TRUE(says(joining(stranger).get(), ErrorCode::kAuthentication, "another job"));
  }
  EXPECT_FALSE(joining(options_of(1, 2, listener.port())).get().error);
  EXPECT_FALSE(chief.get().error);
}

TEST(Rendezvous, ASecondProcessOfARankIsRefusedAndTheFirstStays) {
  ChiefListener listener(kLoopback, 0);
  auto chief = joining(options_of(0, 3, listener.port()), &listener);
  auto one = joining(options_of(1, 3, listener.port()));
  auto another = joining(options_of(1, 3, listener.port()));
  // One of the two is refused at once; the other is answered when rank 2 comes.
  while (one.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready &&
         another.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
  }
  EXPECT_FALSE(joining(options_of(2, 3, listener.port())).get().error);
  const Outcome first = one.get();
  const Outcome second = another.get();
  EXPECT_NE(first.error.has_value(), second.error.has_value());
  EXPECT_TRUE(says(first.error ? first : second, ErrorCode::kUsage, "rank 1 has joined already"));
  EXPECT_FALSE(chief.get().error);
}

// A launcher starts a rank again that was killed while it waited for the others.
TEST(Rendezvous, ARankThatIsStartedAgainTakesItsPlace) {
  ChiefListener listener(kLoopback, 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)join(options_of(1, 3, listener.port()), nullptr);
    _exit(0);
  }
  std::promise<void> alone;
  RendezvousOptions options = options_of(0, 3, listener.port());
  bool told = false;
  options.while_waiting = [&](const std::string& whom, Seconds) {
    if (whom != "rank 2" || told) return;
    told = true;
    alone.set_value();
  };
  auto chief = joining(options, &listener);
  ASSERT_EQ(alone.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  auto again = joining(options_of(1, 3, listener.port()));
  auto other = joining(options_of(2, 3, listener.port()));
  const Outcome outcome = chief.get();
  ASSERT_FALSE(outcome.error) << outcome.error->what();
  EXPECT_NE(outcome.transport->describe(1).find("pid " + std::to_string(getpid())),
            std::string::npos);
  const Outcome twice = again.get();
  EXPECT_FALSE(twice.error) << twice.error->what();
  EXPECT_FALSE(other.get().error);
}

// Who says that it waits is waited with, and a rank that is known to run is waited for.
TEST(Rendezvous, TheLimitIsForSilence) {
  ChiefListener listener(kLoopback, 0);
  RendezvousOptions patient = options_of(0, 3, listener.port());
  RendezvousOptions waits = options_of(1, 3, listener.port());
  patient.limit = waits.limit = Seconds{1};
  patient.runs = [](RankNumber rank) { return rank == 2; };
  auto chief = joining(patient, &listener);
  auto one = joining(waits);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  auto two = joining(options_of(2, 3, listener.port()));
  for (auto* rank : {&chief, &one, &two}) {
    const Outcome outcome = rank->get();
    EXPECT_FALSE(outcome.error) << outcome.error->what();
  }
}

TEST(Rendezvous, WhatWaitingFindsOutEndsTheMeetingForAll) {
  ChiefListener listener(kLoopback, 0);
  RendezvousOptions options = options_of(0, 3, listener.port());
  options.while_waiting = [](const std::string&, Seconds since) {
    if (since > Seconds{1}) fail(ErrorCode::kPeersLost, "rank 2 ended with exit code 1");
  };
  auto chief = joining(options, &listener);
  auto one = joining(options_of(1, 3, listener.port()));
  const std::string expected = "rank 2 ended with exit code 1";
  EXPECT_TRUE(says(chief.get(), ErrorCode::kPeersLost, expected));
  EXPECT_TRUE(says(one.get(), ErrorCode::kPeersLost, expected));
}

TEST(Rendezvous, NoiseDoesNotDisturbTheChief) {
  ChiefListener listener(kLoopback, 0);
  auto chief = joining(options_of(0, 2, listener.port()), &listener);
  zmq::context_t context;
  zmq::socket_t noise(context, zmq::socket_type::dealer);
  noise.set(zmq::sockopt::linger, 100);
  noise.connect("tcp://127.0.0.1:" + std::to_string(listener.port()));
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string("ADHI"),
        std::string("ADHI\x01\0\xff\xff\xff\xff", 10), std::string(30'000, 'A')}) {
    noise.send(zmq::buffer(bytes), zmq::send_flags::none);
  }
  EXPECT_FALSE(joining(options_of(1, 2, listener.port())).get().error);
  EXPECT_FALSE(chief.get().error);
}

TEST(Rendezvous, AChiefThatIsNotThereIsNamed) {
  RendezvousOptions options = options_of(1, 2, 1);
  options.limit = Seconds{0.2};
  EXPECT_TRUE(says(joining(options).get(), ErrorCode::kPeersLost, "tcp://127.0.0.1:1"));
}

TEST(Rendezvous, APortInUseIsNamed) {
  const ChiefListener first(kLoopback, 0);
  try {
    const ChiefListener second(kLoopback, first.port());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find(std::to_string(first.port())), std::string::npos)
        << error.what();
  }
}

TEST(Rendezvous, AJobOfOneRankNeedsNobody) {
  const auto transport = join(options_of(0, 1, 0), nullptr);
  EXPECT_EQ(transport->size(), 1u);
}

// Two processes: the child joins, posts one slice and is killed; the chief names it.
TEST(Rendezvous, AProcessThatIsKilledIsNamedWithItsPid) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::uint16_t port = 0;
    if (read(pipe_ends[0], &port, sizeof port) != sizeof port) _exit(1);
    const auto transport = join(options_of(1, 2, port), nullptr);
    const SteadyClock clock;
    Exchange exchange(*transport, clock, {}, {});
    exchange.post(0, {FrameKind::kFirstMessage, 6, 3, 1, Seconds{0}, Payload::copy_of("x")});
    pause();
    _exit(0);
  }
  ChiefListener listener(kLoopback, 0);
  const std::uint16_t port = listener.port();
  ASSERT_EQ(write(pipe_ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  const auto transport = join(options_of(0, 2, port), &listener);
  const SteadyClock clock;
  ExchangeOptions options;
  options.heartbeat = Seconds{0.4};
  std::promise<void> arrived;
  std::promise<void> failed;
  Exchange exchange(*transport, clock, options, {[&](const Frame&) { arrived.set_value(); }, {}});
  exchange.on_failure([&] { failed.set_value(); });
  arrived.get_future().wait();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_EQ(failed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  try {
    std::rethrow_exception(exchange.failure());
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(message.find("rank 1 (127.0.0.1"), std::string::npos) << message;
    EXPECT_NE(message.find("pid " + std::to_string(child)), std::string::npos) << message;
    EXPECT_NE(message.find("message of kind 16, id 3, step 6"), std::string::npos) << message;
  }
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace autodist::comm
