#include "autodist/comm/c10d/make_collectives.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/c10d/nccl.h"
#include "autodist/comm/testing/in_process.h"
#include "tests/outcome_of.h"
#ifdef AUTODIST_GIVEN_NCCL
#include "autodist/comm/c10d/given_nccl.h"
#endif

namespace autodist::comm {
namespace {

constexpr Seconds kLimit{20};

// What ranks on these devices agree on.
CollectiveLibrary library_of(const std::vector<std::string>& devices) {
  InProcessHub hub(static_cast<RankNumber>(devices.size()));
  std::vector<std::future<CollectiveLibrary>> ranks;
  for (RankNumber rank = 0; rank < devices.size(); ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto transport = hub.connect(rank);
      return library_for(*transport, devices[rank], kLimit);
    }));
  }
  const CollectiveLibrary library = ranks.front().get();
  for (std::size_t i = 1; i < ranks.size(); ++i) EXPECT_EQ(ranks[i].get(), library);
  return library;
}

// What a rank that is alone is refused with.
std::string refusal_on(const std::string& device) {
  InProcessHub hub(1);
  const auto transport = hub.connect(0);
  return testing_jobs::refusal([&] { make_collectives(*transport, "127.0.0.1", device, kLimit); });
}

const CollectiveLibrary kThroughHost =
    has_gloo() ? CollectiveLibrary::kGloo : CollectiveLibrary::kNone;

TEST(CollectiveLibrary, OfCpusSumsOnTheHost) {
  EXPECT_EQ(library_of({"cpu"}), kThroughHost);
  EXPECT_EQ(library_of({"cpu", "cpu"}), kThroughHost);
  EXPECT_EQ(why_through_host("cpu"), "");
}

TEST(CollectiveLibrary, OfGpusWithoutNcclSaysWhatToInstall) {
  if (has_nccl()) GTEST_SKIP() << "this build has NCCL";
  EXPECT_EQ(library_of({"cuda:0", "cuda:1"}), kThroughHost);
  EXPECT_NE(why_through_host("cuda:0").find("pip install nvidia-cuda-crt nvidia-cuda-cccl"),
            std::string::npos);
  if (has_gloo()) return;
  const std::string refusal = refusal_on("cuda:0");
  EXPECT_NE(refusal.find("this program has no NCCL"), std::string::npos) << refusal;
}

#ifdef AUTODIST_GIVEN_NCCL
TEST(CollectiveLibrary, OfGpusIsTheGivenNcclWhereEachRankHasItsOwn) {
  set_nccl_maker(
      [](const auto&, int, int, const std::string&, std::chrono::milliseconds)
          -> c10::intrusive_ptr<c10d::Backend> { throw std::runtime_error("no GPU is here"); },
      [](const std::string& device) { return device == "cuda:2" ? "cuda:0" : device; });
  EXPECT_TRUE(has_nccl());
  EXPECT_EQ(why_through_host("cuda:0"), "");
  EXPECT_EQ(library_of({"cuda:0", "cuda:1"}), CollectiveLibrary::kNccl);
  EXPECT_EQ(library_of({"cuda:0", "cuda:2"}), kThroughHost) << "one GPU";
  EXPECT_EQ(library_of({"cuda:0", "cpu"}), kThroughHost);
  EXPECT_EQ(library_of({"cpu", "cpu"}), kThroughHost);
  EXPECT_EQ(refusal_on("cuda:0"),
            "collectives: rank 0 of 1 cannot connect over cuda:0: no GPU is here");
  set_nccl_maker(nullptr, nullptr);
}
#endif

}  // namespace
}  // namespace autodist::comm
