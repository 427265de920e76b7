#include "autodist/job/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "autodist/base/error.h"

namespace autodist::job {
namespace {

TEST(OpenFiles, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(raise_open_files(), hard);
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, hard);
}

TEST(OpenFiles, WhatTheLimitDoesNotHoldIsSaidBefore) {
  check_open_files(32, open_files_for(32));
  try {
    check_open_files(32, 150);
    FAIL() << "32 ranks at 150";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_EQ(std::string(error.what()).find("open files: each of 32 ranks has up to "), 0u)
        << error.what();
  }
}

}  // namespace
}  // namespace autodist::job
