#include "autodist/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "autodist/base/error.h"

namespace autodist {
namespace {

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_read(const std::string& path, const std::string& reason) {
  fail(ErrorCode::kUsage, "{}: cannot be read: {}", path, reason);
}

}  // namespace

std::string read_file(const std::string& path, std::int64_t limit_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_read(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_read(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_read(path, "not a plain file");
  if (status.st_size > limit_bytes) {
    fail_read(path, fmt::format("{} bytes, at most {} expected", status.st_size, limit_bytes));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, std::strerror(errno));
    if (got == 0) fail_read(path, "it shrank while it was read");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  const std::string partial = fmt::format("{}.{}.tmp", path, ::getpid());
  const auto give_up = [&](const char* doing) {
    const std::string reason = std::strerror(errno);
    ::unlink(partial.c_str());
    fail(ErrorCode::kEnvironment, "{}: cannot be written: {}: {}", path, doing, reason);
  };
  {
    const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) give_up("open");
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = ::write(file.get(), bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) give_up("write");
      done += static_cast<std::size_t>(put);
    }
    if (::fsync(file.get()) != 0) give_up("sync");
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) give_up("rename");
}

}  // namespace autodist
