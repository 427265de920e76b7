// What C++ loops do between steps, and how they end: taken for what it is, or refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;
using testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

Ended loop(const std::string& what, int ranks, const std::string& builder = "AllReduce") {
  const Scratch scratch;
  Process job({kTestPrograms + "/loop_job", what, "local:" + std::to_string(ranks), builder},
              scratch);
  const int code = job.wait(60s);
  return {code, job.out(), job.err()};
}

// No counter of libtorch sees it.
TEST(Loops, AWriteThroughDataThatNobodyWaitedForIsRefused) {
  for (const char* const builder : {"AllReduce", "PS", "PSLoadBalancing:staleness=1"}) {
    for (const int ranks : {1, 2}) {
      const Ended ended = loop("written", ranks, builder);
      EXPECT_NE(ended.code, 0) << builder << " " << ranks << " " << ended.out;  // 5: of the other
      EXPECT_THAT(ended.err, HasSubstr("somebody has written to 'first.weight'"));
    }
  }
}

TEST(Loops, AWriteThroughDataBehindASynchronizeIsTheNewValue) {
  const std::string one = loop("synchronized", 1).out;
  EXPECT_THAT(one, HasSubstr("trained, "));
  EXPECT_NE(one, loop("nothing", 1).out);
  for (const char* const builder : {"AllReduce", "PS"}) {
    const Ended ended = loop("synchronized", 2, builder);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("trained, "));
  }
}

TEST(Loops, AParameterThatIsFrozenIsRefused) {
  const Ended ended = loop("frozen", 2);
  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("'first.weight' was trained and does not require a gradient"));
}

TEST(Loops, ALearningRateOutOfItsRangeIsRefused) {
  const Ended ended = loop("negative", 1);
  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("lr=-0.1 is out of range"));
}

TEST(Loops, AreOverInOrderWithoutFinish) {
  for (int round = 0; round < 6; ++round) {
    const Ended ended = loop("unfinished", 2);
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
}

TEST(Loops, AnExceptionOfARankReachesTheChief) {
  const Ended ended = loop("thrown", 2);
  EXPECT_EQ(ended.code, 5) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("left: an exception ended its loop; "));
  EXPECT_THAT(ended.err, HasSubstr("its last line: trouble in the loop"));
}

TEST(Loops, AChiefThatLeavesItsLoopEndsTheJobInOrder) {
  const Ended ended = loop("left", 2);
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST(Loops, AreEvaluatedInEvaluationModeAndGoOnInTheirOwn) {
  for (const int ranks : {1, 2}) {
    const Ended ended = loop("evaluated", ranks);
    EXPECT_THAT(ended.out, HasSubstr("evaluated, difference 0, modes kept")) << ended.err;
    EXPECT_EQ(ended.code, 0) << ended.err;
  }
}

TEST(Loops, BatchesAreCheckedOnOneRankAsOnSeveral) {
  for (const int ranks : {1, 2}) {
    const std::string out = loop("batches", ranks).out;
    EXPECT_THAT(out, HasSubstr("2 batch: 0 tensors, the step was captured with 2"));
    EXPECT_THAT(out, HasSubstr("2 batch: 1 tensors, the step was captured with 2"));
    EXPECT_THAT(out, HasSubstr("2 batch: input 'input0' is an undefined tensor"));
    EXPECT_THAT(out, HasSubstr("2 batch: input 'input1' has 7 rows, the others 8"));
    EXPECT_THAT(out, HasSubstr("trained, "));
  }
}

}  // namespace
}  // namespace autodist
