#include "autodist/job/launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "tests/happens.h"
#include "tests/outcome_of.h"

namespace autodist::job {
namespace {

using namespace std::chrono_literals;
using testing_jobs::is_gone;

// Collects what the ranks write.
struct Lines {
  std::mutex mutex;
  std::map<std::uint32_t, std::vector<std::string>> by_rank;

  StartedRanks::Output output() {
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

// All ranks but the chief, here.
std::vector<RankProcess> local_ranks(const std::string& script, JobPlace job) {
  std::vector<RankProcess> ranks;
  for (job.rank = 1; job.rank < job.size; ++job.rank) ranks.push_back(here(shell(script), job));
  return ranks;
}

TEST(StartedRanks, EveryRankLearnsItsPlaceAndTheKeyByDescriptor) {
  Lines lines;
  const JobPlace job = job_of(3);
  {
    StartedRanks ranks(local_ranks("echo $AUTODIST_RANK of $AUTODIST_SIZE at $AUTODIST_CHIEF; "
                                   "head -c 64 <&$AUTODIST_KEY_FD",
                                   job),
                       lines.output());
    ranks.wait(Seconds{10});
  }
  EXPECT_EQ(lines.by_rank[1], (std::vector<std::string>{"1 of 3 at 127.0.0.1:4711", job.key}));
  EXPECT_EQ(lines.by_rank[2], (std::vector<std::string>{"2 of 3 at 127.0.0.1:4711", job.key}));
}

TEST(StartedRanks, TheKeyIsNeitherInTheEnvironmentNorInTheArguments) {
  Lines lines;
  const JobPlace job = job_of(2);
  {
    StartedRanks ranks(local_ranks("env; cat /proc/self/cmdline", job), lines.output());
    ranks.wait(Seconds{10});
  }
  EXPECT_GT(lines.by_rank[1].size(), 3u);
  for (const std::string& line : lines.by_rank[1]) {
    EXPECT_EQ(line.find(job.key), std::string::npos) << line;
  }
}

TEST(StartedRanks, ARankThatWorksOnIsNamedAndNotEnded) {
  Lines lines;
  {
    StartedRanks ranks(local_ranks("sleep 1; echo through", job_of(2)), lines.output());
    EXPECT_FALSE(ranks.wait(Seconds{0.05}));
    EXPECT_EQ(ranks.running().find("rank 1 (pid "), 0u) << ranks.running();
    EXPECT_TRUE(ranks.wait(Seconds{60}));
    EXPECT_EQ(ranks.running(), "no rank");
  }
  EXPECT_EQ(lines.by_rank[1], std::vector<std::string>{"through"});
}

TEST(StartedRanks, ARankThatEndsBadlyIsNamed) {
  Lines lines;
  StartedRanks ranks(local_ranks("exit 3", job_of(2)), lines.output());
  try {
    ranks.wait(Seconds{10});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("exit code 3"), std::string::npos);
  }
}

TEST(StartedRanks, ARankThatIsKilledIsKnownBeforeAnybodyAsksHowItEnded) {
  Lines lines;
  StartedRanks ranks(local_ranks("test $AUTODIST_RANK = 1 && exit 3; kill -9 $$", job_of(3)),
                     lines.output());
  const Deadline deadline(Seconds{10});
  while (!ranks.killed() && !deadline.has_passed()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(ranks.killed(), 2U);
  EXPECT_EQ(ranks.end_of(2, Seconds{10}), ranks.end_of(2, Seconds{10})) << "it can still be asked";
  EXPECT_NE(ranks.end_of(2, Seconds{10})->find("killed by signal 9"), std::string::npos);
}

TEST(StartedRanks, NoneIsLeftRunning) {
  Lines lines;
  pid_t pid = 0;
  {
    StartedRanks ranks(local_ranks("trap '' TERM; echo $$; while :; do sleep 0.1; done", job_of(2)),
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

TEST(StartedRanks, NoneIsLeftWhereAnotherCannotBeStarted) {
  Lines lines;
  std::vector<RankProcess> ranks = local_ranks("exec sleep 60", job_of(3));
  ranks.back().input = std::string(1 << 20, 'x');
  try {
    const StartedRanks started(ranks, lines.output());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_EQ(std::string(error.what()).find("rank 2: 1048576 bytes of input did not fit"), 0U)
        << error.what();
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(StartedRanks, WhatARankHasStartedEndsWithIt) {
  Lines lines;
  const auto begin = std::chrono::steady_clock::now();
  {
    StartedRanks ranks(local_ranks("sleep 60 & echo $!; exit 0", job_of(2)), lines.output());
    ranks.wait(Seconds{10});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  ASSERT_EQ(lines.by_rank[1].size(), 1U);
  EXPECT_TRUE(is_gone(std::stoi(lines.by_rank[1].front())));
}

TEST(StartedRanks, WhatARankSaidLastIsTold) {
  Lines lines;
  StartedRanks ranks(local_ranks("echo 'KeyError: x'; echo; exit 1", job_of(2)), lines.output());
  while (ranks.any_runs()) std::this_thread::sleep_for(5ms);
  const std::string failure = ranks.failure().value_or("none");
  EXPECT_NE(failure.find("ended with exit code 1; its last line: KeyError: x"), std::string::npos)
      << failure;
  EXPECT_EQ(ranks.ended(), failure);
}

// The kernel ends a child with the thread that forked it.
TEST(StartedRanks, RanksOutliveTheThreadThatStartedThem) {
  Lines lines;
  std::unique_ptr<StartedRanks> ranks;
  std::thread([&] {
    ranks = std::make_unique<StartedRanks>(local_ranks("sleep 0.5; echo done", job_of(2)),
                                           lines.output());
  }).join();
  ranks->wait(Seconds{10});
  ranks.reset();
  EXPECT_EQ(lines.by_rank[1], std::vector<std::string>{"done"});
}

// The first lines of ranks whose launcher, a process of its own, is killed when it has so many. It
// can end nobody itself then.
std::vector<std::string> said_to_killed_launcher(const std::string& script, const JobPlace& job,
                                                 std::size_t count) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t launcher = ::fork();
  if (launcher < 0) {
    ADD_FAILURE() << "fork";
    return {};
  }
  if (launcher == 0) {
    StartedRanks ranks(
        local_ranks(script, job),
        [&](std::uint32_t, const std::string& line) {
          const std::string text = fmt::format("{}\n", line);
          (void)!::write(ends[1], text.data(), text.size());
        },
        StartedRanks::DiesWithUs::kGroups);
    while (true) ::pause();
  }
  std::vector<std::string> lines;
  std::string line;
  for (char c = 0; lines.size() < count && ::read(ends[0], &c, 1) == 1;) {
    if (c == '\n') {
      lines.push_back(std::exchange(line, ""));
    } else {
      line += c;
    }
  }
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (const int end : ends) ::close(end);
  return lines;
}

TEST(StartedRanks, WhatARankHasStartedDiesWithALauncherThatIsKilled) {
  const std::vector<std::string> grandchildren =
      said_to_killed_launcher("trap '' TERM HUP; sleep 61 & echo $!; wait", job_of(3), 2);
  EXPECT_EQ(grandchildren.size(), 2U);
  for (const std::string& pid : grandchildren) EXPECT_TRUE(is_gone(std::stoi(pid))) << pid;
}

TEST(StartedRanks, ALauncherThatIsKilledHasItsRanksEndInOrder) {
  const testing_jobs::Scratch scratch;
  const std::string told = scratch / "told";
  // Its last words would end it where nobody holds the pipe's other end.
  const std::string ends_in_order = fmt::format(
      "trap 'echo ends && echo told > {}; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
      told);
  EXPECT_EQ(said_to_killed_launcher(ends_in_order, job_of(2), 1),
            std::vector<std::string>{"ready"});
  EXPECT_TRUE(testing_jobs::happens([&] { return testing_jobs::slurp(told) == "told\n"; }));
}

TEST(StartedRanks, AProcessThatStandsForAnotherEndsWithItsInput) {
  Lines lines;
  {
    RankProcess remote;
    remote.rank = 1;
    remote.node = "10.0.0.2";
    remote.command = {"sh", {"sh", "-c", "read first; echo $first; cat; echo over"}};
    remote.input = "script\n";
    StartedRanks ranks({remote}, lines.output());
    EXPECT_FALSE(ranks.failure());
    ranks.stop();
    ranks.wait(Seconds{10});
  }
  EXPECT_EQ(lines.by_rank[1], (std::vector<std::string>{"script", "over"}));
}

}  // namespace
}  // namespace autodist::job
