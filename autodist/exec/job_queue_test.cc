#include "autodist/exec/job_queue.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "autodist/base/error.h"

namespace autodist::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Seconds kLong{100};
const char* const kLate = "run: the merging thread does not come.";

void ignore(const std::exception_ptr&) {}

// Of the Error that it throws; "" for none.
std::string error_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(JobQueue, RunsTheMostUrgentFirst) {
  Signal signal;
  JobQueue queue(ignore);
  std::vector<int> ran;
  queue.push(1, Seconds{0}, [&] { ran.push_back(3); });
  queue.push(0, Seconds{2}, [&] { ran.push_back(1); });
  queue.push(0, Seconds{2}, [&] { ran.push_back(2); });
  queue.push(0, Seconds{1}, [&] { ran.push_back(0); });
  queue.start();
  queue.run(
      signal, kLong, 2, Seconds{0}, [&] { ran.push_back(4); }, kLate);
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3, 4));
}

TEST(JobQueue, ARunThatComesToNothingEndsAtItsLimit) {
  Signal signal;
  JobQueue queue(ignore);  // never started
  EXPECT_EQ(error_of(
                [&] {
                  queue.run(
                      signal, Seconds{0.01}, 0, {}, [] {}, kLate);
                },
                ErrorCode::kTimeout),
            kLate);
}

TEST(JobQueue, ARunIsNotWaitedForWhereTheQueueIsStopped) {
  Signal signal;
  JobQueue queue(ignore);
  queue.start();
  queue.stop();
  EXPECT_EQ(error_of(
                [&] {
                  queue.run(
                      signal, kLong, 0, {}, [] {}, kLate);
                },
                ErrorCode::kPeersLost),
            fmt::format("{} It has ended.", kLate));
}

TEST(JobQueue, ARunThatWaitsIsToldWhenTheQueueStops) {
  Signal signal;
  JobQueue queue(ignore);
  std::promise<void> begun;
  std::promise<void> goes_on;
  queue.push(0, {}, [&] {
    begun.set_value();
    goes_on.get_future().wait();
  });
  queue.start();
  begun.get_future().wait();
  auto waits = std::async(std::launch::async, [&] {
    return error_of(
        [&] {
          queue.run(
              signal, kLong, 1, {}, [] {}, kLate);
        },
        ErrorCode::kPeersLost);
  });
  auto stops = std::async(std::launch::async, [&] { queue.stop(); });
  EXPECT_THAT(waits.get(), HasSubstr("It has ended")) << "before the job that runs is through";
  goes_on.set_value();
  stops.get();
}

TEST(JobQueue, AJobThatThrowsEndsTheRunsBehindItToo) {
  Signal signal;
  JobQueue queue(ignore);
  queue.start();
  std::promise<void> begun;
  std::promise<void> goes_on;
  std::atomic<int> ran{0};
  const auto run = [&](std::uint64_t step, const std::function<void()>& job) {
    return error_of([&] { queue.run(signal, kLong, step, {}, job, kLate); }, ErrorCode::kPeersLost);
  };
  const auto throws = [&] {
    begun.set_value();
    goes_on.get_future().wait();
    throw std::runtime_error("of the job itself");
  };
  auto first = std::async(std::launch::async, [&] { return run(0, throws); });
  begun.get_future().wait();
  auto second = std::async(std::launch::async, [&] { return run(1, [&] { ++ran; }); });
  goes_on.set_value();
  EXPECT_THAT(first.get(), HasSubstr("It has ended"));
  EXPECT_THAT(second.get(), HasSubstr("It has ended"));
  EXPECT_THAT(run(2, [&] { ++ran; }), HasSubstr("It has ended"));
  EXPECT_EQ(ran.load(), 0) << "no job runs after one that throws";
}

TEST(JobQueue, TheSignalsFailureIsWhatARunThrows) {
  Signal signal;
  JobQueue queue([&](const std::exception_ptr& reason) { signal.fail(reason); });
  queue.start();
  const auto job = [] { fail(ErrorCode::kUsage, "of the job itself"); };
  EXPECT_EQ(error_of([&] { queue.run(signal, kLong, 0, {}, job, kLate); }, ErrorCode::kUsage),
            "of the job itself");
  EXPECT_EQ(error_of(
                [&] {
                  queue.run(
                      signal, kLong, 0, {}, [] {}, kLate);
                },
                ErrorCode::kUsage),
            "of the job itself");
}

}  // namespace
}  // namespace autodist::exec
