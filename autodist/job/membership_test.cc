#include "autodist/job/membership.h"

#include <gtest/gtest.h>

namespace autodist::job {
namespace {

using Lines = std::vector<std::string>;

cluster::Cluster three_machines(const std::string& more = "") {
  return cluster::parse_resource_spec(
      "nodes:\n  - {address: 10.0.0.1, chief: true}\n  - {address: 10.0.0.2, slots: 2}\n"
      "  - {address: 10.0.0.3}\n" +
          more,
      "c.yml");
}

TEST(Membership, AMachineMayBeMissingOnce) {
  Membership job(three_machines(), false, 1);
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}).changes, Lines{});
  job.note_training();
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}).changes, Lines{});
  EXPECT_EQ(job.note_failed_start({}).changes, Lines{}) << "another reason";
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}).changes, Lines{});
  EXPECT_EQ(job.note_failed_start({"10.0.0.3"}).changes, Lines{}) << "another machine";
  EXPECT_TRUE(job.lost().empty());
}

TEST(Membership, OneThatIsMissingTwiceIsLeftOutWhereFewerRanksAreAllowed) {
  Membership job(three_machines(), false, 2);
  EXPECT_TRUE(job.note_failed_start({"10.0.0.2"}).second_look);
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}).changes,
            Lines{"10.0.0.2 could not be used at 2 starts in a row: the job goes on without it, "
                  "with 2 of 4 ranks"});
  EXPECT_EQ(job.lost(), Lines{"10.0.0.2"});
  EXPECT_EQ(job.cluster().nodes.size(), 2U);
  EXPECT_FALSE(job.note_failed_start({"10.0.0.3"}).second_look) << "one rank would be left";
  EXPECT_EQ(job.note_failed_start({"10.0.0.3"}).changes, Lines{}) << "one rank would be left";
  EXPECT_EQ(job.hint(),
            "--min-ranks 1 lets the job go on without 10.0.0.3; a node with `spare: "
            "true` in the cluster file takes a lost one's place");
}

TEST(Membership, AsManyRanksAsAtTheBeginningUnlessFewerAreAllowed) {
  Membership job(three_machines(), false, std::nullopt);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(job.note_failed_start({"10.0.0.3"}).changes, Lines{});
  EXPECT_EQ(job.hint().substr(0, 13), "--min-ranks 3");
}

TEST(Membership, SparesComeFirst) {
  Membership job(three_machines("  - {address: 10.0.0.4}\n"
                                "  - {address: 10.0.0.9, slots: 2, spare: true}\n"),
                 false, 3);
  EXPECT_TRUE(job.note_failed_start({"10.0.0.2", "10.0.0.3"}).second_look);
  EXPECT_EQ(job.note_failed_start({"10.0.0.2", "10.0.0.3"}).changes,
            (Lines{"10.0.0.2 could not be used at 2 starts in a row: 10.0.0.9, a spare, takes its "
                   "place",
                   "10.0.0.3 could not be used at 2 starts in a row: the job goes on without it, "
                   "with 4 of 5 ranks"}));
  EXPECT_EQ(job.cluster().nodes[1].address, "10.0.0.9");
  EXPECT_EQ(job.note_failed_start({"10.0.0.9"}).changes, Lines{})
      << "a spare may be missing once, too";
}

TEST(Membership, ASpareWithFewerRanksNeedsLeaveForFewer) {
  const cluster::Cluster cluster = three_machines("  - {address: 10.0.0.9, spare: true}\n");
  Membership job(cluster, false, std::nullopt);
  job.note_failed_start({"10.0.0.2"});
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}).changes, Lines{});
  EXPECT_EQ(job.hint(),
            "with 10.0.0.9, a spare, in the place of 10.0.0.2 the job has 3 ranks: --min-ranks 3 "
            "allows that");
}

TEST(Membership, WhereNobodyElseAnswersItIsThisMachinesNetwork) {
  Membership job(three_machines(), false, 1);
  for (int i = 0; i < 3; ++i) {
    const auto after = job.note_failed_start({"10.0.0.2", "10.0.0.3"});
    EXPECT_EQ(after.changes, Lines{});
    EXPECT_FALSE(after.second_look);
  }
  EXPECT_EQ(job.hint(), "no other machine could be used: look at the network of this one");
}

TEST(Membership, AMachineThatComesAndGoesHasOneSecondLook) {
  Membership job(three_machines(), false, 1);
  EXPECT_TRUE(job.note_failed_start({"10.0.0.2"}).second_look);
  EXPECT_FALSE(job.note_failed_start({}).second_look);
  EXPECT_FALSE(job.note_failed_start({"10.0.0.2"}).second_look) << "it was had";
  job.note_training();
  EXPECT_TRUE(job.note_failed_start({"10.0.0.2"}).second_look);
}

TEST(Membership, TheChiefsMachineKeepsItsPlace) {
  Membership job(three_machines(), false, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(job.note_failed_start({"10.0.0.1"}).changes, Lines{});
  EXPECT_EQ(job.hint(), "");
}

}  // namespace
}  // namespace autodist::job
