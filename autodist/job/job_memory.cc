#include "autodist/job/job_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/job/place.h"
#include "autodist/job/step_losses.h"
#include "autodist/job/subprocess.h"

namespace autodist::job {
namespace {

constexpr std::uint64_t kMark = 0x34424f4a44415541;  // tells it from other descriptors and layouts
constexpr std::int64_t kHead = 256 << 10;            // documents come after it
// Documents that lie among the plans: a plan's name has spaces, and does not begin so.
constexpr char kFolder[] = "/";
constexpr char kCheckpoint[] = "resume";    // that a standby goes on from
constexpr char kComputing[] = "computing";  // and the job's number among those of its program
// From plans to snapshots, and between the two slots of these.
constexpr std::int64_t kApart = std::int64_t{1} << 40;
constexpr std::uint32_t kMostDescriptors = 1'048'576;
constexpr std::int64_t kRecoveries = 64;
constexpr std::size_t kModels = 32;  // those beyond are counted as one

// Before each document.
struct Entry {
  std::uint64_t name_bytes = 0;
  std::uint64_t document_bytes = 0;
};

[[noreturn]] void refuse(const char* what) {
  fail(ErrorCode::kEnvironment,
       "the job's memory: {}: {}; free memory, or allow more open files (ulimit -n)", what,
       std::strerror(errno));
}

Descriptor new_file() {
  const Descriptor made(::memfd_create("autodist-job", MFD_CLOEXEC));
  if (made.get() < 0) refuse("memfd_create");
  Descriptor file(::fcntl(made.get(), F_DUPFD, kFirstFreeDescriptor));
  if (file.get() < 0) refuse("fcntl");
  if (::ftruncate(file.get(), kHead) != 0) refuse("ftruncate");
  return file;
}

std::int64_t snapshot_at(std::int64_t slot) { return (slot + 1) * kApart; }

}  // namespace

struct JobMemory::Shared {
  std::uint64_t mark = kMark;
  std::atomic<std::int64_t> first{-1};
  std::atomic<std::int64_t> done{-1};
  std::atomic<bool> trained{false};
  std::atomic<std::size_t> model{0};  // that is trained
  std::atomic<std::int64_t> furthest[kModels] = {};
  std::atomic<std::int64_t> furthest_before[kModels] = {};  // this generation
  std::atomic<std::int64_t> saved{-1};
  std::atomic<std::int64_t> saved_no_snapshot{-1};  // the newest that is no snapshot
  std::atomic<std::int64_t> kept{-1};               // twice the snapshot's step, and its slot
  std::atomic<std::int64_t> unusable_bytes{0};
  char unusable[2048] = {};                // addresses, each with a line's end
  std::atomic<std::int64_t> recovered{0};  // so often; the last ones, in turn:
  Recovery recoveries[kRecoveries];
  std::atomic<std::int64_t> beats{0};
  std::atomic<double> silence_limit{0};  // seconds
  std::atomic<std::int64_t> process{0};  // that beats
  std::atomic<std::int64_t> steps_at_last_loss{-1};
  std::atomic<double> last_loss{0};
  std::atomic<std::int64_t> generation{0};
  StepLosses losses;
  std::atomic<std::int64_t> plans_kept{0};
  std::atomic<bool> tries_plans{false};
  std::atomic<std::uint32_t> standing_by{0};
  std::atomic<std::int64_t> standby_beats{0};
  std::atomic<std::uint32_t> turn{0};
};

JobMemory::JobMemory() : JobMemory(new_file()) {
  static_assert(sizeof(Shared) <= kHead);
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  static_assert(std::atomic<double>::is_always_lock_free);
  shared_ = new (shared_) Shared;
}

JobMemory::JobMemory(Descriptor file) : file_(std::move(file)) {
  void* page = ::mmap(nullptr, kHead, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (page == MAP_FAILED) refuse("mmap");
  shared_ = static_cast<Shared*>(page);
}

JobMemory::JobMemory(JobMemory&& other) noexcept
    : file_(std::move(other.file_)),
      shared_(std::exchange(other.shared_, nullptr)),
      writes_(other.writes_) {}

JobMemory& JobMemory::operator=(JobMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(shared_, other.shared_);
  std::swap(writes_, other.writes_);
  return *this;
}

JobMemory::~JobMemory() {
  if (shared_ != nullptr) ::munmap(shared_, kHead);
}

std::optional<JobMemory> JobMemory::inherited(const Environment& environment) {
  const auto text = environment(kVariable);
  if (!text) return std::nullopt;
  const int given = static_cast<int>(number_of(kVariable, *text, kMostDescriptors));
  std::uint64_t mark = 0;
  struct stat about {};
  const bool is_ours = ::fstat(given, &about) == 0 && about.st_size >= kHead &&
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
  progress.trained = shared_->trained;
  const std::size_t model = shared_->model;
  progress.furthest = shared_->furthest[model];
  progress.furthest_before = shared_->furthest_before[model];
  for (const auto& each : shared_->furthest) progress.furthest_all += each;
  progress.saved = shared_->saved;
  const std::int64_t kept = shared_->kept;
  if (kept >= 0) progress.kept = kept / 2;
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
  return split({shared_->unusable, static_cast<std::size_t>(shared_->unusable_bytes)}, '\n');
}

void JobMemory::begin_generation(std::uint32_t standby, const std::string& checkpoint) {
  ++shared_->generation;
  shared_->unusable_bytes = 0;
  shared_->beats = 0;
  shared_->done = -1;
  shared_->first = -1;
  shared_->trained = false;
  shared_->tries_plans = false;
  for (std::size_t model = 0; model < kModels; ++model) {
    shared_->furthest_before[model] = shared_->furthest[model].load();
  }
  if (standby > 0) append(kHead, kCheckpoint, {checkpoint});
  shared_->turn = standby;  // the last: it does not wait any longer
}

void JobMemory::note_standing_by(std::uint32_t standby) {
  ++shared_->standby_beats;
  shared_->standing_by = standby;
}

std::optional<std::string> JobMemory::turn_of(std::uint32_t standby) const {
  if (shared_->turn != standby) return std::nullopt;
  return last_of(kHead, kCheckpoint).value_or("");
}

JobMemory::StandingBy JobMemory::standing_by() const {
  return {shared_->standing_by, shared_->standby_beats};
}

std::uint32_t JobMemory::standby_that_runs() const { return shared_->turn; }

void JobMemory::note_steps(std::size_t model, std::int64_t done) {
  model = std::min(model, kModels - 1);
  if (shared_->first < 0 || shared_->model != model) shared_->first = done;
  shared_->model = model;
  shared_->done = done;
  shared_->furthest[model] = std::max<std::int64_t>(shared_->furthest[model], done);
  if (done > shared_->first) shared_->trained = true;
}

void JobMemory::note_saved(std::int64_t step, bool is_snapshot) {
  if (!is_snapshot) shared_->saved_no_snapshot = step;
  shared_->saved = step;
}

void JobMemory::beat(Seconds silence_limit) {
  shared_->silence_limit = silence_limit.value;
  shared_->process = ::getpid();
  ++shared_->beats;
}

JobMemory::Heartbeats JobMemory::heartbeats() const {
  const std::int64_t beats = shared_->beats;  // before what is written before it
  return {beats, Seconds{shared_->silence_limit}, shared_->process};
}

void JobMemory::note_last_loss(std::int64_t done, double loss) {
  shared_->last_loss = loss;
  shared_->steps_at_last_loss = done;
}

std::optional<double> JobMemory::last_loss(std::int64_t done) const {
  if (shared_->steps_at_last_loss != done) return std::nullopt;
  return shared_->last_loss.load();
}

std::optional<double> JobMemory::compare_loss(std::uint64_t series, std::int64_t step,
                                              double loss) {
  return shared_->losses.compare(shared_->generation, series, step, loss);
}

void JobMemory::forget_compared_losses() { shared_->losses.forget(); }

std::vector<std::string> JobMemory::note_computing(std::size_t job_number,
                                                   const std::vector<std::string>& ranks) {
  const std::string name = fmt::format("{}{}", kComputing, job_number);
  const std::string now = fmt::format("{}\n", fmt::join(ranks, "\n"));
  const std::string before = last_of(kHead, name).value_or("");
  if (before != now) append(kHead, name, {now});
  return split(before, '\n');
}

std::optional<std::string> JobMemory::read(std::int64_t at, std::uint64_t size) const {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {  // a call reads 2 GiB at most
    const ssize_t got = ::pread(file_.get(), bytes.data() + done, size - done,
                                at + static_cast<std::int64_t>(done));
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

// Returns where the next one would begin.
template <typename Visit>
std::int64_t JobMemory::for_each_entry(std::int64_t at, Visit visit) const {
  Entry entry;
  while (::pread(file_.get(), &entry, sizeof(entry), at) == sizeof(entry) && entry.name_bytes > 0) {
    at += sizeof(entry);
    const auto name = read(at, entry.name_bytes);
    at += static_cast<std::int64_t>(entry.name_bytes);
    visit(name.value_or(""), at, entry.document_bytes);
    at += static_cast<std::int64_t>(entry.document_bytes);
  }
  return at;
}

std::optional<std::string> JobMemory::last_of(std::int64_t at, const std::string& name) const {
  std::optional<std::string> found;
  for_each_entry(at, [&](const std::string& each, std::int64_t begin, std::uint64_t size) {
    if (each == name) found = read(begin, size);
  });
  return found;
}

// The entry's head comes last: a chief that dies in between has kept nothing. What a former
// snapshot has left behind it is no entry.
void JobMemory::append(std::int64_t at, const std::string& name,
                       const std::vector<std::string_view>& document) {
  at = for_each_entry(at, [](const std::string&, std::int64_t, std::uint64_t) {});
  Entry entry{name.size(), 0};
  std::int64_t to = at + static_cast<std::int64_t>(sizeof(entry));
  const auto write = [&](std::string_view bytes) {
    while (!bytes.empty()) {  // a call writes 2 GiB at most
      const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), to);
      if (written <= 0) refuse("write");
      to += written;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  };
  write(name);
  for (const std::string_view piece : document) {
    write(piece);
    entry.document_bytes += piece.size();
  }
  for (const Entry& each : {Entry{}, entry}) {
    write({reinterpret_cast<const char*>(&each), sizeof(each)});  // NOLINT: its bytes
    to = at;
  }
}

std::optional<std::string> JobMemory::plan(const std::string& name) const {
  return last_of(kHead, name);
}

void JobMemory::keep_plan(const std::string& name, const std::string& document) {
  append(kHead, name, {document});
  ++shared_->plans_kept;
}

std::int64_t JobMemory::plans_kept() const { return shared_->plans_kept; }

void JobMemory::note_trials(bool go_on) { shared_->tries_plans = go_on; }

bool JobMemory::tries_plans() const { return shared_->tries_plans; }

void JobMemory::begin_snapshot() {
  const std::int64_t kept = shared_->kept;
  writes_ = kept < 0 ? 0 : 1 - kept % 2;
  const Entry none;
  if (::pwrite(file_.get(), &none, sizeof(none), snapshot_at(writes_)) != sizeof(none)) {
    refuse("write");
  }
}

void JobMemory::add_to_snapshot(const std::string& name,
                                const std::vector<std::string_view>& pieces) {
  append(snapshot_at(writes_), name, pieces);
}

void JobMemory::end_snapshot(std::int64_t step) { shared_->kept = 2 * step + writes_; }

void JobMemory::forget_snapshot() {
  shared_->kept = -1;
  shared_->saved = shared_->saved_no_snapshot.load();
}

std::optional<std::string> JobMemory::from_snapshot(const std::string& name) const {
  const std::int64_t kept = shared_->kept;
  return kept < 0 ? std::nullopt : last_of(snapshot_at(kept % 2), name);
}

std::vector<std::string> JobMemory::files_of_snapshot() const {
  std::vector<std::string> names;
  const std::int64_t kept = shared_->kept;
  if (kept < 0) return names;
  for_each_entry(snapshot_at(kept % 2), [&](const std::string& name, std::int64_t, std::uint64_t) {
    names.push_back(name);
  });
  return names;
}

void JobMemory::note_folder(const std::string& prefix, const std::string& path) {
  const std::string name = kFolder + prefix;
  if (path != last_of(kHead, name)) append(kHead, name, {path});
}

std::string JobMemory::folder_of_snapshot() const {
  std::string folder;
  const std::vector<std::string> files = files_of_snapshot();
  if (files.empty()) return folder;
  for_each_entry(kHead, [&](const std::string& name, std::int64_t begin, std::uint64_t size) {
    const bool is_folder = name.rfind(kFolder, 0) == 0;
    if (is_folder && files.front().rfind(name.substr(1), 0) == 0) {
      folder = read(begin, size).value_or("");
    }
  });
  return folder;
}

}  // namespace autodist::job
