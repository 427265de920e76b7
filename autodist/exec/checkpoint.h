// Checkpoints: folders step-N (base/step_folders.h) of safetensors files with the original model's
// names (docs/formats/checkpoint.md). No torch.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autodist/base/file_system.h"
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

// <directory>/step-N, or `directory` where it is that folder itself.
std::string folder_of(const std::string& directory, std::int64_t step);
// Where that checkpoint lies: under its name, or with ".old" behind it where a stop has left it so.
std::string whole_folder_of(FileSystem& files, const std::string& directory, std::int64_t step);

constexpr int kKeptCheckpoints = 5;

// Writes <directory>/step-N as put_in_place() does, and afterwards removes the oldest of those that
// are no snapshots until `keep` are left. REQUIRES: keep >= 2. Throws Error(kCheckpoint).
void write_checkpoint(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                      int keep = kKeptCheckpoints, const std::function<void()>& written = {});

// As a snapshot: put_in_place() says what that is. Throws Error(kCheckpoint).
void write_snapshot(FileSystem& files, const std::string& directory, const Checkpoint& checkpoint,
                    const std::function<void()>& written);

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
