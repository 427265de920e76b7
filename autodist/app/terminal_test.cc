#include "autodist/app/terminal.h"

#include <gtest/gtest.h>

#include <ostream>

namespace autodist::app {
namespace {

TEST(Terminal, CutsBehindCharacters) {
  EXPECT_EQ(cut("step 1/30  loss 2.3", 40), "step 1/30  loss 2.3");
  EXPECT_EQ(cut("step 1/30  loss 2.3", 10), "step 1/30…");
  EXPECT_EQ(cut("größer als", 6), "größe…");
  EXPECT_EQ(cut("abc", 1), "…");
  EXPECT_EQ(cut("abc", 0), "");
}

TEST(Terminal, ShowsAsManyPartsAsFitWhole) {
  const std::vector<std::string> parts{"step 1/30", "loss 2.3", "950 samples/s"};
  EXPECT_EQ(first_that_fit(parts, 34), "step 1/30  loss 2.3  950 samples/s");
  EXPECT_EQ(first_that_fit(parts, 33), "step 1/30  loss 2.3");
  EXPECT_EQ(first_that_fit(parts, 6), "step …");
  EXPECT_EQ(first_that_fit({}, 6), "");
}

TEST(Terminal, GoesOnBelowTheSecondColumn) {
  EXPECT_EQ(wrapped("memory   2.3 MiB at rank 0: parameters 114.0 KiB\nnext\n", 30),
            "memory   2.3 MiB at rank 0:\n"
            "         parameters 114.0 KiB\n"
            "next\n");
  EXPECT_EQ(wrapped("done after step 30: loss 2.1, 4142 samples/s", 24),
            "done after step 30: loss\n"
            "    2.1, 4142 samples/s");
}

TEST(Terminal, LeavesWordsWhole) {
  EXPECT_EQ(wrapped("/a/long/path/to/something\n", 10), "/a/long/path/to/something\n");
  EXPECT_EQ(wrapped("written: /a/long/path/to/something\n", 20),
            "written:\n    /a/long/path/to/something\n");
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("\n\na b\n", 10), "\n\na b\n");
}

// The second column is in the right half.
TEST(Terminal, GoesOnALittleFurtherInWhereThatIsTooFar) {
  EXPECT_EQ(wrapped("encoder.layer.0.weight    [32,32]   4.0 KiB  PS at localhost\n", 40),
            "encoder.layer.0.weight    [32,32]\n"
            "    4.0 KiB  PS at localhost\n");
}

TEST(Terminal, WrapsWhatIsWrittenToAStream) {
  std::stringbuf target;
  {
    WrappingBuffer buffer(target, 12);
    std::ostream out(&buffer);
    out << "one two "
        << "three four\nfive";
  }
  EXPECT_EQ(target.str(), "one two\n    three\n    four\nfive");
}

TEST(Terminal, GoesOnAsItIsTold) { EXPECT_EQ(wrapped("one two three", 8, 0), "one two\nthree"); }

TEST(Terminal, IsNotThereWhereAPipeIs) { EXPECT_FALSE(terminal_columns(-1)); }

}  // namespace
}  // namespace autodist::app
