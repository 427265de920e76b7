// Programs that `autodist run` has started, and how they end.

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;

// Two ranks that ignore SIGTERM, each with a child that does, too; their pids.
struct StubbornProgram {
  Scratch scratch;
  Process job{autodist({"run", "--cluster", "local:2", "--", "sh", "-c",
                        "trap '' TERM HUP INT; sleep 71 & echo child $! rank $$; "
                        "while :; do sleep 0.1; done"}),
              scratch};
  std::vector<pid_t> pids;

  StubbornProgram() {
    const std::regex line("child (\\d+) rank (\\d+)");
    EXPECT_TRUE(happens([&] {
      const std::string out = job.out();
      pids.clear();
      for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at) {
        pids.push_back(std::stoi((*at)[1]));
        pids.push_back(std::stoi((*at)[2]));
      }
      return pids.size() == 4;
    }));
  }
};

TEST(Run, NothingIsLeftOfALauncherThatIsKilled) {
  StubbornProgram program;
  ::kill(program.job.pid(), SIGKILL);
  EXPECT_EQ(program.job.wait(), 128 + SIGKILL);
  // They have five seconds to end in order, which is_gone() waits for.
  for (const pid_t pid : program.pids) EXPECT_TRUE(is_gone(pid)) << pid;
}

TEST(Run, ASecondSignalEndsWhatIgnoresTheFirst) {
  for (const int number : {SIGTERM, SIGHUP}) {
    StubbornProgram program;
    ::kill(program.job.pid(), number);
    EXPECT_EQ(program.job.wait(1s), -1) << "they may take their time to end in order";
    std::this_thread::sleep_for(500ms);
    ::kill(program.job.pid(), number);
    EXPECT_EQ(program.job.wait(20s), 128 + number);
    for (const pid_t pid : program.pids) EXPECT_TRUE(is_gone(pid)) << pid;
  }
}

TEST(Run, AClosedTerminalTellsTheProgramsToEnd) {
  const Scratch scratch;
  Process job(autodist({"run", "--cluster", "local:2", "--", "sh", "-c",
                        "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.1; done"}),
              scratch);
  ASSERT_TRUE(happens([&] {
    const std::string out = job.out();
    return out.find("[rank 0] ready") != std::string::npos &&
           out.find("[rank 1] ready") != std::string::npos;
  }));
  ::kill(job.pid(), SIGHUP);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_NE(job.out().find("[rank 0] told"), std::string::npos);
  EXPECT_NE(job.out().find("[rank 1] told"), std::string::npos);
}

}  // namespace
}  // namespace autodist
