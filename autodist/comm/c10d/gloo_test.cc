#include "autodist/comm/c10d/gloo.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/library_probe.h"
#include "autodist/comm/testing/in_process.h"

namespace autodist::comm {
namespace {

constexpr Seconds kLimit{20};

// Runs `body` at every rank, each on its own thread with its own collectives.
void at_every_rank(RankNumber size, Seconds limit,
                   const std::function<void(Transport&, Collectives&)>& body) {
  InProcessHub hub(size);
  std::vector<std::future<void>> ranks;
  for (RankNumber rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto transport = hub.connect(rank);
      const auto gloo = make_gloo(*transport, "127.0.0.1", limit);
      body(*transport, *gloo);
      all_gather(*transport, "", "end", kLimit);
    }));
  }
  for (auto& rank : ranks) rank.get();
}

template <typename Number>
void sums(RankNumber size, DType dtype) {
  at_every_rank(size, kLimit, [&](Transport& transport, Collectives& gloo) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}}) {
      std::vector<Number> values(count);
      std::iota(values.begin(), values.end(), static_cast<Number>(transport.self()));
      gloo.all_reduce(values.data(), count, dtype);
      const auto ranks = static_cast<Number>(size);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], ranks * static_cast<Number>(i) + ranks * (ranks - 1) / 2) << i;
      }
    }
  });
}

TEST(Gloo, SumsFloats) {
  for (const RankNumber size : {2u, 3u}) sums<float>(size, DType::kFloat32);
}

TEST(Gloo, SumsDoubles) {
  for (const RankNumber size : {2u, 3u}) sums<double>(size, DType::kFloat64);
}

TEST(Gloo, IsMeasuredByAllRanksTogether) {
  const SteadyClock clock;
  at_every_rank(3, kLimit, [&](Transport&, Collectives& gloo) {
    const LibraryFigures figures = probe_library(gloo, clock);
    EXPECT_GT(figures.call, Seconds{0});
    EXPECT_GT(figures.bytes_per_s, 0);
  });
}

TEST(Gloo, LeavesTheTransportReadyForTheNextAgreement) {
  at_every_rank(3, kLimit, [](Transport& transport, Collectives& gloo) {
    EXPECT_EQ(gloo.describe(), "gloo over 127.0.0.1, 3 ranks");
    const std::string mine = std::to_string(transport.self());
    EXPECT_EQ(all_gather(transport, mine, "ranks", kLimit),
              (std::vector<std::string>{"0", "1", "2"}));
  });
}

TEST(Gloo, APeerThatStaysAwayIsAnErrorWithinTheLimit) {
  at_every_rank(2, Seconds{0.5}, [](Transport& transport, Collectives& gloo) {
    float value = 1;
    if (transport.self() == 0) {
      const SteadyClock clock;
      const Seconds before = clock.now();
      try {
        gloo.all_reduce(&value, 1, DType::kFloat32);
        ADD_FAILURE() << "rank 1 did not take part";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeersLost) << error.what();
      }
      EXPECT_LT((clock.now() - before).value, 10);
    }
  });
}

TEST(Gloo, AnAbortEndsAWaitForARankThatIsHalted) {
  const SteadyClock clock;
  const Seconds before = clock.now();
  at_every_rank(3, kLimit, [](Transport& transport, Collectives& gloo) {
    if (transport.self() == 2) return;
    std::thread notices([&gloo] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      gloo.abort();
    });
    std::vector<float> values(100'000, 1.0F);
    EXPECT_THROW(gloo.all_reduce(values.data(), values.size(), DType::kFloat32), Error);
    notices.join();
    EXPECT_THROW(gloo.all_reduce(values.data(), values.size(), DType::kFloat32), Error);
  });
  EXPECT_LT((clock.now() - before).value, kLimit.value / 2);
}

TEST(Gloo, ARankThatDoesNotConnectIsNamed) {
  InProcessHub hub(2);
  const auto chief = hub.connect(0);
  try {
    make_gloo(*chief, "127.0.0.1", Seconds{0.3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeersLost);
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
}

TEST(Gloo, RefusesTypesThatItCannotSum) {
  at_every_rank(2, kLimit, [](Transport&, Collectives& gloo) {
    std::uint16_t value = 0;
    EXPECT_THROW(gloo.all_reduce(&value, 1, DType::kBFloat16), Error);
  });
}

}  // namespace
}  // namespace autodist::comm
