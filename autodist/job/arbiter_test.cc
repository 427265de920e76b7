#include "autodist/job/arbiter.h"

#include <gtest/gtest.h>

#include <csignal>

namespace autodist::job {
namespace {

TEST(Arbiter, StartsAJobAgainThatHasLostARank) {
  Arbiter arbiter(3);
  const auto pause = arbiter.again(GenerationEnd::kLost, 37);
  ASSERT_TRUE(pause);
  EXPECT_EQ(pause->value, 0);
  EXPECT_EQ(arbiter.in_a_row(), 1U);
  EXPECT_EQ(arbiter.furthest(), 37);
}

TEST(Arbiter, AJobThatHasNeverTrainedIsOver) {
  EXPECT_FALSE(Arbiter(3).again(GenerationEnd::kLost, std::nullopt));
  EXPECT_FALSE(Arbiter(3).again(GenerationEnd::kEnvironment, std::nullopt));
}

TEST(Arbiter, WhatEndsInOrderOrIsRefusedIsOver) {
  EXPECT_FALSE(Arbiter(3).again(GenerationEnd::kInOrder, 37));
  EXPECT_FALSE(Arbiter(3).again(GenerationEnd::kRefused, 37));
}

TEST(Arbiter, GivesUpWhereTheJobGetsNoFurther) {
  Arbiter arbiter(3);
  EXPECT_TRUE(arbiter.again(GenerationEnd::kLost, 100));
  EXPECT_EQ(arbiter.again(GenerationEnd::kLost, 100)->value, 1);  // the same step again
  EXPECT_EQ(arbiter.again(GenerationEnd::kLost, 90)->value, 2);
  EXPECT_FALSE(arbiter.gave_up());
  EXPECT_FALSE(arbiter.again(GenerationEnd::kLost, std::nullopt));
  EXPECT_TRUE(arbiter.gave_up());
}

TEST(Arbiter, AJobThatEndsAfterItsLastStartHasNotGivenUp) {
  Arbiter arbiter(1);
  EXPECT_TRUE(arbiter.again(GenerationEnd::kLost, 39));
  EXPECT_FALSE(arbiter.again(GenerationEnd::kInOrder, 39));
  EXPECT_FALSE(arbiter.gave_up());
}

TEST(Arbiter, CountsAnewWhereTheJobGetsFurther) {
  Arbiter arbiter(2);
  for (std::int64_t step = 1; step < 100; ++step) {
    ASSERT_TRUE(arbiter.again(GenerationEnd::kLost, step)) << step;
    ASSERT_TRUE(arbiter.again(GenerationEnd::kLost, step)) << step;
  }
  EXPECT_FALSE(arbiter.again(GenerationEnd::kLost, 99));
}

// A machine that restarts is not there for a while.
TEST(Arbiter, WaitsLongerAndLongerForAMachine) {
  Arbiter arbiter(9);
  EXPECT_EQ(arbiter.again(GenerationEnd::kLost, 5)->value, 0);
  for (const double pause : {1, 2, 4, 8, 16, 30, 30, 30}) {
    EXPECT_EQ(arbiter.again(GenerationEnd::kEnvironment, std::nullopt)->value, pause);
  }
  EXPECT_FALSE(arbiter.again(GenerationEnd::kEnvironment, std::nullopt));
}

TEST(Arbiter, NoRestartsAreNone) { EXPECT_FALSE(Arbiter(0).again(GenerationEnd::kLost, 37)); }

TEST(Arbiter, TellsLossesFromRefusals) {
  EXPECT_EQ(end_of_exit(0), GenerationEnd::kInOrder);
  EXPECT_EQ(end_of_exit(5), GenerationEnd::kLost);
  EXPECT_EQ(end_of_exit(124), GenerationEnd::kLost);
  EXPECT_EQ(end_of_signal(SIGKILL), GenerationEnd::kLost);
  EXPECT_EQ(end_of_signal(SIGSEGV), GenerationEnd::kLost);
  EXPECT_EQ(end_of_signal(SIGTERM), GenerationEnd::kInOrder) << "somebody has asked for it twice";
  EXPECT_EQ(end_of_exit(3), GenerationEnd::kEnvironment);
  for (const int code : {2, 4, 6, 7, 70}) EXPECT_EQ(end_of_exit(code), GenerationEnd::kRefused);
  EXPECT_EQ(end_of_exit(1), GenerationEnd::kLost) << "a program's own exception";
  EXPECT_EQ(end_of_exit(255), GenerationEnd::kLost) << "ssh's";
  EXPECT_EQ(end_of_exit(128 + SIGKILL), GenerationEnd::kLost) << "a shell's";
  EXPECT_EQ(end_of_exit(128 + SIGINT), GenerationEnd::kInOrder);
}

}  // namespace
}  // namespace autodist::job
