// The folder that a job's checkpoints go into: one job's at a time, or their steps would mix.

#pragma once

#include <sys/types.h>

#include <string>

#include "autodist/base/file.h"

namespace autodist {

// Holds `path` until it goes, by a lock on the file `.lock` in it, which ends with its process,
// too, also where processes live on that it has forked. A process may hold a folder twice. Where
// the file system has no locks there is none.
class CheckpointFolder {
 public:
  // Makes the folder where it is missing. `what` begins messages. Throws Error(kCheckpoint) where
  // the folder cannot be made or written to, and where another process holds it.
  CheckpointFolder(const std::string& what, const std::string& path);
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&&) noexcept = default;
  CheckpointFolder& operator=(CheckpointFolder&&) = delete;

 private:
  std::string name_;  // of the lock's file; empty: held by another one of this process
  Descriptor lock_;
  pid_t process_;  // that holds it; a forked one has a copy of this object
};

}  // namespace autodist
