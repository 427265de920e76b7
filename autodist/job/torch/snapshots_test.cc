#include "autodist/job/torch/snapshots.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "autodist/base/checkpoint_folder.h"
#include "autodist/base/step_folders.h"
#include "autodist/exec/checkpoint.h"

namespace autodist::job {
namespace {

// The state takes this; in memory the first snapshot takes it three times, into a folder once.
constexpr Bytes kState{100};
constexpr Bytes kRoomForAll{600};
constexpr Bytes kRoomForACopy{200};

std::shared_ptr<StateCopy> state_at(std::int64_t step) {
  auto state = std::make_shared<StateCopy>();
  state->checkpoint.step = step;
  state->checkpoint.model = {{"w", DType::kUInt8, {1}, std::string("a")}};
  return state;
}

// It stands, or goes on by so many seconds whenever it is read.
struct ReadClock final : Clock {
  double by = 0;
  mutable std::atomic<int> reads{0};
  [[nodiscard]] Seconds now() const override { return Seconds{by * reads++}; }
};

class SnapshotsTest : public ::testing::Test {
 protected:
  using Steps = std::vector<std::int64_t>;

  SnapshotsTest()
      : folder(std::filesystem::temp_directory_path() /
               ("autodist_snapshots_test_" + std::to_string(::getpid()))),
        snapshots(
            &memory, 0, TrainingStep{}, clock,
            [this](const std::string& line) { told.push_back(line); }, [this] { return free; }) {
    EXPECT_FALSE(snapshots.is_due(10));
    EXPECT_TRUE(snapshots.is_due(15));
  }
  ~SnapshotsTest() override { std::filesystem::remove_all(folder); }

  [[nodiscard]] bool is_put_off(std::int64_t step) {
    return snapshots.put_off(step, /*is_saving=*/false, kState).has_value();
  }
  void take(std::int64_t step) {
    ASSERT_FALSE(is_put_off(step));
    EXPECT_GT(snapshots.write(state_at(step), clock.now()), step);
    snapshots.finish_writing();
  }
  [[nodiscard]] Steps in_folder() { return list_checkpoints(files, folder); }

  const std::string folder;
  JobMemory memory;
  ReadClock clock;
  RealFileSystem files;
  std::vector<std::string> told;
  Bytes free = kRoomForAll;
  Snapshots snapshots;
};

TEST_F(SnapshotsTest, GoIntoMemoryWhereThereIsRoom) {
  snapshots.choose_folder("", folder);
  take(15);
  EXPECT_EQ(snapshots.goes_to(), "");
  EXPECT_EQ(memory.progress().kept, 15);
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_TRUE(told.empty()) << told.front();
  snapshots.forget(20);
  EXPECT_EQ(memory.progress().kept, -1);
}

TEST_F(SnapshotsTest, SayWhatALossCostsWhereThatIsMuch) {
  clock.by = 1;
  take(15);
  EXPECT_TRUE(told.empty());  // what writing takes is not known yet
  take(20);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told.front().rfind("snapshots: 100 B in memory, every ", 0), 0U) << told.front();
}

TEST_F(SnapshotsTest, GoIntoTheFolderOfCheckpointsWhereMemoryHasNone) {
  free = kRoomForACopy;
  snapshots.choose_folder("", folder);
  take(15);
  EXPECT_EQ(memory.progress().kept, -1);
  EXPECT_EQ(memory.progress().saved, 15);
  EXPECT_EQ(in_folder(), Steps{15});
  take(20);
  EXPECT_EQ(in_folder(), Steps{20});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told.front().find("snapshots go to " + folder), std::string::npos) << told.front();

  // What the user has saved after the same step is there already.
  exec::write_checkpoint(files, folder, state_at(25)->checkpoint);
  memory.note_saved(25);
  EXPECT_TRUE(is_put_off(25));
  take(30);
  EXPECT_EQ(in_folder(), (Steps{25, 30}));

  free = kRoomForAll;
  take(35);
  EXPECT_EQ(memory.progress().kept, 35);
  snapshots.forget(40);
  EXPECT_EQ(in_folder(), Steps{25});
  EXPECT_EQ(memory.progress().saved, 25);
  EXPECT_EQ(told.size(), 1U);
}

TEST_F(SnapshotsTest, StayInAFolderThatAnotherJobHolds) {
  free = kRoomForACopy;
  snapshots.choose_folder("", folder);
  take(15);
  const pid_t other = ::fork();
  if (other == 0) {
    const CheckpointFolder held("save:", folder);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ::waitpid(other, nullptr, WUNTRACED);
  snapshots.forget(20);
  EXPECT_EQ(in_folder(), Steps{15});
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(told.size(), 1U) << told.back();
}

TEST_F(SnapshotsTest, AreNoneWithoutRoomOrFolderWhichIsSaidOnce) {
  free = kRoomForACopy;
  EXPECT_TRUE(is_put_off(15));
  EXPECT_TRUE(is_put_off(100));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told.front().find("--save"), std::string::npos) << told.front();
}

TEST_F(SnapshotsTest, AreNoneWhereACopyHasNoRoom) {
  free = kState;
  snapshots.choose_folder("", folder);
  EXPECT_TRUE(is_put_off(15));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told.front().find("no snapshot at step 15"), std::string::npos) << told.front();
}

// A step folder that is resumed from is not looked at for later steps.
TEST_F(SnapshotsTest, GoToTheFolderThatIsResumedFrom) {
  free = kRoomForACopy;
  snapshots.choose_folder(folder + "/step-10", std::nullopt);
  EXPECT_TRUE(is_put_off(15));
  snapshots.choose_folder(folder + "/", std::nullopt);
  EXPECT_FALSE(is_put_off(20));
  EXPECT_EQ(snapshots.goes_to(), folder);
}

TEST_F(SnapshotsTest, GoToNoOtherFolderThanTheOneThatIsAskedFor) {
  free = kRoomForACopy;
  snapshots.choose_folder("elsewhere", "");
  EXPECT_TRUE(is_put_off(15));
  snapshots.choose_folder("elsewhere", folder);
  take(30);
  EXPECT_EQ(in_folder(), Steps{30});
}

// Whether memory has room for it or not, it is the same folder that who supervises the job learns.
TEST_F(SnapshotsTest, TellTheirFolderToWhoSupervisesTheJob) {
  snapshots.choose_folder("elsewhere/step-10", folder);
  take(15);
  EXPECT_EQ(memory.folder_of_snapshot(), folder);
  snapshots.choose_folder(folder + "/step-10", std::nullopt);
  EXPECT_EQ(memory.folder_of_snapshot(), folder);
}

}  // namespace
}  // namespace autodist::job
