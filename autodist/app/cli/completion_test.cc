#include "autodist/app/cli/completion.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "autodist/app/cli/verbs.h"
#include "autodist/base/file.h"
#include "tests/outcome_of.h"

namespace autodist::app {
namespace {

TEST(Completion, KnowsEveryVerbInEveryForm) {
  for (const std::string& kind : completion_kinds()) {
    const std::string text = completion_of(kind);
    for (const Verb& verb : verbs()) {
      EXPECT_NE(text.find(verb.name), std::string::npos) << kind << ": " << verb.name;
    }
  }
}

// bash itself says what it completes.
TEST(Completion, BashCompletesVerbsAndValues) {
  if (std::system("bash -c true") != 0) GTEST_SKIP() << "no bash";
  const testing_jobs::Scratch scratch;
  const std::string script = scratch / "script";
  write_file_atomically(script, completion_of("bash") + R"sh(
autodist() {
  echo "Positionals:"
  echo "  doing list|latest|show (required)"
  echo
  echo "Options:"
  echo "  -o,--output TEXT          a file"
  echo "  --encrypt auto|on|off     see autodist doctor"
  echo "                            --late"
  echo "  --devices as-listed|cpu   cpu: one rank"
  echo "  --loss cross_entropy|mse|none"
}
)sh");
  const auto expect = [&](const std::string& words, int current, const std::string& completed) {
    const std::string command = "bash -c 'source " + script + " && COMP_WORDS=(autodist " + words +
                                ") COMP_CWORD=" + std::to_string(current) +
                                "; _autodist; test \"${COMPREPLY[*]}\" = \"" + completed + "\"'";
    EXPECT_EQ(std::system(command.c_str()), 0) << words;
  };
  expect("insp", 1, "inspect");
  expect("plan digits --builder PartitionedP", 4, "PartitionedPS");
  expect("train digits --devices c", 4, "cpu");
  expect("train digits --encrypt = o", 5, "on off");
  expect("train digits --output ", 4, "");
  expect("train digits -", 3, "--output --encrypt --devices --loss");
  expect("train digits --loss m", 4, "mse");
  expect("plan vgg16-s", 2, "vgg16-small");
  expect("doctor vgg16-s", 2, "");
  expect("ckpt l", 2, "list latest");
  expect("ckpt list l", 3, "");
}

}  // namespace
}  // namespace autodist::app
