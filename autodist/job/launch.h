// Starts ranks of a job, and never leaves one behind.

#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autodist/base/file.h"
#include "autodist/base/mutex.h"
#include "autodist/base/units.h"
#include "autodist/job/place.h"

namespace autodist::job {

// The program of this process and its arguments, as it was started.
struct CommandLine {
  std::string program;
  std::vector<std::string> arguments;  // arguments[0] is the name
};
CommandLine own_command_line();

// A process of this machine that is a rank, or stands for one elsewhere.
struct RankProcess {
  std::uint32_t rank = 0;
  std::string node;                      // where the rank is, in messages; empty: here
  CommandLine command;                   // the program may be a name on PATH
  std::vector<std::string> environment;  // in the place of ours where it is not empty
  // Handed over on this descriptor; on standard input, which else holds nothing, it ends only when
  // the rank is to end.
  std::string input;
  int input_descriptor = 0;
};

// The descriptor from which a rank that this program starts reads the job's key.
inline constexpr int kKeyDescriptor = 3;

// A rank on this machine; the key goes by descriptor. It inherits these variables, but for another
// rank's place.
RankProcess here(const CommandLine& command, const JobPlace& place,
                 const std::vector<std::string>& inherited = {});

class Guardian;

// Ranks as child processes. What they write on standard output or standard error is handed, line by
// line, to `output` (from threads of this object). A child dies with its parent, also when the
// parent is killed, but not with the thread that made this object.
class StartedRanks {
 public:
  using Output = std::function<void(std::uint32_t rank, const std::string& line)>;
  // Who dies with this process when it is killed: the ranks alone, at once; or (a process more,
  // which waits for that) they and whatever they have started in their process groups, after a
  // SIGTERM to the ranks and five seconds in which they may end in order.
  enum class DiesWithUs { kRanks, kGroups };

  // Throws Error(kEnvironment).
  StartedRanks(const std::vector<RankProcess>& ranks, Output output,
               DiesWithUs dies = DiesWithUs::kRanks);
  // Those that still run are stopped, after two seconds by force.
  ~StartedRanks();
  StartedRanks(const StartedRanks&) = delete;
  StartedRanks& operator=(const StartedRanks&) = delete;

  // Tells those that run to end: SIGTERM, or the end of the input.
  void stop();
  // Ends this rank by force, if it runs: its whole process group; or all of them.
  void kill(std::uint32_t rank);
  void kill_all();

  // Whether some have not ended yet. Does not block.
  [[nodiscard]] bool any_runs();

  // Whether this rank has been started and has not ended yet. Does not block.
  [[nodiscard]] bool runs(std::uint32_t rank);

  // The first rank that has been killed. Takes nothing from the others of these functions, and may
  // be called on another thread.
  [[nodiscard]] std::optional<std::uint32_t> killed() const;

  // The first rank that ended badly, and what it wrote last: "rank 1 (pid 4711) ended with exit
  // code 1; its last line: KeyError: 'x'". Blocks no longer than its last line takes.
  std::optional<std::string> failure();
  struct Cause {
    std::string account;  // as failure()
    int status;           // as waitpid() gives it
  };
  // Behind a failure(): of the rank that ended for a reason of its own. The others end because of
  // that one, with kPeersLost, and may be faster: waits for it no longer than `limit`; where there
  // is none, of one of them.
  Cause cause(Seconds limit);
  // The other machines whose rank ended because they lack something (Error(kEnvironment)).
  std::vector<std::string> lacking();
  // As failure(), also of a rank that ended well: at a time when none is to end.
  std::optional<std::string> ended();
  // How this rank has ended, as failure(); nothing where it still runs after `limit`.
  std::optional<std::string> end_of(std::uint32_t rank, Seconds limit);

  // Waits for all to end; false where some still run after `limit`. Throws Error(kPeersLost) with
  // failure().
  bool wait(Seconds limit);
  // The first of those that run: "rank 1 (pid 4711)".
  [[nodiscard]] std::string running() const;

 private:
  // The other constructor begins with this one, so that the destructor runs where it throws.
  explicit StartedRanks(Output output);

  // What a rank writes, as its reader knows it.
  struct Lines {
    Mutex mutex;
    std::string last AD_GUARDED_BY(mutex);
    bool over AD_GUARDED_BY(mutex) = false;
  };
  struct Child {
    std::uint32_t rank = 0;
    std::string node;
    pid_t pid = 0;
    Descriptor input;  // our end, where it stays open
    bool ended = false;
    int status = 0;
    std::shared_ptr<Lines> lines;
  };

  void start(const RankProcess& rank);
  void reap();
  static std::string describe(const Child& child);
  static std::string account(const Child& child);

  std::vector<Child> children_;
  std::vector<std::thread> readers_;
  Output output_;
  std::unique_ptr<Guardian> guardian_;
  // The kernel kills a child when the thread that forked it ends.
  class LastingThread;
  std::unique_ptr<LastingThread> forks_;
};

}  // namespace autodist::job
