#include "autodist/app/cli/supervise.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/standby.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/supervision.h"
#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/job/launcher.h"
#include "autodist/job/place.h"
#include "autodist/job/subprocess.h"

namespace autodist::app {
namespace {

// The chief, which starts the other ranks and takes them along when it dies.
class Chief {
 public:
  explicit Chief(pid_t pid) : pid_(pid) {}
  ~Chief() {
    if (status_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Chief(const Chief&) = delete;
  Chief& operator=(const Chief&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  // As waitpid() gives it; nothing: it runs.
  std::optional<int> status() {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_;
  }
  std::optional<std::string> ended() {
    if (!status()) return std::nullopt;
    return WIFSIGNALED(*status_) ? fmt::format("its rank 0 (pid {}) was killed by signal {}", pid_,
                                               WTERMSIG(*status_))
                                 : fmt::format("its rank 0 (pid {}) ended with exit code {}", pid_,
                                               WEXITSTATUS(*status_));
  }

 private:
  pid_t pid_;
  std::optional<int> status_;
};

// No signal gets lost on the way: those that come while the child is still this program end it.
std::unique_ptr<Chief> start_chief(const ChiefProgram& program, const std::string& checkpoint,
                                   Supervision& supervision, std::uint32_t standby) {
  const std::vector<std::string> lost = supervision.lost();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::signal(number, SIG_DFL);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) ::signal(SIGHUP, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (::getppid() != parent) ::_exit(1);  // it died before prctl took hold
    ::setenv(job::JobMemory::kVariable, std::to_string(supervision.memory().descriptor()).c_str(),
             1);
    if (!lost.empty()) ::setenv(job::kLostMachines, job::addresses_text(lost).c_str(), 1);
    ::unsetenv(job::kStandby);
    if (standby > 0) ::setenv(job::kStandby, std::to_string(standby).c_str(), 1);
    ::_exit(program.become(checkpoint));
  }
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    fail(ErrorCode::kEnvironment, "fork: {}. End other processes, or raise ulimit -u.",
         std::strerror(error));
  }
  return std::make_unique<Chief>(pid);
}

// Waits for the chief's end, passes signals on, kills a chief that is halted, and returns its
// status.
int status_of(Chief& chief, double grace, Supervision& supervision, Standby<Chief>& standby,
              const std::atomic<bool>& interrupted, const std::atomic<bool>& at_once) {
  const SteadyClock clock;
  std::optional<Seconds> told_at;
  const std::string name = fmt::format("rank 0 (pid {})", chief.pid());
  bool killed = false;
  const auto kill_it = [&](const std::string& why) {
    if (std::exchange(killed, true)) return;
    say_line(why);
    ::kill(chief.pid(), SIGKILL);
  };
  while (true) {
    if (const auto status = chief.status()) {
      const bool by_us = killed && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
      if (WIFSIGNALED(*status) && !by_us && !interrupted) {
        say_line(fmt::format("{} was killed by signal {}", name, WTERMSIG(*status)));
      }
      return *status;
    }
    if (at_once) ::kill(chief.pid(), SIGKILL);  // its ranks go with it
    if (const auto silence = supervision.look(name)) kill_it(*silence + ": killed");
    if (interrupted && !told_at) {
      told_at = clock.now();
      // A terminal tells its whole foreground group.
      if (!stop_signal_is_the_terminals()) ::kill(chief.pid(), stop_signal_number());
    }
    standby.look(interrupted);
    if (told_at && grace > 0 && clock.now() - *told_at > Seconds{grace}) {
      kill_it(fmt::format("still at work {} after {}: killed (a longer --grace waits longer)",
                          to_string(Seconds{grace}), stop_signal()));
    }
    std::this_thread::sleep_for(kLook);
  }
}

struct SuperviseArguments {
  std::string cluster;
  std::vector<std::string> program;
  bool cpu_only = false;
  Supervised supervised{kRestarts};
};

// A program that says itself where its checkpoints are, and goes on from them.
int supervise_program(const SuperviseArguments& arguments) {
  std::vector<std::string> words = arguments.program;  // argv is not constant
  if (job::is_launched(process_environment())) {
    fail(
        ErrorCode::kUsage,
        "supervise: another program has started this process as a rank of its job. Give --restarts "
        "to that one (autodist run has it).");
  }
  const std::string named = job::specified(arguments.cluster, process_environment());
  const cluster::Cluster cluster = cluster::read_cluster(named.empty() ? "local:1" : named);
  const Supervised& supervised = arguments.supervised;
  if (supervised.min_ranks && named.empty()) {
    fail(ErrorCode::kUsage,
         "--min-ranks {}: the program's machines are not known. Add --cluster, with what it names.",
         *supervised.min_ranks);
  }
  check_supervised(supervised, cluster::ranks_of(cluster, arguments.cpu_only).size());
  const auto become = [&words](const std::string&) {
    ::execvp(words.front().c_str(), job::argv_of(words).data());
    say_line(
        fmt::format("supervise: {} cannot be started: {}. Name a program, as a file that may "
                    "be run (chmod +x) or one in PATH.",
                    words.front(), std::strerror(errno)));
    return static_cast<int>(ErrorCode::kUsage);
  };
  return supervise({become, "", [&] { return cluster; }, arguments.cpu_only, {}}, supervised);
}

}  // namespace

int supervise(const ChiefProgram& program, const Supervised& request) {
  const std::atomic<bool>& interrupted = watch_stop_signals(/*user_signal=*/true);
  const std::atomic<bool>& at_once = watch_second_stop_signal();
  Supervision supervision(request.restarts, [&] {
    return job::Membership(program.cluster(), program.cpu_only, request.min_ranks);
  });
  if (!request.faults.empty()) supervision.add_faults(parse_fault_plan(request.faults));
  const std::string& folder = program.checkpoints;
  const auto checkpoint = [&] { return supervision.checkpoint_in(folder).value_or(""); };
  Standby<Chief> standby(supervision, request.standby, [&](std::uint32_t number) {
    // Which checkpoint it goes on from is told when its turn comes; that there are some is so now.
    return start_chief(program, checkpoint().empty() ? "" : folder, supervision, number);
  });
  std::string from;  // where the program begins: as it was started
  while (true) {
    std::unique_ptr<Chief> chief = standby.take();
    if (!chief) chief = start_chief(program, from, supervision, 0);
    const int status = status_of(*chief, request.grace, supervision, standby, interrupted, at_once);
    const bool by_signal = WIFSIGNALED(status);
    const int code = by_signal ? kBySignal + WTERMSIG(status) : WEXITSTATUS(status);
    if (interrupted) {  // it may have been starting again
      supervision.save_snapshot();
      return at_once && by_signal ? kBySignal + stop_signal_number() : code;
    }
    const auto end = by_signal ? job::end_of_signal(WTERMSIG(status)) : job::end_of_exit(code);
    if (!supervision.goes_on(end, folder, interrupted, [&] { return standby.is_there(); })) {
      supervision.save_snapshot();  // of a job that is through there is none
      if (end != job::GenerationEnd::kInOrder) {
        // Where the newest one is damaged, its folder has older ones.
        const bool is_damaged = code == static_cast<int>(ErrorCode::kCheckpoint);
        const std::string newest = checkpoint();
        if (!newest.empty() && !interrupted) {
          const std::string& sound = is_damaged ? folder : newest;
          say_line(fmt::format("to go on from {}: {}", sound, program.going_on(sound)));
        }
      }
      return code;
    }
    from = checkpoint();
  }
}

void declare_supervised(CLI::App& verb, Supervised& supervised) {
  verb.add_option("--faults", supervised.faults)->group("");
  verb.add_option("--restarts", supervised.restarts,
                  fmt::format("after a lost rank, start all ranks again; give up after so many "
                              "starts in a row that got no further (default {})",
                              supervised.restarts))
      ->check(in_range(0, 1'000'000));
  verb.add_flag(
          "--standby", supervised.standby,
          "keep all ranks started once more, captured and waiting: a rank that is killed costs "
          "no new start then, and the job takes as much memory again")
      ->disable_flag_override();
  verb.add_option("--min-ranks", supervised.min_ranks,
                  "after the loss of machines that cannot be used any more, go on with so many "
                  "ranks or more (default: all)")
      ->check(in_range(1, 1'000'000));
  verb.add_option(
          "--grace", supervised.grace,
          "seconds that a job has to save and end after a signal to stop; then it is killed "
          "(default: as long as it takes)")
      ->check(in_range(0.0, 1e6));
}

void check_supervised(const Supervised& supervised, std::size_t ranks) {
  if (supervised.standby && supervised.restarts == 0) {
    fail(ErrorCode::kUsage,
         "--standby with --restarts 0: nobody would start the job again. Give --restarts 1 or "
         "more, or leave --standby out.");
  }
  if (!supervised.min_ranks || *supervised.min_ranks <= ranks) return;
  fail(ErrorCode::kUsage, "--min-ranks {}: the job has {} ranks. Give {} or less.",
       *supervised.min_ranks, ranks, ranks);
}

Action declare_supervise(CLI::App& verb) {
  auto arguments = std::make_shared<SuperviseArguments>();
  verb.add_option(
      "--cluster", arguments->cluster,
      "the cluster that the program names: whose machines are replaced or left out when "
      "they are gone (default: none is)");
  declare_devices(verb, arguments->cpu_only);
  declare_supervised(verb, arguments->supervised);
  verb.add_option("program", arguments->program, "the program and its arguments, after --")
      ->required();
  return [arguments](Console&) { return supervise_program(*arguments); };
}

}  // namespace autodist::app
