#include "autodist/comm/agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>

#include "autodist/base/error.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

constexpr Seconds kLimit{20};

// Runs `body` at every rank of a job, each on its own thread, and returns what they threw ("" where
// nothing).
std::vector<std::string> at_every_rank(InProcessHub& hub, RankNumber size,
                                       const std::function<void(Transport&)>& body) {
  std::vector<std::future<std::string>> ranks;
  for (RankNumber rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&hub, &body, rank]() -> std::string {
      const auto transport = hub.connect(rank);
      try {
        body(*transport);
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> thrown;
  for (auto& rank : ranks) thrown.push_back(rank.get());
  return thrown;
}

const std::vector<std::string> kNothing3{"", "", ""};

TEST(Agreement, BroadcastGivesTheRootsBytesToEverybodyWhoeverTheRootIs) {
  InProcessHub hub(3);
  EXPECT_EQ(at_every_rank(hub, 3,
                          [](Transport& transport) {
                            for (RankNumber root = 0; root < 3; ++root) {
                              const std::string mine = "of " + std::to_string(transport.self());
                              EXPECT_EQ(broadcast(transport, root, mine, "greeting", kLimit),
                                        "of " + std::to_string(root));
                            }
                          }),
            kNothing3);
}

TEST(Agreement, BroadcastCarriesLargeModels) {
  const std::string parameters(100'000'001, 'p');
  InProcessHub hub(3);
  EXPECT_EQ(at_every_rank(hub, 3,
                          [&](Transport& transport) {
                            const bool chief = transport.self() == 0;
                            EXPECT_TRUE(broadcast(transport, 0, chief ? parameters : "",
                                                  "parameters", kLimit) == parameters);
                          }),
            kNothing3);
}

TEST(Agreement, GatherGivesEverybodysBytesByRankManyTimesInARow) {
  InProcessHub hub(4);
  EXPECT_EQ(
      at_every_rank(hub, 4,
                    [](Transport& transport) {
                      for (int round = 0; round < 200; ++round) {
                        const std::string mark = ":" + std::to_string(round);
                        const auto all = all_gather(
                            transport, std::to_string(transport.self()) + mark, "marks", kLimit);
                        EXPECT_EQ(all, (std::vector<std::string>{"0" + mark, "1" + mark, "2" + mark,
                                                                 "3" + mark}));
                        const RankNumber root = static_cast<RankNumber>(round) % 4;
                        EXPECT_EQ(broadcast(transport, root, all[root], "mark", kLimit), all[root]);
                      }
                    }),
      (std::vector<std::string>(4)));
}

TEST(Agreement, RanksThatAgreeGoOn) {
  InProcessHub hub(3);
  EXPECT_EQ(at_every_rank(hub, 3,
                          [](Transport& transport) {
                            agree(transport, "program", digest_of("plan"), "12 slices", kLimit);
                          }),
            kNothing3);
}

TEST(Agreement, RanksThatDifferAreToldBothSidesAndWhoHoldsThem) {
  InProcessHub hub(3);
  const auto thrown = at_every_rank(hub, 3, [](Transport& transport) {
    const bool odd = transport.self() == 1;
    agree(transport, "program", digest_of(odd ? "plan b" : "plan a"),
          odd ? "13 slices" : "12 slices", kLimit);
  });
  for (const std::string& message : thrown) {
    EXPECT_NE(message.find(to_string(digest_of("plan a")) + " (12 slices) at ranks 0, 2"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(to_string(digest_of("plan b")) + " (13 slices) at rank 1"),
              std::string::npos)
        << message;
  }
}

TEST(Agreement, ARankThatSaysNothingIsNamed) {
  InProcessHub hub(3);
  const auto thrown = at_every_rank(hub, 3, [](Transport& transport) {
    if (transport.self() != 2) all_gather(transport, "x", "job document", Seconds{0.2});
  });
  EXPECT_NE(thrown[0].find("job document: nothing from rank 2"), std::string::npos) << thrown[0];
}

TEST(Agreement, RanksThatExchangeDifferentThingsAreRefused) {
  InProcessHub hub(2);
  const auto thrown = at_every_rank(hub, 2, [](Transport& transport) {
    const bool chief = transport.self() == 0;
    all_gather(transport, "x", chief ? "plan" : "trace", Seconds{0.5});
  });
  EXPECT_NE(thrown[0].find("sends 'trace' while"), std::string::npos) << thrown[0];
}

TEST(Agreement, ARankThatLeftForAReasonEndsTheWaitWithIt) {
  InProcessHub hub(2);
  const auto chief = hub.connect(0);
  const auto other = hub.connect(1);
  leave(*other, 1, "disk full");
  try {
    all_gather(*chief, "x", "plan", kLimit);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(std::string(error.what()).find("disk full"), std::string::npos);
  }
}

TEST(Agreement, SlicesOfARankThatIsAlreadyFurtherWaitForTheirReader) {
  InProcessHub hub(2);
  const auto chief = hub.connect(0);
  const auto other = hub.connect(1);
  other->send(0, {{FrameKind::kFirstMessage, 1, 0, 1, 1, 1}, Payload::copy_of("early")});
  auto there = std::async(std::launch::async, [&] { all_gather(*other, "b", "plan", kLimit); });
  EXPECT_EQ(all_gather(*chief, "a", "plan", kLimit), (std::vector<std::string>{"a", "b"}));
  there.get();
  EXPECT_EQ(chief->receive(Seconds{1})->payload.to_string(), "early");
}

}  // namespace
}  // namespace autodist::comm
