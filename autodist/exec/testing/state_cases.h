// What tests of gathered and held state have in common.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "autodist/base/error.h"
#include "autodist/program/exchange.h"

namespace autodist::exec::testing {

// Names a test of one place of the update.
inline std::string name_of_update(const ::testing::TestParamInfo<program::UpdateAt>& info) {
  return info.param == program::UpdateAt::kOwner ? "Owner" : "EveryRank";
}

// `act` throws Error(kCheckpoint) whose text has `what`.
template <typename Act>
void expect_refused(Act act, const std::string& what) {
  try {
    act();
    FAIL() << "expected: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(what));
  }
}

}  // namespace autodist::exec::testing
