#include "autodist/job/job_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "autodist/base/error.h"
#include "autodist/job/heart.h"

namespace autodist::job {
namespace {

Environment named(int descriptor) {
  return environment_of({fmt::format("{}={}", JobMemory::kVariable, descriptor)});
}

TEST(JobMemory, WhatAChiefWroteIsThereWhenItIsGone) {
  const JobMemory supervisors;
  const pid_t chief = ::fork();
  if (chief == 0) {
    auto memory = JobMemory::inherited(named(supervisors.descriptor()));
    memory->note_steps(0, 30);
    memory->note_steps(0, 31);
    memory->note_steps(0, 32);
    memory->note_saved(30);
    memory->keep_plan("gan", "first");
    memory->keep_plan("critic", std::string("with\0zero", 9));
    memory->keep_plan("gan", "second");
    memory->note_folder("gan/", "/checkpoints");
    memory->note_folder("critic/", "/others");
    memory->begin_snapshot();
    memory->add_to_snapshot("gan/model", {"bytes"});
    memory->end_snapshot(31);
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(chief, &status, 0);
  ASSERT_EQ(status, 0);
  const JobMemory::Progress progress = supervisors.progress();
  EXPECT_EQ(progress.first, 30);
  EXPECT_EQ(progress.done, 32);
  EXPECT_EQ(progress.saved, 30);
  EXPECT_TRUE(progress.trained);
  EXPECT_EQ(supervisors.plan("gan"), "second");
  EXPECT_EQ(supervisors.plan("critic"), std::string("with\0zero", 9));
  EXPECT_FALSE(supervisors.plan("another"));
  EXPECT_EQ(supervisors.folder_of_snapshot(), "/checkpoints");
  EXPECT_EQ(JobMemory().folder_of_snapshot(), "");
}

TEST(JobMemory, AStandbyLearnsItsTurnAndItsCheckpoint) {
  JobMemory memory;
  memory.keep_plan("gan", "plan");
  EXPECT_EQ(memory.plans_kept(), 1);
  EXPECT_EQ(memory.standing_by().standby, 0U);
  memory.note_standing_by(1);
  memory.note_standing_by(1);
  EXPECT_EQ(memory.standing_by().standby, 1U);
  EXPECT_EQ(memory.standing_by().beats, 2);
  EXPECT_FALSE(memory.turn_of(1));
  memory.note_trials(true);
  EXPECT_TRUE(memory.tries_plans());
  memory.begin_generation();  // one that did not stand by
  EXPECT_FALSE(memory.tries_plans());
  EXPECT_FALSE(memory.turn_of(1));
  memory.begin_generation(1, "saved/step-20");
  EXPECT_EQ(memory.turn_of(1), "saved/step-20");
  EXPECT_EQ(memory.standby_that_runs(), 1U);
  EXPECT_FALSE(memory.turn_of(2));
  memory.begin_generation(2);
  EXPECT_EQ(memory.turn_of(2), "");
  memory.begin_generation();
  EXPECT_EQ(memory.standby_that_runs(), 0U);
  EXPECT_EQ(memory.plans_kept(), 1);
  EXPECT_EQ(memory.plan("gan"), "plan");
  EXPECT_EQ(memory.folder_of_snapshot(), "");
}

TEST(JobMemory, HowTheJobCameBackIsKept) {
  JobMemory memory;
  EXPECT_TRUE(memory.recoveries().empty());
  for (int i = 0; i < 70; ++i) memory.note_recovery({i, 3, 0.5});
  memory.begin_generation();
  ASSERT_EQ(memory.recoveries().size(), 64U);
  EXPECT_EQ(memory.recoveries().front().step, 6);
  EXPECT_EQ(memory.recoveries().back().step, 69);
  EXPECT_EQ(memory.recoveries().back().steps_again, 3);
}

TEST(JobMemory, AChiefIsHeardUntilItNeedNotBe) {
  JobMemory memory;
  EXPECT_EQ(memory.heartbeats().beats, 0);
  memory.beat(Seconds{20});
  memory.beat(Seconds{20});
  EXPECT_EQ(memory.heartbeats().beats, 2);
  EXPECT_EQ(memory.heartbeats().silence_limit, Seconds{20});
  {
    const Heart heart(memory, Seconds{0.01}, Seconds{6});
    EXPECT_EQ(memory.heartbeats().silence_limit, Seconds{6});
    EXPECT_EQ(memory.heartbeats().process, ::getpid());
    while (memory.heartbeats().beats < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(memory.heartbeats().silence_limit, Seconds{0});
  memory.begin_generation();
  EXPECT_EQ(memory.heartbeats().beats, 0);
}

TEST(JobMemory, TheLastLossIsThatOfItsStepAlone) {
  JobMemory memory;
  EXPECT_FALSE(memory.last_loss(0));
  memory.note_last_loss(300, 0.25);
  memory.begin_generation();
  EXPECT_EQ(memory.last_loss(300), 0.25);
  EXPECT_FALSE(memory.last_loss(299));
}

TEST(JobMemory, AGenerationComparesItsLossesWithThoseOfEarlierOnes) {
  JobMemory memory;
  EXPECT_FALSE(memory.compare_loss(5, 7, 0.25));
  EXPECT_FALSE(memory.compare_loss(5, 7, 0.5));
  memory.begin_generation();
  EXPECT_EQ(memory.compare_loss(5, 7, 0.75), 0.5);
  memory.forget_compared_losses();
  memory.begin_generation();
  EXPECT_FALSE(memory.compare_loss(5, 7, 0.75));
}

TEST(JobMemory, WhatRanksComputeWithIsThatOfTheStartBefore) {
  JobMemory memory;
  const std::vector<std::string> two{"A with 1 thread", "B with 2 threads"};
  EXPECT_TRUE(memory.note_computing(0, two).empty());
  EXPECT_TRUE(memory.note_computing(1, {"A"}).empty()) << "another job of the program";
  memory.begin_generation();
  EXPECT_EQ(memory.note_computing(0, {"A", "C"}), two);
  memory.begin_generation();
  EXPECT_EQ(memory.note_computing(0, two), (std::vector<std::string>{"A", "C"}));
  EXPECT_EQ(memory.note_computing(1, {"A"}), std::vector<std::string>{"A"});
}

TEST(JobMemory, MachinesAreUnusableForAGeneration) {
  JobMemory memory;
  memory.note_unusable({"10.0.0.2", "fd09::3"});
  memory.note_unusable({"10.0.0.4"});
  EXPECT_EQ(memory.unusable(), (std::vector<std::string>{"10.0.0.2", "fd09::3", "10.0.0.4"}));
  memory.note_unusable({std::string(3000, 'x'), "y"});
  EXPECT_EQ(memory.unusable().size(), 3U) << "as many as fit";
  memory.begin_generation();
  EXPECT_TRUE(memory.unusable().empty());
}

TEST(JobMemory, AGenerationKnowsWhatWasSavedAndHasDoneNothing) {
  JobMemory memory;
  EXPECT_FALSE(memory.progress().trained);
  memory.note_steps(0, 0);
  EXPECT_FALSE(memory.progress().trained);
  memory.note_steps(0, 1);
  memory.note_saved(1);
  memory.begin_generation();
  EXPECT_FALSE(memory.progress().trained);
  EXPECT_EQ(memory.progress().done, -1);
  EXPECT_EQ(memory.progress().saved, 1);
}

// Cross-validation: a model per fold, and a loss in the second one.
TEST(JobMemory, AProgramsModelsAreCountedEachByItself) {
  JobMemory memory;
  for (std::int64_t done = 0; done <= 100; ++done) memory.note_steps(0, done);
  for (std::int64_t done = 0; done <= 30; ++done) memory.note_steps(1, done);
  EXPECT_TRUE(memory.progress().trained) << "in fewer steps than the first one";
  EXPECT_EQ(memory.progress().furthest, 30);
  EXPECT_EQ(memory.progress().furthest_all, 130);
  memory.begin_generation();
  memory.note_steps(0, 40);
  memory.note_steps(0, 41);
  EXPECT_EQ(memory.progress().furthest_before, 100) << "60 steps of it are done once more";
  EXPECT_EQ(memory.progress().furthest_all, 130) << "no further than before";
  memory.note_steps(1, 30);
  EXPECT_EQ(memory.progress().first, 30);
  memory.note_steps(1, 31);
  EXPECT_EQ(memory.progress().furthest_all, 131);
  EXPECT_EQ(memory.progress().furthest_before, 30) << "however far it is by now";
  memory.note_steps(40, 7);
  memory.note_steps(41, 9);
  EXPECT_EQ(memory.progress().furthest_all, 140) << "those beyond what fits are one";
}

TEST(JobMemory, KeepsASnapshotUntilTheNextIsComplete) {
  JobMemory memory;
  EXPECT_EQ(memory.progress().kept, -1);
  EXPECT_FALSE(memory.from_snapshot("model"));
  memory.keep_plan("gan", "plan");
  for (std::int64_t step = 5; step < 9; ++step) {
    memory.begin_snapshot();
    const std::string half(static_cast<std::size_t>(50'000 * (10 - step)), static_cast<char>(step));
    memory.add_to_snapshot("model", {half, half});
    EXPECT_EQ(memory.progress().kept, step == 5 ? -1 : step - 1) << "it is not complete";
    const std::string state = std::to_string(step);
    memory.add_to_snapshot("state", {state});
    memory.end_snapshot(step);
    EXPECT_EQ(memory.progress().kept, step);
  }
  memory.begin_generation();
  EXPECT_EQ(memory.from_snapshot("state"), "8");
  EXPECT_EQ(memory.from_snapshot("model"), std::string(200'000, '\x08'));
  EXPECT_FALSE(memory.from_snapshot("replica"));
  EXPECT_EQ(memory.files_of_snapshot(), (std::vector<std::string>{"model", "state"}));
  EXPECT_EQ(memory.plan("gan"), "plan");
  memory.note_saved(6);
  memory.note_saved(9, /*is_snapshot=*/true);
  EXPECT_EQ(memory.progress().saved, 9);
  memory.forget_snapshot();
  EXPECT_EQ(memory.progress().kept, -1);
  EXPECT_EQ(memory.progress().saved, 6);
  EXPECT_FALSE(memory.from_snapshot("state"));
}

TEST(JobMemory, AChiefThatDiesInASnapshotLeavesTheOneBefore) {
  JobMemory supervisors;
  const pid_t chief = ::fork();
  if (chief == 0) {
    auto memory = JobMemory::inherited(named(supervisors.descriptor()));
    for (const std::int64_t step : {7, 9}) {
      memory->begin_snapshot();
      const std::string state = std::to_string(step);
      memory->add_to_snapshot("model", {state});
      if (step == 9) ::_exit(0);
      memory->end_snapshot(step);
    }
  }
  int status = 1;
  ::waitpid(chief, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(supervisors.progress().kept, 7);
  EXPECT_EQ(supervisors.from_snapshot("model"), "7");
}

TEST(JobMemory, WhatAChiefStartsDoesNotInheritIt) {
  const JobMemory memory;
  EXPECT_EQ(::fcntl(memory.descriptor(), F_GETFD) & FD_CLOEXEC, 0) << "a chief does";
  const auto chiefs = JobMemory::inherited(named(memory.descriptor()));
  ASSERT_TRUE(chiefs);
  EXPECT_NE(::fcntl(memory.descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(chiefs->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(JobMemory, AnotherDescriptorIsRefused) {
  EXPECT_FALSE(JobMemory::inherited(environment_of({})));
  for (const int descriptor : {STDERR_FILENO, 987'654}) {
    try {
      JobMemory::inherited(named(descriptor));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(error.what()).find("AUTODIST_JOB_FD"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace autodist::job
