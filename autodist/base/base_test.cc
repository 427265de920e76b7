#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <thread>

#include "autodist/base/background.h"
#include "autodist/base/check.h"
#include "autodist/base/digest.h"
#include "autodist/base/dtype.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/nearest.h"
#include "autodist/base/units.h"

namespace autodist {
namespace {

TEST(Check, ThrowsWithFileConditionAndMessage) {
  try {
    AD_CHECK(1 + 1 == 3) << "sum is " << 2;
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("base_test.cc"), std::string::npos);
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(text.find("sum is 2"), std::string::npos);
  }
}

TEST(Nearest, FindsAMisspeltKeyAndNothingForAForeignOne) {
  const std::vector<std::string> keys{"address", "network_bandwidth", "chief"};
  EXPECT_EQ(nearest("adress", keys), "address");
  EXPECT_EQ(nearest("network_bandwith", keys), "network_bandwidth");
  EXPECT_EQ(nearest("net", keys), "network_bandwidth");
  EXPECT_EQ(nearest("zzz", keys), "");
}

TEST(DType, NamesComeBack) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("float32"));
}

TEST(File, ComesBackWholeAndLeavesNoPartialFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("autodist_base_test_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "file").string();
  const std::string bytes("a\0b", 3);
  write_file_atomically(path, "old");
  write_file_atomically(path, bytes);
  EXPECT_EQ(read_file(path), bytes);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_THROW(read_file(path, 2), Error);
  EXPECT_THROW(read_file((folder / "missing").string()), Error);
  EXPECT_THROW(read_file(folder.string()), Error);
  std::filesystem::remove_all(folder);
}

TEST(Digest, TellsOneBitApart) {
  EXPECT_EQ(digest_of("abc"), digest_of("abc"));
  EXPECT_NE(digest_of("abc"), digest_of("abb"));
  EXPECT_EQ(to_string(digest_of("")).size(), 32u);
}

int policy_of_a_new_thread() {
  int policy = -1;
  std::thread([&policy] { policy = ::sched_getscheduler(0); }).join();
  return policy;
}

TEST(BackgroundThreads, AreThoseStartedMeanwhileAlone) {
  constexpr sched_param kNoPriority{};
  const int before = ::sched_getscheduler(0);
  if (before != SCHED_OTHER || ::sched_setscheduler(0, SCHED_OTHER, &kNoPriority) != 0) {
    GTEST_SKIP() << "the policy of this process is " << before << ", or may not be set";
  }
  {
    const BackgroundThreads from_here;
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_BATCH);
  }
  EXPECT_EQ(policy_of_a_new_thread(), SCHED_OTHER);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
}

TEST(BackgroundThreads, LeaveAUsersChoiceAlone) {
  std::thread([] {
    constexpr sched_param kNoPriority{};
    if (::sched_setscheduler(0, SCHED_IDLE, &kNoPriority) != 0) {
      GTEST_SKIP() << "policies may not be set";
    }
    const BackgroundThreads from_here;
    EXPECT_EQ(policy_of_a_new_thread(), SCHED_IDLE);
  }).join();
}

TEST(Units, PrintForPeople) {
  EXPECT_EQ(to_string(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(to_string(Seconds{0.0123}), "12.30 ms");
}

}  // namespace
}  // namespace autodist
