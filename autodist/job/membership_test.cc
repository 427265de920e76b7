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
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}), Lines{});
  job.note_training();
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}), Lines{});
  EXPECT_EQ(job.note_failed_start({}), Lines{}) << "another reason";
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}), Lines{});
  EXPECT_EQ(job.note_failed_start({"10.0.0.3"}), Lines{}) << "another machine";
  EXPECT_TRUE(job.lost().empty());
}

TEST(Membership, OneThatIsMissingTwiceIsLeftOutWhereFewerRanksAreAllowed) {
  Membership job(three_machines(), false, 2);
  job.note_failed_start({"10.0.0.2"});
  EXPECT_EQ(job.note_failed_start({"10.0.0.2"}),
            Lines{"10.0.0.2 could not be used at 2 starts in a row: the job goes on without it, "
                  "with 2 of 4 ranks"});
  EXPECT_EQ(job.lost(), Lines{"10.0.0.2"});
  EXPECT_EQ(job.cluster().nodes.size(), 2U);
  job.note_failed_start({"10.0.0.3"});
  EXPECT_EQ(job.note_failed_start({"10.0.0.3"}), Lines{}) << "one rank would be left";
  EXPECT_EQ(job.hint(),
            "--min-ranks 1 lets the job go on without 10.0.0.3; a node with `spare: "
            "true` in the cluster file takes a lost one's place");
}

TEST(Membership, AsManyRanksAsAtTheBeginningUnlessFewerAreAllowed) {
  Membership job(three_machines(), false, std::nullopt);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(job.note_failed_start({"10.0.0.3"}), Lines{});
  EXPECT_EQ(job.hint().substr(0, 13), "--min-ranks 3");
}

TEST(Membership, SparesComeFirst) {
  Membership job(three_machines("  - {address: 10.0.0.9, slots: 2, spare: true}\n"), false, 3);
  job.note_failed_start({"10.0.0.2", "10.0.0.3"});
  EXPECT_EQ(job.note_failed_start({"10.0.0.2", "10.0.0.3"}),
            (Lines{"10.0.0.2 could not be used at 2 starts in a row: 10.0.0.9, a spare, takes its "
                   "place",
                   "10.0.0.3 could not be used at 2 starts in a row: the job goes on without it, "
                   "with 3 of 4 ranks"}));
  EXPECT_EQ(job.cluster().nodes[1].address, "10.0.0.9");
  EXPECT_EQ(job.note_failed_start({"10.0.0.9"}), Lines{}) << "a spare may be missing once, too";
}

TEST(Membership, TheChiefsMachineKeepsItsPlace) {
  Membership job(three_machines(), false, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(job.note_failed_start({"10.0.0.1"}), Lines{});
  EXPECT_EQ(job.hint(), "");
}

}  // namespace
}  // namespace autodist::job
