#include "autodist/app/launch.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <mutex>

#include "autodist/base/error.h"

namespace autodist::app {
namespace {

using namespace std::chrono_literals;

// Collects what the ranks write.
struct Lines {
  std::mutex mutex;
  std::map<std::uint32_t, std::vector<std::string>> by_rank;

  LocalRanks::Output output() {
    return [this](std::uint32_t rank, const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex);
      by_rank[rank].push_back(line);
    };
  }
};

CommandLine shell(const std::string& script) { return {"/bin/sh", {"sh", "-c", script}}; }

JobPlace job_of(std::uint32_t size) {
  JobPlace job;
  job.size = size;
  job.chief_port = 4711;
  job.key = make_job_key();
  return job;
}

TEST(LocalRanks, EveryRankLearnsItsPlaceAndTheKeyByDescriptor) {
  Lines lines;
  const JobPlace job = job_of(3);
  {
    LocalRanks ranks(shell("echo $AUTODIST_RANK of $AUTODIST_SIZE at $AUTODIST_CHIEF; "
                           "head -c 64 <&$AUTODIST_KEY_FD"),
                     1, 2, job, lines.output());
    ranks.wait(Seconds{10});
  }
  EXPECT_EQ(lines.by_rank[1], (std::vector<std::string>{"1 of 3 at 127.0.0.1:4711", job.key}));
  EXPECT_EQ(lines.by_rank[2], (std::vector<std::string>{"2 of 3 at 127.0.0.1:4711", job.key}));
}

TEST(LocalRanks, TheKeyIsNeitherInTheEnvironmentNorInTheArguments) {
  Lines lines;
  const JobPlace job = job_of(2);
  {
    LocalRanks ranks(shell("env; cat /proc/self/cmdline"), 1, 1, job, lines.output());
    ranks.wait(Seconds{10});
  }
  EXPECT_GT(lines.by_rank[1].size(), 3u);
  for (const std::string& line : lines.by_rank[1]) {
    EXPECT_EQ(line.find(job.key), std::string::npos) << line;
  }
}

TEST(LocalRanks, ARankThatEndsBadlyIsNamed) {
  Lines lines;
  LocalRanks ranks(shell("exit 3"), 1, 1, job_of(2), lines.output());
  try {
    ranks.wait(Seconds{10});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("exit code 3"), std::string::npos);
  }
}

TEST(LocalRanks, NoneIsLeftRunning) {
  Lines lines;
  pid_t pid = 0;
  {
    LocalRanks ranks(shell("trap '' TERM; echo $$; while :; do sleep 0.1; done"), 1, 1, job_of(2),
                     lines.output());
    while (pid == 0) {
      std::this_thread::sleep_for(5ms);
      const std::lock_guard<std::mutex> lock(lines.mutex);
      if (!lines.by_rank[1].empty()) pid = std::stoi(lines.by_rank[1].front());
    }
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace autodist::app
