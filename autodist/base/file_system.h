// Folders and files as a writer of checkpoints needs them: on a disk, in a job's memory, or in a
// test that lets calls fail.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace autodist {

// What a call cannot do it throws as an Error.
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

// The machine's. Throws Error(kCheckpoint).
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

}  // namespace autodist
