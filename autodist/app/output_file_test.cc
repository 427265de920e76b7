#include "autodist/app/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "autodist/base/error.h"

namespace autodist::app {
namespace {

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

}  // namespace
}  // namespace autodist::app
