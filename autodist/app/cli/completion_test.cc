#include "autodist/app/cli/completion.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "autodist/app/cli/verbs.h"
#include "autodist/base/file.h"

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
  std::string folder =
      (std::filesystem::temp_directory_path() / "autodist-completion-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  write_file_atomically(folder + "/script", completion_of("bash"));
  const auto expect = [&](const std::string& words, int current, const std::string& completed) {
    const std::string command = "bash -c 'source " + folder + "/script && COMP_WORDS=(autodist " +
                                words + ") COMP_CWORD=" + std::to_string(current) +
                                " && _autodist && test \"${COMPREPLY[*]}\" = \"" + completed +
                                "\"'";
    EXPECT_EQ(std::system(command.c_str()), 0) << words;
  };
  expect("insp", 1, "inspect");
  expect("plan digits --builder PartitionedP", 4, "PartitionedPS");
  expect("train digits --devices c", 4, "cpu");
  expect("plan vgg16-s", 2, "vgg16-small");
  expect("doctor vgg16-s", 2, "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace autodist::app
