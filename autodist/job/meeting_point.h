// How ranks that somebody else started learn where the chief listens and what the job's key is: the
// chief leaves both in a file that only its user can read, and the others wait for it.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "autodist/base/units.h"
#include "autodist/job/place.h"

namespace autodist::job {

struct Meeting {
  std::uint16_t port = 0;
  std::string key;
  std::string address = "127.0.0.1";  // where the chief listens

  friend bool operator==(const Meeting& a, const Meeting& b) {
    return a.port == b.port && a.key == b.key && a.address == b.address;
  }
};

// A folder for it: AUTODIST_MEETING_DIR; else, where all ranks are on this machine, one below
// XDG_RUNTIME_DIR or the temporary folder; else ~/.autodist/jobs, which has to be shared. Made for
// its user alone where it is missing. Throws Error(kEnvironment), also for a folder that others may
// write to or read.
std::string meeting_folder(const Environment& environment, bool one_machine);

// The chief's side: the file is there, for its user's eyes alone, from here until the object ends.
// It takes the place of one that a chief before it left.
class MeetingPoint {
 public:
  // Throws Error(kEnvironment).
  MeetingPoint(const std::string& folder, const std::string& job_id, const Meeting& meeting);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

 private:
  std::string path_;
};

// What stands there now: of a chief of now, or of one that was killed and could not take it away.
std::optional<Meeting> meeting_at(const std::string& folder, const std::string& job_id);
// Where it stands, for messages.
std::string meeting_file(const std::string& folder, const std::string& job_id);

// The others' side: waits for a word, other than `stale`. `while_waiting` is called several times a
// second. Throws Error(kPeersLost) when there is none within the limit.
Meeting wait_for_meeting(const std::string& folder, const std::string& job_id, Seconds limit,
                         const std::optional<Meeting>& stale = std::nullopt,
                         const std::function<void()>& while_waiting = {});

}  // namespace autodist::job
