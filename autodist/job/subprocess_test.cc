#include "autodist/job/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "autodist/base/error.h"

namespace autodist::job {
namespace {

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// Whether it throws Error(kEnvironment), and what.
std::string refusal(const std::vector<std::string>& arguments, const std::string& input) {
  try {
    run_to_end(arguments, input);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    return error.what();
  }
  return "";
}

TEST(RunToEnd, TheProgramReadsTheInput) {
  const std::ptrdiff_t before = open_descriptors();
  const Finished finished = run_to_end({"sh", "-c", "cat; echo on >&2; exit 3"}, "a\nb\n", true);
  EXPECT_EQ(finished.output, "a\nb\non\n");
  EXPECT_EQ(finished.exit_code, 3);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(RunToEnd, AnInputThatIsLargerThanAPipeIsRefusedAtOnce) {
  const std::ptrdiff_t before = open_descriptors();
  const std::string refused = refusal({"cat"}, std::string(1 << 20, 'x'));
  EXPECT_EQ(refused.find("cat: 1048576 bytes of input did not fit into a pipe"), 0U) << refused;
  EXPECT_EQ(open_descriptors(), before);
}

TEST(RunToEnd, AProgramThatIsNotThereLeavesNoDescriptor) {
  const std::ptrdiff_t before = open_descriptors();
  const std::string refused = refusal({"no-such-program-here"}, "");
  EXPECT_EQ(refused.find("no-such-program-here cannot be started"), 0U) << refused;
  EXPECT_EQ(open_descriptors(), before);
}

// Whichever pipe it is that cannot be made.
TEST(RunToEnd, TooFewOpenFilesLeaveNoDescriptor) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const std::ptrdiff_t before = open_descriptors();
  const auto first_free =
      static_cast<rlim_t>(Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get());
  for (rlim_t more = 0; more < 4; ++more) {
    const rlimit few{first_free + more, usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string refused = refusal({"true"}, "");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
    EXPECT_EQ(open_descriptors(), before) << more;
    if (more == 0) {
      EXPECT_EQ(refused, "true: pipe: Too many open files. Allow more open files (ulimit -n).");
    }
  }
}

}  // namespace
}  // namespace autodist::job
