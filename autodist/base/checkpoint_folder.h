// The folder that a job's checkpoints go into: one job's at a time, or their steps would mix.

#pragma once

#include <memory>
#include <string>

namespace autodist {

// Holds `path` until it goes, by a lock on the file `.lock` in it, which ends with its process,
// too, also where processes that it has forked live on. A process may hold a folder several times.
// Where the file system has no locks there is none.
class CheckpointFolder {
 public:
  // Makes the folder where it is missing. `what` begins messages. Throws Error(kCheckpoint) where
  // the folder cannot be made or written to, and where another process holds it.
  CheckpointFolder(const std::string& what, const std::string& path);

 private:
  class Lock;

  std::shared_ptr<const Lock> lock_;
};

}  // namespace autodist
