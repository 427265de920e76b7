// Who knows how a variable is exchanged: only rooms that make or perform exchanges name the
// alternatives of program::Exchange. Everybody else asks program/loads.h, so that another
// alternative is an edit of these rooms alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace {

namespace fs = std::filesystem;

const fs::path kAutodist = fs::path(AUTODIST_SOURCE_DIR) / "autodist";

// The rooms that may, and the files of the search that are its space.
const char* const kKnowing[] = {"program/",
                                "protocol/",
                                "passes/",
                                "strategy/",
                                "search/autosync/space.",
                                "search/autosync/moves."};

// An alternative, one of its fields' values, or a look into one.
const std::regex kNames(
    "program::(Slices|Dense|Rows|Factors|Versions|Asynchronous|Library|Alone)\\b"
    "|\\b(Route|RowTransfer|UpdateAt|Delivery)::k"
    "|\\bexchange\\.(payload|order)\\b");

bool knows(const std::string& file) {
  return std::any_of(std::begin(kKnowing), std::end(kKnowing),
                     [&](const std::string& room) { return file.rfind(room, 0) == 0; });
}

// Tests make Programs by hand.
bool is_test(const std::string& file) {
  static const std::regex kTest("(.*/)?(.*_test\\.cc|testing/.*)");
  return std::regex_match(file, kTest);
}

TEST(ExchangeNames, StandOnlyWhereExchangesAreMadeAndPerformed) {
  int named = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kAutodist)) {
    const std::string extension = entry.path().extension();
    const std::string file = fs::relative(entry.path(), kAutodist);
    if ((extension != ".h" && extension != ".cc") || is_test(file)) continue;
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (!std::regex_search(line, kNames)) continue;
      ++named;
      EXPECT_TRUE(knows(file)) << "autodist/" << file << ":" << number
                               << " names an alternative of Exchange; ask program/loads.h:\n"
                               << line;
    }
  }
  EXPECT_GT(named, 50) << "the names are no longer what the sources call them";
}

}  // namespace
