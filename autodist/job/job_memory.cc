#include "autodist/job/job_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/job/place.h"

namespace autodist::job {
namespace {

constexpr std::uint64_t kMark = 0x31424f4a44415541;  // what tells it from other descriptors
constexpr std::int64_t kPage = 4096;                 // plans come after it
constexpr std::uint32_t kMostDescriptors = 1'048'576;
constexpr std::int64_t kRecoveries = 64;
constexpr int kBeyondThoseOfARank = 10;  // a process that is started has others as its first ones

// Before each plan.
struct Entry {
  std::uint64_t name_bytes = 0;
  std::uint64_t document_bytes = 0;
};

[[noreturn]] void refuse(const char* what) {
  fail(ErrorCode::kEnvironment, "the job's memory: {}: {}", what, std::strerror(errno));
}

}  // namespace

struct JobMemory::Shared {
  std::uint64_t mark = kMark;
  std::atomic<std::int64_t> first{-1};
  std::atomic<std::int64_t> done{-1};
  std::atomic<std::int64_t> saved{-1};
  std::atomic<std::int64_t> unusable_bytes{0};
  char unusable[2048] = {};                // addresses, each with a line's end
  std::atomic<std::int64_t> recovered{0};  // so often; the last ones, in turn:
  Recovery recoveries[kRecoveries];
};

JobMemory::JobMemory() {
  static_assert(sizeof(Shared) <= kPage);
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  const Descriptor made(::memfd_create("autodist-job", MFD_CLOEXEC));
  if (made.get() < 0) refuse("memfd_create");
  file_ = Descriptor(::fcntl(made.get(), F_DUPFD, kBeyondThoseOfARank));
  if (file_.get() < 0) refuse("fcntl");
  if (::ftruncate(file_.get(), kPage) != 0) refuse("ftruncate");
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (page == MAP_FAILED) refuse("mmap");
  shared_ = new (page) Shared;
}

JobMemory::JobMemory(Descriptor file) : file_(std::move(file)) {
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (page == MAP_FAILED) refuse("mmap");
  shared_ = static_cast<Shared*>(page);
}

JobMemory::JobMemory(JobMemory&& other) noexcept
    : file_(std::move(other.file_)), shared_(std::exchange(other.shared_, nullptr)) {}

JobMemory& JobMemory::operator=(JobMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(shared_, other.shared_);
  return *this;
}

JobMemory::~JobMemory() {
  if (shared_ != nullptr) ::munmap(shared_, kPage);
}

std::optional<JobMemory> JobMemory::inherited(const Environment& environment) {
  const auto text = environment(kVariable);
  if (!text) return std::nullopt;
  const int given = static_cast<int>(number_of(kVariable, *text, kMostDescriptors));
  std::uint64_t mark = 0;
  struct stat about {};
  const bool is_ours = ::fstat(given, &about) == 0 && about.st_size >= kPage &&
                       ::pread(given, &mark, sizeof(mark), 0) == sizeof(mark) && mark == kMark;
  if (!is_ours) {
    fail(ErrorCode::kUsage,
         "environment: {}={} is no descriptor of a job's memory; only what supervises a job "
         "(autodist train, autodist run) sets it",
         kVariable, given);
  }
  ::fcntl(given, F_SETFD, FD_CLOEXEC);
  Descriptor own(::fcntl(given, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0) refuse("fcntl");
  return JobMemory(std::move(own));
}

JobMemory::Progress JobMemory::progress() const {
  Progress progress;
  progress.done = shared_->done;  // before `first`, which is written before it
  progress.first = shared_->first;
  progress.saved = shared_->saved;
  return progress;
}

void JobMemory::note_recovery(const Recovery& recovery) {
  const std::int64_t number = shared_->recovered;
  shared_->recoveries[number % kRecoveries] = recovery;
  shared_->recovered = number + 1;
}

std::vector<JobMemory::Recovery> JobMemory::recoveries() const {
  const std::int64_t end = shared_->recovered;
  std::vector<Recovery> all;
  for (std::int64_t i = std::max<std::int64_t>(0, end - kRecoveries); i < end; ++i) {
    all.push_back(shared_->recoveries[i % kRecoveries]);
  }
  return all;
}

void JobMemory::note_unusable(const std::vector<std::string>& addresses) {
  std::int64_t bytes = shared_->unusable_bytes;
  for (const std::string& each : addresses) {
    const std::string line = each + "\n";
    if (static_cast<std::size_t>(bytes) + line.size() > sizeof(Shared::unusable)) break;
    std::memcpy(shared_->unusable + bytes, line.data(), line.size());
    bytes += static_cast<std::int64_t>(line.size());
  }
  shared_->unusable_bytes = bytes;
}

std::vector<std::string> JobMemory::unusable() const {
  std::istringstream lines(
      std::string(shared_->unusable, static_cast<std::size_t>(shared_->unusable_bytes)));
  std::vector<std::string> addresses;
  for (std::string each; std::getline(lines, each);) addresses.push_back(each);
  return addresses;
}

void JobMemory::begin_generation() {
  shared_->unusable_bytes = 0;
  shared_->done = -1;
  shared_->first = -1;
}

void JobMemory::note_steps(std::int64_t done) {
  if (shared_->first < 0) shared_->first = done;
  shared_->done = done;
}

void JobMemory::note_saved(std::int64_t step) { shared_->saved = step; }

std::optional<std::string> JobMemory::read(std::int64_t at, std::uint64_t size) const {
  std::string bytes(size, '\0');
  const ssize_t got = ::pread(file_.get(), bytes.data(), size, at);
  if (got != static_cast<ssize_t>(size)) return std::nullopt;
  return bytes;
}

std::optional<std::string> JobMemory::plan(const std::string& name) const {
  std::optional<std::string> plan;
  Entry entry;
  for (std::int64_t at = kPage;
       ::pread(file_.get(), &entry, sizeof(entry), at) == sizeof(entry) && entry.name_bytes > 0;) {
    at += sizeof(entry);
    const auto found = read(at, entry.name_bytes);
    at += static_cast<std::int64_t>(entry.name_bytes);
    if (found == name) plan = read(at, entry.document_bytes);
    at += static_cast<std::int64_t>(entry.document_bytes);
  }
  return plan;
}

// The entry's head comes last: a chief that dies in between has kept nothing.
void JobMemory::keep_plan(const std::string& name, const std::string& document) {
  std::int64_t at = kPage;
  Entry entry;
  while (::pread(file_.get(), &entry, sizeof(entry), at) == sizeof(entry) && entry.name_bytes > 0) {
    at += static_cast<std::int64_t>(sizeof(entry) + entry.name_bytes + entry.document_bytes);
  }
  const auto write = [&](const void* data, std::size_t size, std::int64_t to) {
    if (::pwrite(file_.get(), data, size, to) != static_cast<ssize_t>(size)) refuse("write");
  };
  const std::string text = name + document;
  write(text.data(), text.size(), at + static_cast<std::int64_t>(sizeof(entry)));
  entry = {name.size(), document.size()};
  write(&entry, sizeof(entry), at);
}

}  // namespace autodist::job
