#include "autodist/comm/link_probe.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "autodist/comm/agreement.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

TEST(LinkProbe, ChiefLearnsTheWorstOfItsLinksAndTheTransportStaysUsable) {
  constexpr RankNumber kRanks = 3;
  InProcessHub hub(kRanks);
  const SteadyClock clock;
  std::vector<std::optional<LinkFigures>> figures(kRanks);
  std::vector<std::string> agreed(kRanks);
  std::vector<std::thread> ranks;
  for (RankNumber rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto transport = hub.connect(rank);
      figures[rank] = probe_links(*transport, clock, clock, Seconds{30});
      agreed[rank] = broadcast(*transport, 0, "afterwards", "a document", Seconds{30});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ASSERT_TRUE(figures[0]);
  EXPECT_GT(figures[0]->bandwidth_bytes_per_s, 1e6);
  EXPECT_GT(figures[0]->round_trip, Seconds{0});
  EXPECT_GT(figures[0]->message_cost, Seconds{0});
  EXPECT_FALSE(figures[1]);
  EXPECT_FALSE(figures[2]);
  for (const std::string& each : agreed) EXPECT_EQ(each, "afterwards");
}

TEST(LinkProbe, EveryPairIsMeasuredAndAllKnowAllOfThem) {
  constexpr RankNumber kRanks = 7;
  const std::vector<RankNumber> members{0, 2, 3, 5};  // the others are on the same machines
  InProcessHub hub(kRanks);
  const SteadyClock clock;
  std::vector<std::vector<ProbedLink>> links(kRanks);
  std::vector<std::thread> ranks;
  for (RankNumber rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto transport = hub.connect(rank);
      links[rank] = probe_all_links(*transport, members, clock, clock, Seconds{30});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  const std::vector<std::pair<RankNumber, RankNumber>> expected{{0, 2}, {0, 3}, {0, 5},
                                                                {2, 3}, {2, 5}, {3, 5}};
  for (const std::vector<ProbedLink>& of_rank : links) {
    ASSERT_EQ(of_rank.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(of_rank[i].from, expected[i].first);
      EXPECT_EQ(of_rank[i].to, expected[i].second);
      EXPECT_GT(of_rank[i].figures.bandwidth_bytes_per_s, 1e6);
      EXPECT_EQ(of_rank[i].figures.round_trip, links[0][i].figures.round_trip);
    }
  }
}

}  // namespace
}  // namespace autodist::comm
