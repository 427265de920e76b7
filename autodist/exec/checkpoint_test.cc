#include "autodist/exec/checkpoint.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "autodist/base/error.h"
#include "autodist/base/step_folders.h"

namespace autodist::exec {
namespace {

// Files in memory. The n-th changing call and all after it fail, as when the machine stops: a write
// that fails leaves half of its bytes.
class MemoryFileSystem final : public FileSystem {
 public:
  std::optional<int> calls_left;
  bool full = false;  // writes fail, and nothing else
  std::map<std::string, std::string> files;
  std::map<std::string, bool> folders;

  void make_folder(const std::string& path) override {
    change();
    folders[path] = true;
  }
  void write_synced(const std::string& path, const std::vector<std::string_view>& pieces) override {
    std::string bytes;
    for (const std::string_view piece : pieces) bytes += piece;
    if (full || (calls_left && *calls_left == 0)) files[path] = bytes.substr(0, bytes.size() / 2);
    if (full) throw Error(ErrorCode::kCheckpoint, "no space left on device");
    change();
    files[path] = bytes;
  }
  void sync_folder(const std::string&) override { change(); }
  void rename(const std::string& from, const std::string& to) override {
    change();
    for (const auto& [path, bytes] : std::map<std::string, std::string>(files)) {
      if (path.rfind(from + "/", 0) != 0) continue;
      files[to + path.substr(from.size())] = bytes;
      files.erase(path);
    }
    folders.erase(from);
    folders[to] = true;
  }
  void remove_all(const std::string& path) override {
    change();
    for (const auto& [name, bytes] : std::map<std::string, std::string>(files)) {
      if (name.rfind(path + "/", 0) == 0) files.erase(name);
    }
    folders.erase(path);
  }
  std::string read(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) throw Error(ErrorCode::kCheckpoint, path + ": missing");
    return found->second;
  }
  bool exists(const std::string& path) override {
    return files.count(path) > 0 || folders.count(path) > 0;
  }
  std::vector<std::string> list(const std::string& folder) override {
    std::vector<std::string> names;
    for (const auto& [path, there] : folders) {
      if (path.rfind(folder + "/", 0) == 0) names.push_back(path.substr(folder.size() + 1));
    }
    return names;
  }

 private:
  void change() {
    if (!calls_left) return;
    if (*calls_left == 0) throw Error(ErrorCode::kCheckpoint, "no space left on device");
    --*calls_left;
  }
};

TensorData floats(const std::string& name, std::initializer_list<float> values) {
  const std::vector<float> data(values);
  return {name,
          DType::kFloat32,
          {static_cast<std::int64_t>(data.size())},
          std::string(reinterpret_cast<const char*>(data.data()), 4 * data.size())};
}

Checkpoint at_step(std::int64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.program_digest = "d";
  checkpoint.optimizer = "adam:lr=0.001";
  checkpoint.model = {floats("w", {static_cast<float>(step), 2}), floats("b", {3})};
  checkpoint.optimizer_state = {floats("w.exp_avg", {4, 5})};
  checkpoint.replicas[1] = {floats("norm.mean", {6})};
  return checkpoint;
}

TEST(Checkpoint, ComesBackWhole) {
  MemoryFileSystem files;
  write_checkpoint(files, "ckpt", at_step(7));
  const Checkpoint read = read_checkpoint(files, "ckpt");
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.optimizer, "adam:lr=0.001");
  EXPECT_EQ(read.model, at_step(7).model);
  EXPECT_EQ(read.optimizer_state, at_step(7).optimizer_state);
  EXPECT_EQ(read.replicas, at_step(7).replicas);
  EXPECT_EQ(read_checkpoint(files, "ckpt/step-7").model, at_step(7).model);
  EXPECT_TRUE(read.kept.empty());
  EXPECT_EQ(files.files.count("ckpt/step-7/kept.safetensors"), 0U);
}

TEST(Checkpoint, KeepsWhatTheProgramHasBesideTheModel) {
  MemoryFileSystem files;
  Checkpoint checkpoint = at_step(7);
  checkpoint.kept = {{"average", DType::kUInt8, {3}, std::string("a\0b", 3)},
                     {"nothing", DType::kUInt8, {0}, std::string()}};
  write_checkpoint(files, "ckpt", checkpoint);
  EXPECT_EQ(read_checkpoint(files, "ckpt").kept, checkpoint.kept);
}

