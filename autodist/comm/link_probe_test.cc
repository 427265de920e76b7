#include "autodist/comm/link_probe.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "autodist/comm/agreement.h"
#include "autodist/comm/in_process.h"

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

}  // namespace
}  // namespace autodist::comm
