#include "autodist/job/meeting_point.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "autodist/base/clock.h"
#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::job {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestFile = 256;
constexpr auto kPoll = std::chrono::milliseconds(20);

void make_private(const std::string& folder) {
  std::error_code ignored;
  fs::create_directories(fs::path(folder).parent_path(), ignored);
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    fail(ErrorCode::kEnvironment,
         "{}: the folder for the job's key cannot be made: {}. Name another in "
         "AUTODIST_MEETING_DIR.",
         folder, std::strerror(errno));
  }
  struct stat about {};
  if (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
      about.st_uid != ::geteuid() || (about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail(ErrorCode::kEnvironment,
         "{}: the job's key is kept here, so it has to be a folder of yours that nobody else can "
         "read (chmod 700)",
         folder);
  }
}

// A reader sees all of it or nothing; others never see anything.
void write_private(const std::string& path, const std::string& text) {
  const std::string partial = fmt::format("{}.{}.tmp", path, ::getpid());
  ::unlink(partial.c_str());
  const Descriptor file(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() >= 0 &&
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::rename(partial.c_str(), path.c_str()) == 0) {
    return;
  }
  const std::string reason = std::strerror(errno);
  ::unlink(partial.c_str());
  fail(ErrorCode::kEnvironment,
       "{}: the job's key cannot be left there: {}. Name another folder in AUTODIST_MEETING_DIR.",
       path, reason);
}

}  // namespace

// Launchers' names for a job hold slashes and semicolons.
std::string meeting_file(const std::string& folder, const std::string& job_id) {
  return folder + "/" + to_string(digest_of(job_id));
}

std::string meeting_folder(const Environment& environment, bool one_machine) {
  std::string folder;
  if (const auto given = environment("AUTODIST_MEETING_DIR")) {
    folder = *given;
  } else if (!one_machine) {
    const auto home = environment("HOME");
    if (!home)
      fail(ErrorCode::kEnvironment,
           "environment: HOME is not set, AUTODIST_MEETING_DIR neither. Set one of them.");
    folder = *home + "/.autodist/jobs";
  } else if (const auto runtime = environment("XDG_RUNTIME_DIR")) {
    folder = *runtime + "/autodist";
  } else {
    folder = environment("TMPDIR").value_or("/tmp") + fmt::format("/autodist-{}", ::geteuid());
  }
  make_private(folder);
  return folder;
}

MeetingPoint::MeetingPoint(const std::string& folder, const std::string& job_id,
                           const Meeting& meeting)
    : path_(meeting_file(folder, job_id)) {
  write_private(path_, fmt::format("{} {} {}", meeting.port, meeting.key, meeting.address));
}

MeetingPoint::~MeetingPoint() { ::unlink(path_.c_str()); }

// The file holds "PORT KEY ADDRESS".
std::optional<Meeting> meeting_at(const std::string& folder, const std::string& job_id) {
  const std::string path = meeting_file(folder, job_id);
  if (!fs::exists(path)) return std::nullopt;
  std::string text;
  try {
    text = read_file(path, kLargestFile);
  } catch (const Error&) {  // gone again
    return std::nullopt;
  }
  std::istringstream words(text);
  Meeting meeting;
  if (!(words >> meeting.port >> meeting.key >> meeting.address)) {
    fail(ErrorCode::kEnvironment, "{}: not what a chief writes. Remove it.", path);
  }
  return meeting;
}

Meeting wait_for_meeting(const std::string& folder, const std::string& job_id, Seconds limit,
                         const std::optional<Meeting>& stale,
                         const std::function<void()>& while_waiting) {
  const Deadline deadline(limit);
  while (true) {
    if (const auto meeting = meeting_at(folder, job_id); meeting && meeting != stale) {
      return *meeting;
    }
    if (while_waiting) while_waiting();
    if (deadline.has_passed()) {
      fail(ErrorCode::kPeersLost,
           "the chief left no word in {} within {}; --join-timeout (in a program: join_limit) "
           "waits longer. Where the machines do not share the folder, set AUTODIST_MEETING_DIR to "
           "one that they share, or AUTODIST_CHIEF=ADDRESS:PORT and AUTODIST_KEY_FILE for every "
           "rank.",
           folder, to_string(limit));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace autodist::job
