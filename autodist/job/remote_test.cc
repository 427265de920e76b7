#include "autodist/job/remote.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/job/subprocess.h"
#include "tests/happens.h"

namespace autodist::job {
namespace {

RemoteProgram shell(const std::string& script) {
  RemoteProgram program;
  program.command = {"/bin/sh", {"sh", "-c", script, "sh", "it's $HOME; `id`", ""}};
  program.folder = "/usr/share";
  program.environment = {"OMP_NUM_THREADS=3", "AUTODIST_NOTE=a 'b' \"c\" $D"};
  return program;
}

JobPlace place() {
  JobPlace place;
  place.rank = 2;
  place.size = 3;
  place.chief_address = "10.0.0.1";
  place.chief_port = 4711;
  place.own_address = "";
  place.key = "0123456789abcdef";
  return place;
}

struct Outcome {
  std::string output;
  std::string failure;
};

// By a shell of this machine, which is wanted until it has written `last`.
Outcome run_script(const RemoteProgram& program, const cluster::SshConfig& ssh = {},
                   const std::string& last = "") {
  RankProcess process;
  process.node = "10.0.0.2";
  process.command = {"sh", {"sh", "-s"}};
  process.input = script_of(program, ssh, place());
  Outcome run;
  std::atomic<bool> told{false};
  StartedRanks ranks({process}, [&](std::uint32_t, const std::string& line) {
    told = told || line == last;
    run.output += line + "\n";
  });
  while (!last.empty() && !told) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (told) ranks.stop();
  while (ranks.any_runs()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  run.failure = ranks.failure().value_or("");
  return run;
}

TEST(RemoteScript, CarriesArgumentsEnvironmentFolderAndKeyAsTheyAre) {
  const Outcome finished = run_script(
      shell("pwd; echo \"$1|$2|$#\"; echo $OMP_NUM_THREADS \"$AUTODIST_NOTE\"; echo $AUTODIST_RANK "
            "$AUTODIST_SIZE $AUTODIST_CHIEF $AUTODIST_ADDRESS; cat <&$AUTODIST_KEY_FD"));
  EXPECT_EQ(finished.output,
            "/usr/share\nit's $HOME; `id`||2\n3 a 'b' \"c\" $D\n2 3 10.0.0.1:4711\n"
            "0123456789abcdef\n");
  EXPECT_EQ(finished.failure, "");
}

TEST(RemoteScript, ThreadsSleepWhileTheyWaitUnlessToldOtherwise) {
  const std::string show = "echo $OMP_WAIT_POLICY-$GOMP_SPINCOUNT";
  EXPECT_EQ(run_script(shell(show)).output, "passive-\n");
  cluster::SshConfig ssh;
  ssh.shared_envs = {{"OMP_WAIT_POLICY", "active"}};
  EXPECT_EQ(run_script(shell(show), ssh).output, "active-\n");
  ssh.shared_envs = {{"GOMP_SPINCOUNT", "100"}};
  EXPECT_EQ(run_script(shell(show), ssh).output, "-100\n");
}

TEST(RemoteScript, EndsAsTheProgramDoes) {
  EXPECT_EQ(run_script(shell("exit 6")).failure, "rank 0 (on 10.0.0.2) ended with exit code 6");
}

TEST(RemoteScript, WhatTheProgramHasStartedEndsWithIt) {
  const Outcome finished = run_script(shell("sleep 61 >/dev/null 2>&1 & echo $!; exit 0"));
  EXPECT_TRUE(testing_jobs::is_gone(std::stoi(finished.output)));
}

// Its standard input ends: whoever started it is gone.
TEST(RemoteScript, TellsTheProgramToEndWhenNobodyWantsItAnyMore) {
  const Outcome finished =
      run_script(shell("trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done"),
                 {}, "ready");
  EXPECT_EQ(finished.output, "ready\ntold\n");
}

TEST(RemoteScript, SettingsOfTheGroupComeFirst) {
  cluster::SshConfig ssh;
  ssh.shared_envs = {{"A", "$PWD:x y"}, {"B", "$(echo no)`echo no`\"\\"}};
  ssh.python_venv = "VENV=here";
  const Outcome finished = run_script(shell("echo \"$A|$B\"; cd /; echo $VENV"), ssh);
  const std::string here = run_to_end({"/bin/pwd"}).output;
  EXPECT_EQ(finished.output, here.substr(0, here.size() - 1) + ":x y|$(echo no)`echo no`\"\\\n\n");
  ssh.python_venv = "false";
  EXPECT_EQ(run_script(shell("echo never"), ssh).output, "python_venv: false: failed\n");
  RemoteProgram nowhere = shell("echo never");
  nowhere.folder = "/no/such/folder";
  EXPECT_NE(run_script(nowhere).output.find("the folder /no/such/folder is not there"),
            std::string::npos);
}

TEST(Ssh, TakesTheGroupsSettings) {
  cluster::Node node;
  node.address = "10.0.0.2";
  EXPECT_EQ(ssh_command(node, {}).back(), "10.0.0.2");
  cluster::SshConfig ssh;
  ssh.username = "me";
  ssh.port = 2200;
  ssh.key_file = "~/.ssh/id";
  const std::vector<std::string> words = ssh_command(node, ssh);
  const std::vector<std::string> end(words.end() - 7, words.end());
  EXPECT_EQ(end,
            (std::vector<std::string>{"-p", "2200", "-i", "~/.ssh/id", "-l", "me", "10.0.0.2"}));
}

TEST(Ssh, ANodeWithoutAGroupIsNamed) {
  cluster::Node node;
  node.address = "10.0.0.2";
  try {
    ssh_of({}, node);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("node 10.0.0.2 is another machine"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace autodist::job
