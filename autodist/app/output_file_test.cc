#include "autodist/app/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "autodist/base/error.h"
#include "tests/outcome_of.h"

namespace autodist::app {
namespace {

using testing_jobs::refusal;
using testing_jobs::Scratch;

TEST(OutputFile, IsRefusedBeforeTheWork) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_NO_THROW(expect_writable("--report", ""));
  EXPECT_NO_THROW(expect_writable("--report", "here.html"));
  EXPECT_NO_THROW(expect_writable("--report", folder + "/page.html"));
  EXPECT_THROW(expect_writable("--report", folder), Error);
  try {
    expect_writable("--report", "/nowhere-at-all/page.html");
    FAIL() << "a folder that is missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_STREQ(error.what(),
                 "--report /nowhere-at-all/page.html: there is no folder /nowhere-at-all. Make it "
                 "first.");
  }
}

TEST(OutputFile, IsAppendedToWhereItIsOpen) {
  const Scratch scratch;
  const std::string file = scratch / "log";
  EXPECT_NO_THROW(expect_appendable("--log", ""));
  EXPECT_NO_THROW(expect_appendable("--log", file));
  std::ofstream(file) << "text";
  EXPECT_NO_THROW(expect_appendable("--log", file));
  EXPECT_THROW(expect_appendable("--log", file + "/log"), Error);
  if (::geteuid() == 0) return;  // to whom every file is open
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  EXPECT_EQ(refusal([&] { expect_appendable("--log", file); }),
            "--log " + file + ": cannot be written to. Name another.");
}

TEST(OutputFile, NeedsFoldersThatAreNoFiles) {
  const Scratch scratch;
  const std::string file = scratch / "a-file";
  std::ofstream(file) << "text";
  EXPECT_NO_THROW(expect_writable("--log", file));
  EXPECT_NO_THROW(expect_folder("--tensorboard", scratch / "to/be/made"));
  EXPECT_NO_THROW(expect_folder("--tensorboard", "here"));
  for (const std::string& path : {file, file + "/runs"}) {
    EXPECT_EQ(
        refusal([&] { expect_folder("--tensorboard", path); }),
        "--tensorboard " + path + ": " + file + " is a file, a folder expected. Name another.");
  }
  EXPECT_EQ(refusal([&] { expect_writable("--log", file + "/log"); }),
            "--log " + file + "/log: " + file + " is a file, a folder expected. Name another.");
}

}  // namespace
}  // namespace autodist::app