TEST(Checkpoint, TheOldestGoWhenThereAreEnough) {
  MemoryFileSystem files;
  for (int step = 1; step <= 6; ++step) write_checkpoint(files, "ckpt", at_step(step), 3);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (std::vector<std::int64_t>{4, 5, 6}));
}

TEST(Checkpoint, ASnapshotGoesWithTheNextAndTakesNoOthersPlace) {
  using Steps = std::vector<std::int64_t>;
  MemoryFileSystem files;
  for (int step = 1; step <= 3; ++step) write_checkpoint(files, "ckpt", at_step(step), 3);
  bool told = false;
  write_snapshot(files, "ckpt", at_step(4), [&] { told = true; });
  EXPECT_TRUE(told);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(read_checkpoint(files, "ckpt").model, at_step(4).model);
  EXPECT_TRUE(is_snapshot(files, "ckpt", 4));
  EXPECT_FALSE(is_snapshot(files, "ckpt", 3));
  write_snapshot(files, "ckpt", at_step(6), {});
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{1, 2, 3, 6}));
  // An earlier one, as of a job that began anew in the folder, leaves it there.
  write_checkpoint(files, "ckpt", at_step(5), 3);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{2, 3, 5, 6}));
  write_checkpoint(files, "ckpt", at_step(6), 3);  // now it is asked for
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{3, 5, 6}));
  EXPECT_FALSE(is_snapshot(files, "ckpt", 6));
  write_snapshot(files, "ckpt", at_step(7), {});
  remove_snapshots(files, "ckpt", 6);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{3, 5, 6, 7}));
  remove_snapshots(files, "ckpt", 7);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{3, 5, 6}));
}

// A stop between two renames has left them so.
TEST(Checkpoint, ASnapshotThatStandsAsideIsStillOne) {
  using Steps = std::vector<std::int64_t>;
  MemoryFileSystem files;
  for (int step = 1; step <= 3; ++step) write_checkpoint(files, "ckpt", at_step(step), 3);
  write_snapshot(files, "ckpt", at_step(4), {});
  files.rename("ckpt/step-4", "ckpt/step-4.old");
  EXPECT_TRUE(has_step(files, "ckpt", 4) && is_snapshot(files, "ckpt", 4));
  write_snapshot(files, "ckpt", at_step(4), {});
  EXPECT_TRUE(is_snapshot(files, "ckpt", 4));
  files.rename("ckpt/step-4", "ckpt/step-4.old");
  write_checkpoint(files, "ckpt", at_step(5), 3);
  EXPECT_EQ(list_checkpoints(files, "ckpt"), (Steps{2, 3, 5})) << "it counts as asked for";
}

TEST(Checkpoint, OneThatWasAskedForAndStandsAsideIsNoSnapshot) {
  MemoryFileSystem files;
  write_checkpoint(files, "ckpt", at_step(5));
  files.rename("ckpt/step-5", "ckpt/step-5.old");
  EXPECT_TRUE(has_step(files, "ckpt", 5) && !is_snapshot(files, "ckpt", 5));
  EXPECT_FALSE(has_step(files, "ckpt", 6));
  write_snapshot(files, "ckpt", at_step(6), {});
  remove_snapshots(files, "ckpt", 6);
  EXPECT_EQ(read_checkpoint(files, "ckpt").model, at_step(5).model);
}

TEST(Checkpoint, AfterAStopAtAnyWriteOfASnapshotASoundOneRemains) {
  bool stopped = true;
  for (int n = 0; stopped; ++n) {
    MemoryFileSystem files;
    write_snapshot(files, "ckpt", at_step(5), {});
    files.calls_left = n;
    stopped = false;
    try {
      write_snapshot(files, "ckpt", at_step(6), {});
    } catch (const Error&) {
      stopped = true;
    }
    files.calls_left.reset();
    const Checkpoint read = read_checkpoint(files, "ckpt");
    EXPECT_EQ(read.model, at_step(read.step).model) << "stopped at write " << n;
    write_snapshot(files, "ckpt", at_step(8), {});
    EXPECT_EQ(list_checkpoints(files, "ckpt"), std::vector<std::int64_t>{8});
  }
}

