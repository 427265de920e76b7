#include "autodist/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "autodist/base/error.h"

namespace autodist {
namespace {

[[noreturn]] void fail_read(const std::string& path, const std::string& reason) {
  fail(ErrorCode::kUsage, "{}: cannot be read: {}", path, reason);
}

// Where a name's links lead; the name itself where that cannot be said.
std::string followed(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const auto target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

// Returns how much of it is written; where that is not all, why not is in errno.
std::size_t write_all(int file, const char* data, std::size_t size) noexcept {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t put = ::write(file, data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) break;
    done += static_cast<std::size_t>(put);
  }
  return done;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

std::string read_file(const std::string& path, std::int64_t limit_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const char* remedy = errno == ENOENT   ? ". Check its name."
                         : errno == EACCES ? ". Let this user read it (chmod +r)."
                                           : ". Name another.";
    fail_read(path, std::strerror(errno) + std::string(remedy));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_read(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) {
    fail_read(path,
              S_ISDIR(status.st_mode) ? "a folder. Name a file." : "not a plain file. Name one.");
  }
  if (status.st_size > limit_bytes) {
    fail_read(path, fmt::format("{} bytes, at most {} expected. Name another.", status.st_size,
                                limit_bytes));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, std::strerror(errno));
    if (got == 0) fail_read(path, "it shrank while it was read. Try again when it is whole.");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

OutputFile::OutputFile(const std::string& path) : path_(path), target_(followed(path)) {
  struct stat status {};
  const bool special = ::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  if (!special) partial_ = fmt::format("{}.{}.tmp", target_, ::getpid());
  const int flags = special ? O_WRONLY : O_RDWR | O_CREAT | O_TRUNC;
  file_ = Descriptor(::open((special ? target_ : partial_).c_str(), flags | O_CLOEXEC, 0644));
  if (file_.get() < 0) {
    const std::string reason = std::strerror(errno);
    partial_.clear();
    give_up("open", reason);
  }
}

OutputFile::~OutputFile() {
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void OutputFile::note(const char* doing) noexcept {
  failed_ = doing;
  error_ = errno;
}

void OutputFile::give_up(const char* doing, const std::string& reason) const {
  fail(ErrorCode::kEnvironment, "{}: cannot be written: {}: {}", path_, doing, reason);
}

void OutputFile::check() const {
  if (failed_ != nullptr) give_up(failed_, std::strerror(error_));
}

void OutputFile::write(const void* data, std::size_t size) noexcept {
  if (failed_ != nullptr) return;
  digest_.add(data, size);
  if (write_all(file_.get(), static_cast<const char*>(data), size) < size) note("write");
}

const std::string& OutputFile::written() const {
  check();
  return partial_.empty() ? target_ : partial_;
}

void OutputFile::read_back() const {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  DigestStream there;
  std::string piece(kPiece, '\0');
  for (off_t at = 0;;) {
    const ssize_t got = ::pread(file_.get(), piece.data(), piece.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) give_up("read back", std::strerror(errno));
    if (got == 0) break;
    there.add(piece.data(), static_cast<std::size_t>(got));
    at += got;
  }
  if (there.result() != digest_.result()) give_up("read back", "it is not what was written");
}

void OutputFile::commit() {
  check();
  if (partial_.empty()) return;
  if (::fsync(file_.get()) != 0) note("sync");
  check();
  read_back();
  // Some file systems say only now that there was no room.
  if (::close(file_.release()) != 0) note("close");
  check();
  if (::rename(partial_.c_str(), target_.c_str()) != 0) note("rename");
  check();
  partial_.clear();
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) {
    fail(ErrorCode::kEnvironment, "{}: sync: {}", path, std::strerror(errno));
  }
}

AppendedFile::AppendedFile(const std::string& path, const std::string& what, Begin begin)
    : what_(what),
      file_(
          ::open(path.c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (begin == Begin::kAnew ? O_TRUNC : 0),
                 0644)) {
  struct stat status {};
  if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) {
    fail(ErrorCode::kUsage, "{}: cannot be written to: {}. Name another.", what,
         std::strerror(errno));
  }
  began_empty_ = status.st_size == 0;
}

bool AppendedFile::append(std::string_view record) {
  const std::size_t put = write_all(file_.get(), record.data(), record.size());
  if (put == record.size()) return true;
  if (failure_.empty()) failure_ = fmt::format("{}: {}", what_, std::strerror(errno));
  struct stat status {};
  const bool part = put > 0 && ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (part && ::ftruncate(file_.get(), status.st_size - static_cast<off_t>(put)) != 0) {
    file_ = Descriptor();  // what follows a part of a record would be read as its rest
  }
  return false;
}

}  // namespace autodist
