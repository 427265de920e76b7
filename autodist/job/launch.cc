#include "autodist/job/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/job/remote.h"
#include "autodist/job/subprocess.h"
#include "autodist/job/wait_policy.h"

extern char** environ;

namespace autodist::job {
namespace {

constexpr auto kPollChild = std::chrono::milliseconds(20);
constexpr Seconds kGrace{2};
constexpr Seconds kLastLine{0.3};  // at most, for what a rank said at its end

// In a child between fork and exec, where little may be called: what execvp could not start, and
// why, as the rank's own line.
void say_not_started(const std::string& program, int error) {
  const char* const why = ::strerrordesc_np(error);
  for (const char* part :
       {"autodist: ", program.c_str(),
        " cannot be started: ", why != nullptr ? why : "for a reason without a name",
        error == ENOENT ? " (is the first line, #!…, that of a program here?)\n" : "\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) return;
  }
}

// Hands complete lines on until the writers have closed their ends.
void read_lines(int descriptor, const std::function<void(const std::string& line)>& take) {
  std::string pending;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    pending.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos;) {
      take(pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  if (!pending.empty()) take(pending);
}

}  // namespace

// A shell that outlives this process for some seconds: when the pipe from us ends, however we
// ended, it waits for the process groups that it was told of, whose ranks the kernel has asked to
// end, and then kills them. It is no program of ours, so that it takes no memory of ours along.
class Guardian {
 public:
  Guardian() : pipe_(kWhom), pid_(forked(kWhom)) {
    static const char* const kScript =
        "groups=; while read -r group; do groups=\"$groups -$group\"; done\n"
        "for second in 1 2 3 4 5; do\n"
        "  left=\n"
        "  for group in $groups; do kill -s 0 -- $group && left=1; done\n"
        "  [ -n \"$left\" ] || exit 0\n"
        "  sleep 1\n"
        "done\n"
        "kill -s KILL -- $groups\n";
    if (pid_ == 0) {
      ::setsid();  // no terminal's signal is for it
      const int nothing = ::open("/dev/null", O_WRONLY);
      const int in = ::fcntl(pipe_.read_end.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
      ::dup2(in, STDIN_FILENO);
      ::dup2(nothing, STDOUT_FILENO);  // who reads ours need not wait for its end
      ::dup2(nothing, STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", kScript, nullptr);
      ::_exit(127);
    }
    pipe_.read_end = Descriptor();
  }
  // After the ranks and their groups.
  ~Guardian() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void guard(pid_t group) {
    const std::string line = fmt::format("{}\n", group);
    (void)!::write(pipe_.write_end.get(), line.data(), line.size());
  }

 private:
  static constexpr const char* kWhom = "a guardian of ranks";
  Pipe pipe_;
  pid_t pid_;
};

class StartedRanks::LastingThread {
 public:
  LastingThread() : thread_([this] { work(); }) {}
  ~LastingThread() {
    {
      const MutexLock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LastingThread(const LastingThread&) = delete;
  LastingThread& operator=(const LastingThread&) = delete;

  // Runs it there, and throws here what it throws.
  void run(std::function<void()> task) {
    std::packaged_task<void()> work(std::move(task));
    auto done = work.get_future();
    {
      const MutexLock lock(mutex_);
      task_ = std::move(work);
    }
    changed_.notify_all();
    done.get();
  }

 private:
  void work() {
    const MutexLock lock(mutex_);
    while (true) {
      changed_.wait(mutex_, [this]() AD_REQUIRES(mutex_) { return over_ || task_.valid(); });
      if (over_) return;
      std::exchange(task_, {})();
    }
  }

  Mutex mutex_;
  ConditionVariable changed_;
  std::packaged_task<void()> task_ AD_GUARDED_BY(mutex_);
  bool over_ AD_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last to begin
};

CommandLine own_command_line() {
  CommandLine command;
  command.program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(in, argument, '\0');) {
    command.arguments.push_back(argument);
  }
  return command;
}

RankProcess here(const CommandLine& command, const JobPlace& place,
                 const std::vector<std::string>& inherited) {
  RankProcess process;
  process.rank = place.rank;
  process.command = command;
  process.environment = place_variables(place, kKeyDescriptor);
  for (const std::string& each : inherited) {
    if (!names_a_place(each)) process.environment.push_back(each);
  }
  if (!says_how_to_wait(environment_of(inherited))) {
    process.environment.push_back(std::string(kWaitPolicy) + "=" + kPassive);
  }
  process.input = place.key;
  process.input_descriptor = kKeyDescriptor;
  return process;
}

StartedRanks::StartedRanks(Output output) : output_(std::move(output)) {}

StartedRanks::StartedRanks(const std::vector<RankProcess>& ranks, Output output, DiesWithUs dies)
    : StartedRanks(std::move(output)) {
  if (dies == DiesWithUs::kGroups) guardian_ = std::make_unique<Guardian>();
  const auto start_all = [&] {
    for (const RankProcess& rank : ranks) start(rank);
  };
  // The first thread lasts as long as the process.
  const bool is_first = ::syscall(SYS_gettid) == ::getpid();
  if (is_first) {
    start_all();
  } else {
    forks_ = std::make_unique<LastingThread>();
    forks_->run(start_all);
  }
}

void StartedRanks::start(const RankProcess& rank) {
  const std::string whom = fmt::format("rank {}", rank.rank);
  Pipe input(whom);
  Pipe lines(whom);
  input.fill(whom, rank.input);
  // Everything that allocates happens before the fork: the child of a process with threads may only
  // call what is safe in a signal handler.
  std::vector<std::string> variables = rank.environment;
  std::vector<std::string> arguments = rank.command.arguments;
  std::vector<char*> environment = argv_of(variables);
  const std::vector<char*> argv = argv_of(arguments);
  const pid_t parent = ::getpid();
  // After a SIGTERM the guardian kills the ranks that have not ended.
  const int when_we_die = guardian_ ? SIGTERM : SIGKILL;
  const pid_t pid = forked(whom);
  if (pid == 0) {
    // Until it becomes the rank's program, the child runs our handler, and would not end by the
    // SIGTERM that follows our death.
    ::signal(SIGTERM, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, when_we_die);
    if (::getppid() != parent) ::_exit(1);  // the parent died before prctl took hold
    ::setpgid(0, 0);                        // Ctrl-C is for us to pass on
    const int nothing = ::open("/dev/null", O_RDONLY);
    // Where this process has few descriptors, the ends of the pipes are among the first ones, which
    // the dup2() calls below replace.
    const int in = ::fcntl(input.read_end.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
    const int out = ::fcntl(lines.write_end.get(), F_DUPFD_CLOEXEC, kFirstFreeDescriptor);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(in, rank.input_descriptor);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    // A rank that ends in order after our death may still write: its pipe has a reader, which is
    // the rank itself and reads nothing, so that no SIGPIPE ends it.
    if (when_we_die == SIGTERM) ::fcntl(lines.read_end.get(), F_DUPFD, kFirstFreeDescriptor);
    if (!rank.environment.empty()) environ = environment.data();
    ::execvp(rank.command.program.c_str(), argv.data());
    say_not_started(rank.command.program, errno);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // as the child does, whoever is first
  if (guardian_) guardian_->guard(pid);
  auto said = std::make_shared<Lines>();
  const bool stays_open = rank.input_descriptor == STDIN_FILENO;
  children_.push_back({rank.rank, rank.node, pid,
                       stays_open ? std::move(input.write_end) : Descriptor(), false, 0, said});
  readers_.emplace_back([this, said, from = std::move(lines.read_end), number = rank.rank] {
    read_lines(from.get(), [&](const std::string& line) {
      output_(number, line);
      const MutexLock lock(said->mutex);
      if (line.find_first_not_of(" \t\r") != std::string::npos) said->last = line;
    });
    const MutexLock lock(said->mutex);
    said->over = true;
  });
}

void StartedRanks::reap() {
  for (Child& child : children_) {
    if (child.ended) continue;
    if (::waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
  }
}

std::optional<std::uint32_t> StartedRanks::killed() const {
  for (const Child& child : children_) {
    siginfo_t how{};
    const int options = WEXITED | WNOHANG | WNOWAIT;  // reap() is told of it still
    if (::waitid(P_PID, static_cast<id_t>(child.pid), &how, options) != 0) continue;
    if (how.si_pid != child.pid) continue;  // it runs
    // What stands for a rank of another machine says of a signal what a shell says, and ssh of
    // itself something else.
    const bool by_signal =
        how.si_code != CLD_EXITED || (how.si_status > kBySignal && how.si_status != kSshFailed);
    if (by_signal) return child.rank;
  }
  return std::nullopt;
}

bool StartedRanks::any_runs() {
  reap();
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return !child.ended; });
}

std::string StartedRanks::describe(const Child& child) {
  return child.node.empty() ? fmt::format("rank {} (pid {})", child.rank, child.pid)
                            : fmt::format("rank {} (on {})", child.rank, child.node);
}

bool StartedRanks::runs(std::uint32_t rank) {
  reap();
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.rank == rank && !child.ended; });
}

namespace {

// Of a line that a program wrote, what a message shows.
std::string shown(const std::string& line) {
  constexpr std::size_t kMost = 300;  // bytes
  std::size_t end = std::min(line.size(), kMost);
  while (end < line.size() && end > 0 && !begins_character(line[end])) --end;
  return one_line(line.substr(0, end)) + (end < line.size() ? "…" : "");
}

}  // namespace

// How it ended, and its last line, which may still be on its way here.
std::string StartedRanks::account(const Child& child) {
  std::string text =
      WIFSIGNALED(child.status)
          ? fmt::format("{} was killed by signal {}", describe(child), WTERMSIG(child.status))
          : fmt::format("{} ended with exit code {}", describe(child), WEXITSTATUS(child.status));
  const Deadline deadline(kLastLine);
  while (true) {
    {
      const MutexLock lock(child.lines->mutex);
      if (child.lines->over || deadline.has_passed()) {
        if (!child.lines->last.empty()) text += "; its last line: " + shown(child.lines->last);
        return text;
      }
    }
    std::this_thread::sleep_for(kPollChild);
  }
}

std::optional<std::string> StartedRanks::failure() {
  reap();
  for (const Child& child : children_) {
    if (child.ended && child.status != 0) return account(child);
  }
  return std::nullopt;
}

StartedRanks::Cause StartedRanks::cause(Seconds limit) {
  constexpr int kBecauseOfAnother = static_cast<int>(ErrorCode::kPeersLost);
  const Deadline deadline(limit);
  while (true) {
    reap();
    const Child* bad = nullptr;
    bool is_its_own = false;
    bool all_ended = true;
    for (const Child& child : children_) {
      all_ended = all_ended && child.ended;
      if (!child.ended || child.status == 0 || is_its_own) continue;
      bad = &child;
      is_its_own = WIFSIGNALED(child.status) || WEXITSTATUS(child.status) != kBecauseOfAnother;
    }
    AD_CHECK(bad != nullptr) << "no rank ended badly";
    if (is_its_own || all_ended || deadline.has_passed()) {
      return {account(*bad), bad->status};
    }
    std::this_thread::sleep_for(kPollChild);
  }
}

std::vector<std::string> StartedRanks::lacking() {
  constexpr int kLacks = static_cast<int>(ErrorCode::kEnvironment);
  reap();
  std::vector<std::string> nodes;
  for (const Child& child : children_) {
    const bool lacks =
        child.ended && WIFEXITED(child.status) && WEXITSTATUS(child.status) == kLacks;
    if (lacks && !child.node.empty()) nodes.push_back(child.node);
  }
  return nodes;
}

std::optional<std::string> StartedRanks::ended() {
  if (const auto bad = failure()) return bad;
  for (const Child& child : children_) {
    if (child.ended) return account(child);
  }
  return std::nullopt;
}

std::optional<std::string> StartedRanks::end_of(std::uint32_t rank, Seconds limit) {
  const Deadline deadline(limit);
  while (runs(rank) && !deadline.has_passed()) std::this_thread::sleep_for(kPollChild);
  for (const Child& child : children_) {
    if (child.rank == rank && child.ended) return account(child);
  }
  return std::nullopt;
}

bool StartedRanks::wait(Seconds limit) {
  const Deadline deadline(limit);
  while (true) {
    const bool runs = any_runs();
    if (const auto bad = failure()) throw Error(ErrorCode::kPeersLost, *bad);
    if (!runs) return true;
    if (deadline.has_passed()) return false;
    std::this_thread::sleep_for(kPollChild);
  }
}

std::string StartedRanks::running() const {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [](const Child& child) { return !child.ended; });
  return found == children_.end() ? "no rank" : describe(*found);
}

void StartedRanks::stop() {
  for (Child& child : children_) {
    if (child.input.get() >= 0) {
      child.input = Descriptor();
    } else if (!child.ended && child.node.empty()) {
      ::kill(child.pid, SIGTERM);
    }
  }
}

void StartedRanks::kill(std::uint32_t rank) {
  for (const Child& child : children_) {
    if (child.rank == rank && !child.ended) ::kill(-child.pid, SIGKILL);
  }
}

void StartedRanks::kill_all() {
  for (const Child& child : children_) kill(child.rank);
}

StartedRanks::~StartedRanks() {
  const Deadline deadline(kGrace);
  if (any_runs()) stop();
  while (any_runs() && !deadline.has_passed()) std::this_thread::sleep_for(kPollChild);
  for (Child& child : children_) {
    child.input = Descriptor();
    // Its whole group: what a rank has started may hold on to its output, and go on for ever.
    ::kill(-child.pid, SIGKILL);
    if (!child.ended) ::waitpid(child.pid, &child.status, 0);
  }
  for (std::thread& reader : readers_) reader.join();
}

}  // namespace autodist::job
