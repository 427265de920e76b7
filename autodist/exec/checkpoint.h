// Checkpoints: folders step-N of safetensors files with the original model's names, written so that
// after a stop at any moment a sound one remains (docs/formats/checkpoint.md). No torch.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autodist/exec/safetensors.h"

namespace autodist::exec {

struct Checkpoint {
  std::int64_t step = 0;  // steps done
  // Where a job has several named steps: how many of each are done; `step` is their sum, and
  // optimizer state and what is owed are named "<step>/<variable>.<state>".
  std::map<std::string, std::int64_t> steps;
  std::string program_digest;               // of the job that wrote it, for information
  std::string optimizer;                    // its text, for information
  std::vector<TensorData> model;            // parameters whole, buffers of the chief
  std::vector<TensorData> optimizer_state;  // "<variable>.<state>"
  // What differs between replicas, by rank: buffers that the step writes ("<name>", batch-norm
  // statistics) of all but the chief, and what compression owes ("<variable>.owed").
  std::map<std::uint32_t, std::vector<TensorData>> replicas;
  std::vector<TensorData> kept;  // what the program keeps beside the model: bytes, by its names
};

// The file system as a checkpoint needs it; the test's twin fails at a chosen call.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual void make_folder(const std::string& path) = 0;
  // The pieces one after the other.
  virtual void write_synced(const std::string& path,
                            const std::vector<std::string_view>& pieces) = 0;
  virtual void sync_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_all(const std::string& path) = 0;
  virtual std::string read(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual std::vector<std::string> list(const std::string& folder) = 0;  // names, sorted
};

class RealFileSystem final : public FileSystem {
 public:
  void make_folder(const std::string& path) override;
  void write_synced(const std::string& path, const std::vector<std::string_view>& pieces) override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_all(const std::string& path) override;
  std::string read(const std::string& path) override;
  bool exists(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
};

// <directory>/step-N, or `directory` where it is that folder itself.
std::string folder_of(const std::string& directory, std::int64_t step);
// Where that checkpoint lies: under its name, or with ".old" behind it where a stop has left it so.
std::string whole_folder_of(FileSystem& files, const std::string& directory, std::int64_t step);

constexpr int kKeptCheckpoints = 5;

// Writes <directory>/step-N as step-N.tmp, synced, then renamed; `written` is called when it is in
// its place. Afterwards snapshots of earlier steps are removed, and of other checkpoints the oldest
// until `keep` are left. Where it fails, step-N.tmp is removed and a step-N from before is back.
// REQUIRES: keep >= 2. Throws Error(kCheckpoint).
void write_checkpoint(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                      int keep = kKeptCheckpoints, const std::function<void()>& written = {});

// A snapshot is a checkpoint that nobody asked for, which a job goes on from after a loss. It is
// marked as one, and written as write_checkpoint() does; of what was there before, only snapshots
// of earlier steps are removed. REQUIRES: !was_asked_for() of its step, which it would replace.
void write_snapshot(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                    const std::function<void()>& written);
// Removes the snapshots up to this step. Throws Error(kCheckpoint).
void remove_snapshots(FileSystem& files, const std::string& directory, std::int64_t last);
// Whether that step is there, under its name or with ".old" behind it, and is no snapshot.
bool was_asked_for(FileSystem& files, const std::string& directory, std::int64_t step);

// The steps of the complete folders below `directory`, ascending; also of a step-N.old without its
// step-N.
std::vector<std::int64_t> list_checkpoints(FileSystem& files, const std::string& directory);

// The step of the newest one that read_checkpoint() would try, of a step folder itself or of those
// below a directory; nothing where there is none.
std::optional<std::int64_t> newest_checkpoint(FileSystem& files, const std::string& path);

// Whether read_checkpoint() would find something to read.
bool has_checkpoint(FileSystem& files, const std::string& path);

// A step folder itself, or the newest sound one below a directory: where the newest is damaged, the
// one before it, and why stands in `warnings` (may be null). Every tensor's digest is compared.
// Throws Error(kCheckpoint) where none is sound.
Checkpoint read_checkpoint(FileSystem& files, const std::string& path,
                           std::vector<std::string>* warnings = nullptr);

}  // namespace autodist::exec
