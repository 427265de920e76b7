// Who knows how a variable is exchanged: only rooms that make or perform exchanges name the
// alternatives of program::Exchange, or ask for one. Everybody else asks program/loads.h for what
// follows from it, so that another alternative is an edit of these rooms alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "tests/sources.h"

namespace {

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
       {"program/", "exec/"},
       20},
      // Symmetry compares all that the protocol knows of two slices. Whether there is a lag at all
      // is the same question.
      {"whether contributions are applied one by one, which stands for an order",
       std::regex("(\\.|->)synchronous\\b"
                  "|!(program::)?lag_of\\(|\\blag_of\\(.*\\)\\.has_value\\("),
       {"protocol/", "sim/symmetry.cc"},
       5},
  };
  return all;
}

bool may(const Rule& rule, const std::string& file) {
  return std::any_of(rule.where.begin(), rule.where.end(),
                     [&](const std::string& begin) { return file.rfind(begin, 0) == 0; });
}

TEST(ExchangeNames, StandOnlyWhereExchangesAreMadeAndPerformed) {
  std::vector<int> named(rules().size());
  for (const auto& [file, lines] : autodist::testing_jobs::sources()) {
    if (autodist::testing_jobs::is_for_tests(file)) continue;  // they make Programs by hand
    int number = 0;
    for (const std::string& line : lines) {
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
