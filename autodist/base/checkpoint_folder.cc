#include "autodist/base/checkpoint_folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "autodist/base/error.h"

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

// A forked process has copies of the descriptors, with which the locks would live on when this one
// is gone: it closes them as it begins. Held while a process is forked.
std::mutex forking;
std::set<int> locked;  // descriptors

void note_locked(int file) {
  static const int handlers = ::pthread_atfork([] { forking.lock(); }, [] { forking.unlock(); },
                                               [] {
                                                 for (const int each : locked) ::close(each);
                                                 locked.clear();
                                                 forking.unlock();
                                               });
  static_cast<void>(handlers);
  const std::lock_guard<std::mutex> lock(forking);
  locked.insert(file);
}

void note_unlocked(int file) {
  const std::lock_guard<std::mutex> lock(forking);
  locked.erase(file);
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& what, const std::string& path)
    : name_(path + "/.lock"), process_(::getpid()) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::kCheckpoint, "{} {}: {}", what, path, why);
  };
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) refuse(fmt::format("the folder cannot be made: {}. Name another.", error.message()));
  while (true) {
    lock_ = Descriptor(::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock_.get() < 0)
      refuse(fmt::format("cannot be written to: {}. Name another.", std::strerror(errno)));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return;  // a file system without locks
      const std::string holder = holder_in(lock_.get());
      name_.clear();
      if (holder == this_holder()) return;
      refuse(
          fmt::format("another job writes its checkpoints there ({}). Give each job a folder of "
                      "its own.",
                      holder.empty() ? "it has just begun" : holder));
    }
    if (still_there(lock_.get(), name_)) break;
  }
  const std::string holder = this_holder();
  const bool written =
      ::ftruncate(lock_.get(), 0) == 0 &&
      ::pwrite(lock_.get(), holder.data(), holder.size(), 0) == static_cast<ssize_t>(holder.size());
  if (!written) {
    const std::string why = std::strerror(errno);
    ::unlink(name_.c_str());
    refuse(fmt::format("cannot be written to: {}. Name another.", why));
  }
  note_locked(lock_.get());
}

CheckpointFolder::~CheckpointFolder() {
  if (name_.empty() || lock_.get() < 0) return;
  if (process_ != ::getpid()) {  // which has closed it
    static_cast<void>(lock_.release());
    return;
  }
  note_unlocked(lock_.get());
  ::unlink(name_.c_str());
}

}  // namespace autodist
