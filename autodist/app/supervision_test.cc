#include "autodist/app/supervision.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "autodist/base/file.h"
#include "autodist/base/step_folders.h"

namespace autodist::app {
namespace {

namespace fs = std::filesystem;

job::Membership no_machines() { throw std::logic_error("no machine is missing"); }

// Of a job that is over, whose chief has left a snapshot in memory.
class SavedSnapshotTest : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  SavedSnapshotTest()
      : folder(fs::temp_directory_path() / fmt::format("autodist_supervision_test_{}", ::getpid())),
        supervision(3, no_machines) {
    take(20, kStepManifest);
    supervision.memory().note_folder("job/", folder);
  }
  ~SavedSnapshotTest() override { fs::remove_all(folder); }

  // Into memory.
  void take(std::int64_t step, const std::string& last_file) {
    job::JobMemory& memory = supervision.memory();
    memory.begin_snapshot();
    memory.add_to_snapshot("job/model", {"new"});
    memory.add_to_snapshot(fmt::format("job/{}", last_file), {"whole"});
    memory.end_snapshot(step);
  }
  // Into the folder.
  void put(std::int64_t step, bool as_snapshot) {
    put_in_place(files, folder, step, as_snapshot, [&](const std::string& to) {
      files.write_synced(fmt::format("{}/model", to), {"old"});
      files.write_synced(fmt::format("{}/{}", to, kStepManifest), {"whole"});
    });
  }
  [[nodiscard]] std::string model_of(std::int64_t step) const {
    return read_file(fmt::format("{}/model", step_folder(folder, step)));
  }
  [[nodiscard]] std::int64_t saved() { return supervision.memory().progress().saved; }

  const std::string folder;
  RealFileSystem files;
  Supervision supervision;
};

TEST_F(SavedSnapshotTest, IsACheckpointAndTakesThePlaceOfOlderSnapshots) {
  put(30, /*as_snapshot=*/true);  // of a job before, which has done more steps
  put(10, /*as_snapshot=*/false);
  put(15, /*as_snapshot=*/true);
  supervision.save_snapshot();
  EXPECT_EQ(list_checkpoints(files, folder), (std::vector<std::int64_t>{10, 20, 30}));
  EXPECT_FALSE(is_snapshot(files, folder, 20));
  EXPECT_EQ(model_of(20), "new");
  EXPECT_EQ(saved(), 20);
  EXPECT_EQ(supervision.checkpoint_in(folder), step_folder(folder, 20));
}

TEST_F(SavedSnapshotTest, TakesThePlaceOfTheSameStepAndOfWhatAStopHasLeftOfIt) {
  put(20, /*as_snapshot=*/true);
  fs::rename(step_folder(folder, 20), fmt::format("{}.old", step_folder(folder, 20)));
  fs::create_directories(fmt::format("{}.tmp", step_folder(folder, 20)));
  supervision.save_snapshot();
  EXPECT_EQ(files.list(folder), Names{"step-20"});
  EXPECT_FALSE(is_snapshot(files, folder, 20));
  EXPECT_EQ(model_of(20), "new");
}

TEST_F(SavedSnapshotTest, IsNotWrittenWhereANewerOneWasSaved) {
  put(25, /*as_snapshot=*/true);
  supervision.memory().note_saved(25, /*is_snapshot=*/true);
  supervision.save_snapshot();
  EXPECT_EQ(files.list(folder), Names{"step-25"});
  EXPECT_EQ(saved(), 25);
}

TEST_F(SavedSnapshotTest, LeavesWhatIsThereWhereItCannotBeWritten) {
  put(20, /*as_snapshot=*/false);
  take(20, std::string(300, 'x'));  // no file may have such a name
  supervision.save_snapshot();
  EXPECT_EQ(files.list(folder), Names{"step-20"});
  EXPECT_EQ(model_of(20), "old");
  EXPECT_EQ(saved(), -1);
}

}  // namespace
}  // namespace autodist::app
