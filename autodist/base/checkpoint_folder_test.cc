#include "autodist/base/checkpoint_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "autodist/base/error.h"

namespace autodist {
namespace {

// What taking the folder says, in a process of its own: 0 for nothing, 1 for the refusal that is
// meant, 2 for another one.
int outcome_elsewhere(const std::string& path, const std::string& meant) {
  const pid_t child = ::fork();
  if (child == 0) {
    int outcome = 0;
    try {
      const CheckpointFolder folder("--save", path);
    } catch (const Error& error) {
      outcome = std::string(error.what()).find(meant) == std::string::npos ? 2 : 1;
    }
    ::_exit(outcome);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(CheckpointFolder, IsOneProcesssAtATime) {
  const std::string path = ::testing::TempDir() + "/autodist-folder-" + std::to_string(::getpid());
  const std::string lock = path + "/.lock";
  {
    const CheckpointFolder first("--save", path + "/made/too");
    const CheckpointFolder folder("--save", path);
    {
      const CheckpointFolder again("save", path);  // a second job of this process
    }
    EXPECT_TRUE(std::filesystem::exists(lock));
    EXPECT_EQ(outcome_elsewhere(path, "another job writes its checkpoints there (process " +
                                          std::to_string(::getpid()) + " on "),
              1);
  }
  EXPECT_FALSE(std::filesystem::exists(lock));
  EXPECT_EQ(outcome_elsewhere(path, ""), 0);
  // A holder that is killed leaves its file, and no lock.
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointFolder folder("--save", path);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(lock));
  EXPECT_NO_THROW(CheckpointFolder("--save", path));
  std::filesystem::remove_all(path);
}

// As a worker of a data loader does for some seconds.
TEST(CheckpointFolder, EndsWithItsHolderWhereAForkedProcessLivesOn) {
  const std::string path = ::testing::TempDir() + "/autodist-forked-" + std::to_string(::getpid());
  int until[2];
  ASSERT_EQ(::pipe(until), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const CheckpointFolder folder("--save", path);
    if (::fork() == 0) {
      ::close(until[1]);
      char byte = 0;
      (void)!::read(until[0], &byte, 1);
      ::_exit(0);
    }
    ::_exit(0);
  }
  ::waitpid(holder, nullptr, 0);
  EXPECT_NO_THROW(CheckpointFolder("--save", path));
  ::close(until[1]);
  ::close(until[0]);
  std::filesystem::remove_all(path);
}

TEST(CheckpointFolder, WhatCannotBeWrittenToIsRefused) {
  for (const std::string path : {"/proc/nope", "/dev/null/below"}) {
    try {
      const CheckpointFolder folder("--save", path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
      EXPECT_EQ(std::string(error.what()).find("--save " + path + ": the folder cannot be made"),
                0U)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace autodist
