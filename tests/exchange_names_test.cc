// Who knows how a variable is exchanged: only rooms that make or perform exchanges name the
// alternatives of program::Exchange, or ask for one. Everybody else asks program/loads.h for what
// follows from it, so that another alternative is an edit of these rooms alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kAutodist = fs::path(AUTODIST_SOURCE_DIR) / "autodist";

struct Rule {
  const char* what;
  std::regex names;
  std::vector<std::string> where;  // how paths begin, below autodist/, that may
  int least;                       // times that the sources name it
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all{
      // One of its fields' values, or a look into one, are the same. Of the search, its space.
      {"an alternative of Exchange",
       std::regex("program::(Slices|Dense|Rows|Factors|Versions|Asynchronous|Library|Alone)\\b"
                  "|\\b(Route|RowTransfer|UpdateAt|Delivery)(::k|\\{)"
                  "|\\bexchange\\.(payload|order)\\b"),
       {"program/", "protocol/", "passes/", "strategy/", "search/autosync/space.",
        "search/autosync/moves."},
       50},
      // The executor writes and reads these bytes.
      {"the form of a message, which stands for what a contribution is",
       std::regex("program::Layout\\b|\\bLayout::k(Nothing|Elements|Rows|Matrices)\\b"
                  "|\\b(contribution|result)_form\\("),
       {"program/", "passes/", "exec/"},
       20},
      // Symmetry compares all that the protocol knows of two slices.
      {"whether contributions are applied one by one, which stands for an order",
       std::regex("(\\.|->)synchronous\\b"),
       {"protocol/", "sim/symmetry.cc"},
       5},
  };
  return all;
}

bool may(const Rule& rule, const std::string& file) {
  return std::any_of(rule.where.begin(), rule.where.end(),
                     [&](const std::string& begin) { return file.rfind(begin, 0) == 0; });
}

// Tests make Programs by hand.
bool is_test(const std::string& file) {
  static const std::regex kTest("(.*/)?(.*_test\\.cc|testing/.*)");
  return std::regex_match(file, kTest);
}

TEST(ExchangeNames, StandOnlyWhereExchangesAreMadeAndPerformed) {
  std::vector<int> named(rules().size());
  for (const auto& entry : fs::recursive_directory_iterator(kAutodist)) {
    const std::string extension = entry.path().extension();
    const std::string file = fs::relative(entry.path(), kAutodist);
    if ((extension != ".h" && extension != ".cc") || is_test(file)) continue;
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      for (std::size_t i = 0; i < rules().size(); ++i) {
        const Rule& rule = rules()[i];
        if (!std::regex_search(line, rule.names)) continue;
        ++named[i];
        EXPECT_TRUE(may(rule, file)) << "autodist/" << file << ":" << number << " names "
                                     << rule.what << "; ask program/loads.h:\n"
                                     << line;
      }
    }
  }
  for (std::size_t i = 0; i < rules().size(); ++i) {
    EXPECT_GT(named[i], rules()[i].least) << "the sources call it otherwise: " << rules()[i].what;
  }
}

}  // namespace
