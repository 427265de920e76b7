// What C++ loops do between steps, and how they end: taken for what it is, or refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/process.h"

namespace autodist {
namespace {

using namespace testing_jobs;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

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

// Of the first weights; 0 and a failure where the loop has not come to its end.
double trained_norm(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.err;
  double norm = 0;
  EXPECT_EQ(std::sscanf(ended.out.c_str(), "trained, %lf", &norm), 1) << ended.out;
  return norm;
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
  const double one = trained_norm(loop("synchronized", 1));
  EXPECT_LT(one, 0.7 * trained_norm(loop("nothing", 1)));
  for (const char* const builder : {"AllReduce", "PS"}) {  // batch norm has other batches there
    EXPECT_NEAR(trained_norm(loop("synchronized", 2, builder)), one, 0.1 * one);
  }
}

TEST(Loops, AParameterThatIsFrozenIsRefused) {
  const Ended ended = loop("frozen", 2);
  EXPECT_TRUE(ended.code == 2 || ended.code == 5) << ended.code;  // 5: the other rank said it first
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
  // Or, where its process was gone when the chief looked: "ended with exit code 1; …".
  EXPECT_THAT(ended.err, HasSubstr("; its last line: trouble in the loop"));
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
    EXPECT_THAT(out, Not(HasSubstr("taken")));
    EXPECT_THAT(out, HasSubstr("trained, "));
  }
}

}  // namespace
}  // namespace autodist
