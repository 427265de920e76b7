#include "autodist/app/command_words.h"

#include <gtest/gtest.h>

namespace autodist::app {
namespace {

using Words = std::vector<std::string>;

TEST(CommandWords, TheLastValueOfAnOptionCounts) {
  const Words words{"autodist", "train", "--save", "a", "--save=b c", "--resume"};
  EXPECT_EQ(value_of(words, "--save"), "b c");
  EXPECT_FALSE(value_of(words, "--resume")) << "nothing follows it";
  EXPECT_FALSE(value_of(words, "--sav"));
}

TEST(CommandWords, AnotherValueTakesThePlaceOfAll) {
  const Words words{"autodist", "train", "--resume", "a", "digits", "--resume=b"};
  EXPECT_EQ(with_value(words, "--resume", "c"),
            (Words{"autodist", "train", "digits", "--resume", "c"}));
}

TEST(CommandWords, WhoeverGoesOnBeginsWithNothingElse) {
  EXPECT_EQ(resuming({"autodist", "train", "--init", "a", "digits", "--resume=b"}, "c"),
            (Words{"autodist", "train", "digits", "--resume", "c"}));
}

TEST(CommandWords, AreTypedAsAShellReadsThem) {
  EXPECT_EQ(as_typed({"/usr/bin/autodist", "train", "--save", "a b", "it's", ""}),
            "autodist train --save 'a b' 'it'\\''s' ''");
}

}  // namespace
}  // namespace autodist::app
