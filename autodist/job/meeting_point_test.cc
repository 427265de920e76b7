#include "autodist/job/meeting_point.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "autodist/base/error.h"
#include "tests/outcome_of.h"

namespace autodist::job {
namespace {

namespace fs = std::filesystem;

class MeetingPoints : public ::testing::Test {
 protected:
  [[nodiscard]] std::string folder(const std::string& name, bool one_machine = true) const {
    return meeting_folder(
        [&](const std::string& variable) -> std::optional<std::string> {
          if (variable == name) return scratch_ / name;
          return std::nullopt;
        },
        one_machine);
  }

  const testing_jobs::Scratch scratch_;
};

TEST_F(MeetingPoints, TheOthersWaitForTheChiefsWord) {
  const std::string place = folder("AUTODIST_MEETING_DIR");
  const std::string job = "3604742144.0;tcp://10.0.0.1:53451";
  std::thread other([&] {
    const Meeting meeting = wait_for_meeting(place, job, Seconds{10});
    EXPECT_EQ(meeting.port, 4711);
    EXPECT_EQ(meeting.key, "secret");
  });
  {
    const MeetingPoint point(place, job, {4711, "secret"});
    other.join();
    EXPECT_THROW((void)wait_for_meeting(place, "another job", Seconds{0.05}), Error);
  }
  EXPECT_TRUE(fs::is_empty(place));
}

// A chief that was killed could not take its word away.
TEST_F(MeetingPoints, AStaleWordIsTakenForOneAndReplaced) {
  const std::string place = folder("AUTODIST_MEETING_DIR");
  const Meeting before{4711, "old", "10.0.0.1"};
  const Meeting now{4712, "new", "10.0.0.1"};
  {
    auto* lost = new MeetingPoint(place, "job", before);
    static_cast<void>(lost);
  }
  EXPECT_EQ(wait_for_meeting(place, "job", Seconds{1}), before);
  EXPECT_EQ(meeting_at(place, "job"), before);
  int waited = 0;
  std::thread chief;
  const Meeting next = wait_for_meeting(place, "job", Seconds{20}, before, [&] {
    if (++waited == 3)
      chief = std::thread([&] {
        static const MeetingPoint* const there = new MeetingPoint(place, "job", now);
        static_cast<void>(there);
      });
  });
  chief.join();
  EXPECT_EQ(next, now);
}

TEST_F(MeetingPoints, TheKeyIsForTheUsersEyesAlone) {
  const std::string place = folder("AUTODIST_MEETING_DIR");
  const mode_t usual = ::umask(0);
  const MeetingPoint point(place, "job", {4711, "secret"});
  ::umask(usual);
  struct stat about {};
  ASSERT_EQ(::stat(meeting_file(place, "job").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
}

TEST_F(MeetingPoints, TheFolderIsTheUsersAlone) {
  EXPECT_EQ(folder("XDG_RUNTIME_DIR"), scratch_ / "XDG_RUNTIME_DIR/autodist");
  EXPECT_EQ(folder("HOME", /*one_machine=*/false), scratch_ / "HOME/.autodist/jobs");
  const std::string place = folder("AUTODIST_MEETING_DIR");
  struct stat about {};
  ASSERT_EQ(::stat(place.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  fs::permissions(place, fs::perms::group_read, fs::perm_options::add);
  EXPECT_THROW((void)folder("AUTODIST_MEETING_DIR"), Error);
}

}  // namespace
}  // namespace autodist::job
