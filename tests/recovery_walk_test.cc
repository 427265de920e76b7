// All ranks of small jobs are lost, in every order of events, and begin again from a snapshot: by
// the protocol that they follow (protocol/rank.h), by the rule with which an exchange refuses what
// an earlier generation has sent (comm/admission.h), and by the way in which a chief gathers its
// snapshots (exec/gathering.h).

#include <gtest/gtest.h>

#include <set>

#include "autodist/comm/admission.h"
#include "autodist/protocol/testing/small_program.h"
#include "autodist/protocol/testing/walk.h"

namespace autodist::protocol {
namespace {

bool takes(std::uint32_t sent_by, std::uint32_t rank) {
  comm::FrameHeader header;
  header.kind = comm::FrameKind::kFirstMessage;
  header.generation = sent_by;
  return use_of(header, rank) == comm::FrameUse::kTaken;
}

WalkOptions with_a_loss() {
  WalkOptions options;
  options.losses = 1;
  options.snapshots = true;
  options.takes = takes;
  return options;
}

void expect_recovery(const program::Program& program, const WalkOptions& options) {
  const Walked walked = walk(program, options);
  EXPECT_EQ(walked.broken, "");
  EXPECT_GE(walked.ends, 1U + options.losses) << "one for each number of losses that came";
  EXPECT_GT(walked.refused, 0U) << "nothing was on its way when the ranks were lost";
  std::set<Step> versions;
  for (Step step = 0; step < options.steps; ++step) versions.insert(kFirst + step);
  EXPECT_EQ(walked.begun_again, versions);
}

TEST(EveryLoss, OfOwnersEndsAsIfNothingHadBeenLost) {
  expect_recovery(small_program(2, 2, {owned_by(0), owned_by(1)}), with_a_loss());
  expect_recovery(small_program(3, 2, {owned_by(2)}), with_a_loss());
  WalkOptions options = with_a_loss();
  options.steps = 3;
  expect_recovery(small_program(2, 2, {owned_by(1)}), options);
}

TEST(EveryLoss, WhereEveryRankUpdatesEndsAsIfNothingHadBeenLost) {
  const program::Program program =
      small_program(2, 2, {owned_by(0, every_rank()), owned_by(1, every_rank())});
  expect_recovery(program, with_a_loss());
}

TEST(EveryLoss, OfNormsAndFlagsEndsAsIfNothingHadBeenLost) {
  for (const program::Slice& rules : {program::Slice{}, every_rank()}) {
    const auto job = [&](bool clipped, bool scaled) {
      return small_program(2, 2, {owned_by(1, rules)}, clipped, ir::Rule::kSgd, scaled);
    };
    expect_recovery(job(true, false), with_a_loss());
    expect_recovery(job(false, true), with_a_loss());
  }
}

TEST(EveryLoss, OfASecondGenerationEndsAsIfNothingHadBeenLost) {
  WalkOptions options = with_a_loss();
  options.losses = 2;
  expect_recovery(small_program(2, 2, {owned_by(1)}), options);
}

// Where ranks take what an earlier generation has sent, a contribution counts twice.
TEST(EveryLoss, IsNotOvercomeByRanksThatTakeFramesOfAnEarlierGeneration) {
  WalkOptions options = with_a_loss();
  options.takes = {};
  EXPECT_NE(walk(small_program(2, 2, {owned_by(0), owned_by(1)}), options).broken, "");
  EXPECT_NE(walk(small_program(2, 2, {owned_by(0, every_rank())}), options).broken, "");
}

// The question alone is lost with a connection, and comes again behind what came after it.
TEST(EveryLoss, OfASnapshotThatIsAskedForTooLateGoesBackToTheOneBefore) {
  WalkOptions options = with_a_loss();
  options.late_questions = true;
  options.steps = 3;
  const Walked walked = walk(small_program(2, 2, {owned_by(1)}), options);
  EXPECT_EQ(walked.broken, "");
  EXPECT_GT(walked.ends, 2U) << "with a snapshot that was given up, and without";
  options.owners_compare = false;
  EXPECT_NE(walk(small_program(2, 2, {owned_by(1)}), options).broken, "") << "nobody refuses it";
}

}  // namespace
}  // namespace autodist::protocol
