#include "autodist/app/faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autodist/base/error.h"
#include "tests/happens.h"

namespace autodist::app {
namespace {

TEST(FaultPlan, IsOneWord) {
  const FaultPlan plan{2.5, 7, 11, true, 0.25, "a folder/log,1.jsonl"};
  EXPECT_EQ(parse_fault_plan(to_text(plan)), plan);
  EXPECT_EQ(parse_fault_plan(to_text(FaultPlan{})), FaultPlan{});
  for (const char* text : {"", "30", "30,0,0", "x,0,0,0,0,", "30,-1,0,0,0,", "30,0,0,0,"}) {
    EXPECT_THROW(parse_fault_plan(text), Error) << text;
  }
}

// A shell that waits, with these variables.
pid_t process_with(std::vector<const char*> variables) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setpgid(0, 0);
  variables.push_back(nullptr);
  const char* const words[] = {"sh", "-c", "read -r line", nullptr};
  int ends[2];
  if (::pipe(ends) == 0) ::dup2(ends[0], STDIN_FILENO);
  ::execve("/bin/sh", const_cast<char* const*>(words), const_cast<char* const*>(variables.data()));
  ::_exit(127);
}

TEST(Faults, FindsTheRanksOfThisJob) {
  const cluster::Cluster cluster = cluster::parse_resource_spec(
      "nodes:\n  - {address: 127.0.0.1, chief: true, slots: 2}\n", "c.yml");
  EXPECT_TRUE(running_ranks(cluster, false, 0).empty());
  const pid_t chief = process_with({"AUTODIST_JOB_FD=10"});
  const pid_t other = process_with({"AUTODIST_RANK=1", "AUTODIST_STARTED_BY=1"});
  const pid_t stranger = process_with({"HOME=/"});
  std::vector<RankAt> ranks;
  // Processes become what they are in their own time.
  const auto are_found = [&](std::size_t count, std::uint32_t standby_number) {
    return testing_jobs::happens([&] {
      ranks = running_ranks(cluster, false, standby_number);
      return ranks.size() == count;
    });
  };
  ASSERT_TRUE(are_found(2, 0));
  EXPECT_EQ(ranks[0].pid, -chief);
  EXPECT_EQ(ranks[1].rank, 1U);
  EXPECT_EQ(ranks[1].pid, -other);
  EXPECT_TRUE(running_ranks(cluster, false, 1).empty());
  const pid_t standby = process_with({"AUTODIST_JOB_FD=10", "AUTODIST_STANDBY=1"});
  ASSERT_TRUE(are_found(1, 1));
  EXPECT_EQ(ranks[0].pid, -standby);
  EXPECT_EQ(running_ranks(cluster, false, 0).size(), 2U);
  for (const pid_t pid : {chief, other, stranger, standby}) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace autodist::app