TEST(Checkpoint, AfterAStopAtAnyWriteASoundOneRemains) {
  for (const std::int64_t next : {6, 5}) {  // a new step, and the same step again
    int stops = 0;
    for (int n = 0;; ++n) {
      MemoryFileSystem files;
      write_checkpoint(files, "ckpt", at_step(4), 2);
      write_checkpoint(files, "ckpt", at_step(5), 2);
      files.calls_left = n;
      bool stopped = false;
      try {
        write_checkpoint(files, "ckpt", at_step(next), 2);
      } catch (const Error&) {
        stopped = true;
        ++stops;
      }
      files.calls_left.reset();
      const Checkpoint read = read_checkpoint(files, "ckpt");
      EXPECT_EQ(read.model, at_step(read.step).model) << "stopped at write " << n;
      EXPECT_GE(read.step, 5) << "stopped at write " << n;
      EXPECT_EQ(newest_checkpoint(files, "ckpt"), read.step) << "stopped at write " << n;
      // And the next attempt succeeds over the remains.
      write_checkpoint(files, "ckpt", at_step(8), 2);
      EXPECT_EQ(read_checkpoint(files, "ckpt").step, 8);
      if (!stopped) break;
    }
    EXPECT_GT(stops, 8);
  }
}

// In a folder with checkpoints of a job before, which has done more steps.
TEST(Checkpoint, TheOneThatWasToldOfIsThereWheneverItStops) {
  bool stopped = true;
  for (int n = 0; stopped; ++n) {
    MemoryFileSystem files;
    for (int step = 10; step < 15; ++step) write_checkpoint(files, "ckpt", at_step(step));
    EXPECT_FALSE(has_checkpoint(files, "another"));
    EXPECT_TRUE(has_checkpoint(files, "ckpt") && has_checkpoint(files, "ckpt/step-14"));
    std::int64_t told = 14;
    files.calls_left = n;
    try {
      for (std::int64_t step = 1; step <= 3; ++step) {
        write_checkpoint(files, "ckpt", at_step(step), kKeptCheckpoints, [&] { told = step; });
      }
      stopped = false;
    } catch (const Error&) {
    }
    files.calls_left.reset();
    const std::string folder = "ckpt/step-" + std::to_string(told);
    EXPECT_EQ(read_checkpoint(files, folder).model, at_step(told).model) << n << ": " << folder;
  }
}

// The same step again over what a stop between two renames has left, which is all there is.
TEST(Checkpoint, AfterTwoStopsOneIsStillThere) {
  for (int n = 0;; ++n) {
    MemoryFileSystem files;
    write_checkpoint(files, "ckpt", at_step(5), 2);
    files.rename("ckpt/step-5", "ckpt/step-5.old");
    EXPECT_TRUE(has_checkpoint(files, "ckpt/step-5"));
    EXPECT_EQ(whole_folder_of(files, "ckpt", 5), "ckpt/step-5.old");
    EXPECT_EQ(read_checkpoint(files, "ckpt/step-5").model, at_step(5).model);
    files.calls_left = n;
    bool stopped = false;
    try {
      write_checkpoint(files, "ckpt", at_step(5), 2);
    } catch (const Error&) {
      stopped = true;
    }
    files.calls_left.reset();
    EXPECT_EQ(list_checkpoints(files, "ckpt"), std::vector<std::int64_t>{5}) << n;
    EXPECT_EQ(read_checkpoint(files, "ckpt").model, at_step(5).model) << "stopped at write " << n;
    if (!stopped) break;
  }
}

TEST(Checkpoint, OneThatIsDamagedIsPassedOverForWhereItStoodAside) {
  MemoryFileSystem files;
  write_checkpoint(files, "ckpt", at_step(5), 2);
  files.rename("ckpt/step-5", "ckpt/step-5.old");
  MemoryFileSystem another;
  write_checkpoint(another, "ckpt", at_step(5), 2);
  for (const auto& [name, bytes] : another.files) files.files[name] = bytes;
  files.make_folder("ckpt/step-5");
  files.files.at("ckpt/step-5/model.safetensors").back() ^= 1;
  std::vector<std::string> warnings;
  EXPECT_EQ(read_checkpoint(files, "ckpt", &warnings).model, at_step(5).model);
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(Checkpoint, OneWithoutItsManifestIsPassedOverAndNamed) {
  MemoryFileSystem files;
  write_checkpoint(files, "ckpt", at_step(4), 2);
  write_checkpoint(files, "ckpt", at_step(5), 2);
  files.files.erase("ckpt/step-5/manifest.json");
  std::vector<std::string> warnings;
  EXPECT_EQ(read_checkpoint(files, "ckpt", &warnings).step, 4);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("ckpt/step-5"), std::string::npos) << warnings[0];
}

