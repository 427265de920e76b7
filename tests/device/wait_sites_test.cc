// Every wait of the engine is needed: without it, the test device shows a difference within a few
// schedules. And there is no wait beside them.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "autodist/exec/device/wait_site.h"
#include "tests/outcome_of.h"

namespace autodist {
namespace {

namespace fs = std::filesystem;

constexpr int kMostSchedules = 20;

// What device_job notices; also that a fault ended it.
bool notices(int site, int seed) {
  const testing_jobs::Outcome outcome =
      testing_jobs::outcome_of("timeout 100 " AUTODIST_TEST_PROGRAMS "/device_job " +
                               std::to_string(site) + " " + std::to_string(seed));
  EXPECT_NE(outcome.code, 124) << "site " << site << " of schedule " << seed << " hangs";
  return outcome.code != 0;
}

TEST(WaitSites, NothingIsNoticedWhenAllWait) {
  for (int seed = 1; seed <= 3; ++seed) EXPECT_FALSE(notices(-1, seed)) << "schedule " << seed;
}

TEST(WaitSites, EachIsMissed) {
  for (int site = 0; site < exec::kWaitSites; ++site) {
    int seed = 1;
    while (seed <= kMostSchedules && !notices(site, seed)) ++seed;
    EXPECT_LE(seed, kMostSchedules) << "nobody misses site " << site;
    std::cout << "site " << site << ": schedule " << seed << '\n';
    RecordProperty("site_" + std::to_string(site), seed <= kMostSchedules ? seed : 0);
  }
}

// Streams and events of libtorch are seen in one file, and where ops are measured or recorded.
TEST(WaitSites, ThereIsNoWaitBesideThem) {
  const fs::path sources = fs::path(AUTODIST_SOURCE_DIR) / "autodist";
  const std::regex waits(
      "c10::Event|synchronizeStream|StreamGuard|getStreamFromGlobalPool|queryEvent|"
      "cudaStream|cudaEvent|cuda::synchronize");
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(sources)) {
    const std::string file = fs::relative(entry.path(), sources);
    if (entry.path().extension() != ".h" && entry.path().extension() != ".cc") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      if (!std::regex_search(line, waits)) continue;
      ++seen;
      const bool may = file.rfind("exec/device/queue.", 0) == 0 || file == "capture/costs.cc" ||
                       file == "exec/device/cuda_graphs.cc";
      EXPECT_TRUE(may) << "autodist/" << file << ": " << line;
    }
  }
  EXPECT_GT(seen, 3) << "the names are no longer what the sources call them";
}

}  // namespace
}  // namespace autodist
