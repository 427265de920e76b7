// Before the first step: ranks that take their time, or die, or are told to stop; and how those
// meet that a launcher started.

#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <utility>

#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Loading libtorch and capturing alone take longer than this limit; the ranks are alive.
TEST(FirstStep, ARankThatTakesItsTimeIsWaitedFor) {
  const Scratch scratch;
  Process job(autodist({"train", "resnet-small", "--batch", "32", "--cluster", "local:2", "--steps",
                        "2", "--builder", "PS", "--join-timeout", "0.3"}),
              scratch);
  EXPECT_EQ(job.wait(120s), 0) << job.err();
}

// Minutes before its first step: captured, op by op, on one core.
std::vector<std::string> slow_to_begin(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = autodist({"train", "resnet50", "--batch", "64", "--cluster",
                                                 "local:2", "--steps", "3", "--restarts", "0"});
  arguments.insert(arguments.begin(), {"/usr/bin/env", "OMP_NUM_THREADS=1"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(FirstStep, ASignalBeforeItEndsTheJobAtOnceAndInOrder) {
  // And whether it goes to the chief.
  constexpr std::pair<int, bool> kSignals[] = {
      {SIGTERM, false}, {SIGTERM, true}, {SIGINT, true}, {SIGHUP, true}, {SIGUSR1, true}};
  for (const auto& [number, to_chief] : kSignals) {
    const Scratch scratch;
    Process job(slow_to_begin(number == SIGHUP ? std::vector<std::string>{"--json"}
                                               : std::vector<std::string>{}),
                scratch);
    ASSERT_TRUE(happens([&] { return !job.children().empty(); }));
    const std::vector<pid_t> children = job.children();
    std::this_thread::sleep_for(number == SIGINT ? 100ms : 6000ms);  // meeting, capturing
    const auto start = Clock::now();
    ::kill(to_chief ? job.pid() : children[0], number);
    EXPECT_EQ(job.wait(30s), 0) << job.err();
    // Within 2 s, of which it waits for most of one, where nobody else wants the machine's cores.
    EXPECT_LT(Clock::now() - start, kSlower * 6s);
    EXPECT_TRUE(is_gone(children[0]));
    if (number == SIGHUP) {
      EXPECT_EQ(job.out(), "{\"steps\":0,\"interrupted\":true}\n");
    } else if (number != SIGINT) {
      EXPECT_NE(job.err().find("before the first step: nothing was trained"), std::string::npos)
          << job.err();
    }
  }
}

TEST(FirstStep, ARankThatDiesBeforeItIsNamedAtOnce) {
  const Scratch scratch;
  Process job(slow_to_begin(), scratch);
  ASSERT_TRUE(happens([&] { return !job.children().empty(); }));
  std::this_thread::sleep_for(6s);
  const std::vector<pid_t> children = job.children();
  const auto start = Clock::now();
  ::kill(children[0], SIGKILL);
  EXPECT_EQ(job.wait(30s), 5) << job.err();
  EXPECT_LT(Clock::now() - start, kSlower * 10s);
  const std::string lost =
      "rank 1 (pid " + std::to_string(children[0]) + ") was killed by signal 9";
  EXPECT_NE(job.err().find(lost), std::string::npos) << job.err();
}

// What schedulers send before the time is up, and what a closed terminal sends.
TEST(FirstStep, OtherSignalsOfATrainingAreWishesToStop) {
  for (const int number : {SIGHUP, SIGUSR1}) {
    const Scratch scratch;
    Process job(autodist({"train", "digits", "--cluster", "local:2", "--steps", "1000000",
                          "--batch", "16", "--save", scratch / "ckpt"}),
                scratch);
    ASSERT_TRUE(job.says("step +\\d+/")) << job.err();
    ::kill(job.pid(), number);
    EXPECT_EQ(job.wait(30s), 0) << job.err();
    EXPECT_NE(job.out().find("interrupted after step"), std::string::npos) << job.out();
    EXPECT_FALSE(fs::is_empty(scratch / "ckpt"));
  }
}

// --- the meeting of ranks that a launcher started ---

struct LaunchedRanks {
  Scratch scratch;
  std::vector<std::unique_ptr<Scratch>> folders;

  std::unique_ptr<Process> start(int rank, int size) {
    folders.push_back(std::make_unique<Scratch>());
    fs::create_directory(scratch / "meeting");
    fs::permissions(scratch / "meeting", fs::perms::owner_all);
    static std::vector<std::unique_ptr<std::vector<std::string>>> kept;
    kept.push_back(std::make_unique<std::vector<std::string>>(std::vector<std::string>{
        "TORCHELASTIC_RUN_ID=test", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711",
        "RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
        "LOCAL_RANK=" + std::to_string(rank), "LOCAL_WORLD_SIZE=" + std::to_string(size),
        "AUTODIST_MEETING_DIR=" + (scratch / "meeting")}));
    return std::make_unique<Process>(
        autodist({"train", "digits", "--steps", "3", "--builder", "PS", "--join-timeout", "60"}),
        *folders.back(), *kept.back());
  }
  [[nodiscard]] bool has_file() const { return !fs::is_empty(scratch / "meeting"); }
};

TEST(Meeting, AFileThatAKilledChiefLeftDoesNotMislead) {
  LaunchedRanks job;
  {
    const auto lost = job.start(0, 2);
    ASSERT_TRUE(happens([&] { return job.has_file(); }));
    ::kill(lost->pid(), SIGKILL);
    EXPECT_EQ(lost->wait(), 128 + SIGKILL);
  }
  ASSERT_TRUE(job.has_file());
  const auto other = job.start(1, 2);
  std::this_thread::sleep_for(4s);  // it has read the file and knocks in vain
  const auto chief = job.start(0, 2);
  EXPECT_EQ(chief->wait(60s), 0) << chief->err();
  EXPECT_EQ(other->wait(60s), 0) << other->err();
  EXPECT_FALSE(job.has_file());
}

TEST(Meeting, ARankThatIsStartedAgainDuringItJoins) {
  LaunchedRanks job;
  const auto chief = job.start(0, 3);
  ASSERT_TRUE(happens([&] { return job.has_file(); }));
  {
    const auto killed = job.start(1, 3);
    std::this_thread::sleep_for(4s);
    ::kill(killed->pid(), SIGKILL);
    EXPECT_EQ(killed->wait(), 128 + SIGKILL);
  }
  const auto again = job.start(1, 3);
  const auto last = job.start(2, 3);
  for (const auto* rank : {&chief, &again, &last}) {
    EXPECT_EQ((*rank)->wait(60s), 0) << (*rank)->err();
  }
}

}  // namespace
}  // namespace autodist