TEST(Checkpoint, AFullDiskLeavesNoPartOfAStep) {
  for (const std::int64_t next : {6, 5}) {
    MemoryFileSystem files;
    write_checkpoint(files, "ckpt", at_step(5));
    const std::map<std::string, std::string> before = files.files;
    files.full = true;
    EXPECT_THROW(write_checkpoint(files, "ckpt", at_step(next)), Error);
    EXPECT_EQ(files.files, before);
    EXPECT_FALSE(files.exists("ckpt/step-" + std::to_string(next) + ".tmp"));
    files.full = false;
    write_checkpoint(files, "ckpt", at_step(next));
    EXPECT_EQ(read_checkpoint(files, "ckpt").step, next);
  }
}

TEST(Checkpoint, AFlippedBitAnywhereIsFoundAndTheOneBeforeIsUsed) {
  MemoryFileSystem sound;
  write_checkpoint(sound, "ckpt", at_step(1));
  write_checkpoint(sound, "ckpt", at_step(2));
  for (const auto& [path, bytes] : std::map<std::string, std::string>(sound.files)) {
    if (path.rfind("ckpt/step-2/", 0) != 0) continue;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      MemoryFileSystem files = sound;
      files.files[path][at] ^= 1;
      // White space between the manifest's words says nothing.
      if (path.find("manifest") != std::string::npos && std::isspace(bytes[at])) continue;
      std::vector<std::string> warnings;
      EXPECT_EQ(read_checkpoint(files, "ckpt", &warnings).step, 1) << path << " at " << at;
      ASSERT_EQ(warnings.size(), 1u);
      EXPECT_NE(warnings[0].find("step-2"), std::string::npos);
      EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
    }
    MemoryFileSystem files = sound;
    files.files[path].resize(bytes.size() / 2);
    EXPECT_EQ(read_checkpoint(files, "ckpt").step, 1) << path << " truncated";
  }
}

TEST(Checkpoint, NoneIsSaidInOneLine) {
  MemoryFileSystem files;
  EXPECT_THROW(read_checkpoint(files, "nowhere"), Error);
  files.make_folder("empty");
  EXPECT_THROW(read_checkpoint(files, "empty"), Error);
}

TEST(Safetensors, RefusesWhatDoesNotFit) {
  const auto file = [](std::string header, const std::string& data) {
    std::string bytes;
    for (std::size_t i = 0; i < 8; ++i) {
      bytes.push_back(static_cast<char>(header.size() >> 8 * i & 0xff));
    }
    return bytes + header + data;
  };
  const auto refusal = [](const std::string& bytes) -> std::string {
    try {
      read_safetensors(bytes, "f");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
      return error.what();
    }
    return "accepted";
  };
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(refusal(file(two, "xy")), "accepted");
  EXPECT_NE(refusal(file(two, "xyz")), "accepted");
  EXPECT_NE(refusal(file(two, "x")).find("outside"), std::string::npos);
  EXPECT_NE(refusal("1234567"), "accepted");
  EXPECT_NE(refusal(std::string(8, '\xff')), "accepted");
  EXPECT_NE(refusal(file("[]", "")), "accepted");
  EXPECT_NE(refusal(file(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", "xy")),
            "accepted");
  EXPECT_NE(refusal(file(R"({"a":{"dtype":"Q8","shape":[2],"data_offsets":[0,2]}})", "xy"))
                .find("unknown dtype"),
            std::string::npos);
  EXPECT_NE(refusal(file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                         "xy")),
            "accepted")
      << "overlapping";
  EXPECT_NE(refusal(file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         "xy"))
                .find("twice"),
            std::string::npos);
  EXPECT_NE(refusal(file(R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],)"
                         R"("data_offsets":[0,2]}})",
                         "xy")),
            "accepted");
}

}  // namespace
}  // namespace autodist::exec
