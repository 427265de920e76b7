#include "autodist/base/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist {
namespace {

// What the lock's file says: who holds it.
std::string this_holder() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

std::string holder_in(int file) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

// Whether the file that was opened still has its name: the one who held it takes it away.
bool still_there(int file, const std::string& name) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file, &opened) == 0 && ::stat(name.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Of this process, which a forked one does not inherit: closing any of its descriptors of the file
// ends it. False where another process has one; true, too, on a file system without locks.
bool lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(file, F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN);
}

}  // namespace

class CheckpointFolder::Lock {
 public:
  Lock(std::string name, Descriptor file) : name_(std::move(name)), file_(std::move(file)) {}
  ~Lock() {
    if (is_own()) ::unlink(name_.c_str());
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // And not that of the process that has forked this one.
  [[nodiscard]] bool is_own() const { return process_ == ::getpid(); }

 private:
  std::string name_;
  Descriptor file_;
  pid_t process_ = ::getpid();
};

CheckpointFolder::CheckpointFolder(const std::string& what, const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Lock>> held;  // by the folder's one true name
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::kCheckpoint, "{} {}: {}", what, path, why);
  };
  std::error_code error;
  std::filesystem::create_directories(path, error);
  const std::string folder = error ? "" : std::filesystem::canonical(path, error).string();
  if (error) refuse(fmt::format("the folder cannot be made: {}. Name another.", error.message()));
  const std::lock_guard<std::mutex> alone(mutex);
  std::weak_ptr<const Lock>& own = held[folder];
  lock_ = own.lock();
  if (lock_ && lock_->is_own()) return;
  const std::string name = folder + "/.lock";
  Descriptor file;
  while (true) {
    file = Descriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (file.get() < 0)
      refuse(fmt::format("cannot be written to: {}. Name another.", std::strerror(errno)));
    if (!lock(file.get())) {
      const std::string holder = holder_in(file.get());
      refuse(
          fmt::format("another job writes its checkpoints there ({}). Give each job a folder of "
                      "its own.",
                      holder.empty() ? "it has just begun" : holder));
    }
    if (still_there(file.get(), name)) break;
  }
  const std::string holder = this_holder();
  const bool written =
      ::ftruncate(file.get(), 0) == 0 &&
      ::pwrite(file.get(), holder.data(), holder.size(), 0) == static_cast<ssize_t>(holder.size());
  if (!written) {
    const std::string why = std::strerror(errno);
    ::unlink(name.c_str());
    refuse(fmt::format("cannot be written to: {}. Name another.", why));
  }
  lock_ = std::make_shared<const Lock>(name, std::move(file));
  own = lock_;
}

}  // namespace autodist
