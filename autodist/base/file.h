// Files: read whole with a bound; written whole, so that a reader sees the old or the new one; and
// written piece by piece, so that a reader sees whole pieces.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "autodist/base/digest_stream.h"

namespace autodist {

// The file's bytes. Throws Error(kUsage) naming the path when it is missing, not a plain file, not
// readable or larger than `limit_bytes`.
std::string read_file(const std::string& path, std::int64_t limit_bytes = std::int64_t{4} << 30);

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  [[nodiscard]] int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A file that is written beside `path` and takes its place in commit(); until then, and where
// anything goes wrong, what was at `path` stays as it was. A symbolic link is followed. What is
// there and no plain file (a terminal, a pipe) is written to as it is.
class OutputFile {
 public:
  // Throws Error(kEnvironment) naming `path` and the reason.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Never throws: others' writers, which may not be left by an exception, write through it. What
  // went wrong is commit()'s to say; what follows it is dropped.
  void write(const void* data, std::size_t size) noexcept;

  // Where the bytes are until commit(). Throws as commit() does for what went wrong so far.
  const std::string& written() const;

  // Syncs, reads back and renames. Throws Error(kEnvironment) naming `path` and the reason; `path`
  // is then as it was.
  void commit();

 private:
  void note(const char* doing) noexcept;  // the first thing that went wrong, by errno
  [[noreturn]] void give_up(const char* doing, const std::string& reason) const;
  void check() const;
  void read_back() const;

  std::string path_;     // as it was named
  std::string target_;   // where its links lead
  std::string partial_;  // empty: `target_` is no plain file
  Descriptor file_;
  DigestStream digest_;
  const char* failed_ = nullptr;  // doing what
  int error_ = 0;
};

void write_file_atomically(const std::string& path, std::string_view bytes);

// What was made and renamed in this folder is on the disk. Throws Error(kEnvironment) naming `path`
// and the reason.
void sync_folder(const std::string& path);

// A log that grows by whole records: one that does not fit is taken back, and the next is tried
// again.
class AppendedFile {
 public:
  enum class Begin { kAtEnd, kAnew };

  // Throws Error(kUsage) "<what>: cannot be written to: <reason>. Name another."
  AppendedFile(const std::string& path, const std::string& what, Begin begin = Begin::kAtEnd);

  [[nodiscard]] bool began_empty() const { return began_empty_; }
  // Whether it is written. Never throws.
  bool append(std::string_view record);
  // Why the first record that is missing is, "<what>: <reason>"; empty while none is.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  std::string what_;
  Descriptor file_;
  bool began_empty_ = true;
  std::string failure_;
};

}  // namespace autodist
