#include "autodist/app/cli/supervise.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "autodist/app/cli/hand_over.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/command_words.h"
#include "autodist/app/standby.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/supervision.h"
#include "autodist/app/this_process.h"
#include "autodist/base/error.h"
#include "autodist/base/numbers.h"
#include "autodist/cluster/cluster.h"
#include "autodist/job/launcher.h"
#include "autodist/job/place.h"

namespace autodist::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20};
constexpr char kStandbyFlag[] = "--standby";

// Nothing where it is no number: the verb itself refuses that.
template <typename Number>
std::optional<Number> number_of(const std::vector<std::string>& words, const std::string& option,
                                Number otherwise) {
  const auto text = value_of(words, option);
  if (!text) return otherwise;
  const auto value = as_number<Number>(*text);
  return value && *value < 0 ? std::nullopt : value;
}

std::optional<Supervised> request_of(const std::vector<std::string>& words) {
  const auto restarts = number_of<std::uint32_t>(words, "--restarts", kRestartsOfTrain);
  const auto grace = number_of<double>(words, "--grace", 0);
  const auto min_ranks = number_of<std::uint32_t>(words, "--min-ranks", 0);
  if (!restarts || !grace || !min_ranks) return std::nullopt;
  return Supervised{*restarts, *grace, *min_ranks > 0 ? min_ranks : std::nullopt,
                    value_of(words, "--faults").value_or(""), has_word(words, kStandbyFlag)};
}

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
std::unique_ptr<Chief> start_chief(const std::vector<std::string>& words, Supervision& supervision,
                                   std::uint32_t standby) {
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
    ::_exit(hand_over(words));
  }
  const int error = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    fail(ErrorCode::kEnvironment, "train: fork: {}. End other processes, or raise ulimit -u.",
         std::strerror(error));
  }
  return std::make_unique<Chief>(pid);
}

// Waits for the chief's end, passes signals on, kills a chief that is halted, and returns its
// status.
int status_of(Chief& chief, double grace, Supervision& supervision, Standby<Chief>& standby,
              const std::atomic<bool>& interrupted) {
  std::optional<Clock::time_point> told_at;
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
    if (const auto silence = supervision.look(name)) kill_it(*silence + ": killed");
    if (interrupted && !told_at) {
      told_at = Clock::now();
      // A terminal tells its whole foreground group.
      if (!stop_signal_is_the_terminals()) ::kill(chief.pid(), stop_signal_number());
    }
    standby.look(interrupted);
    const bool is_late =
        told_at && grace > 0 && Clock::now() - *told_at > std::chrono::duration<double>(grace);
    if (is_late) {
      kill_it(fmt::format("still at work {} after {}: killed (a longer --grace waits longer)",
                          to_string(Seconds{grace}), stop_signal()));
    }
    std::this_thread::sleep_for(kLook);
  }
}

// A rank of somebody else's job; also where that one's variables are wrong, which the verb says.
bool is_launched() {
  const Environment environment = process_environment();
  if (environment("AUTODIST_RANK")) return true;
  try {
    return job::launched_by(environment).has_value();
  } catch (const Error&) {
    return true;
  }
}

// Whoever has started the ranks starts them again, or does not. Rank 0 says it.
void warn_unheeded(const std::vector<std::string>& words) {
  const Environment environment = process_environment();
  if (environment("AUTODIST_STARTED_BY")) return;  // by a chief that is its job's rank 0
  std::optional<job::Launched> launched;
  try {
    launched = job::launched_by(environment);
  } catch (const Error&) {
    return;  // the verb says what is wrong with the variables
  }
  const std::string own = environment("AUTODIST_RANK").value_or("0");
  if (launched ? launched->rank != 0 : own != "0") return;
  for (const std::string option : {"--restarts", kStandbyFlag, "--min-ranks", "--grace"}) {
    const bool is_given = option == kStandbyFlag ? has_word(words, option)
                                                 : value_of(words, option).value_or("0") != "0";
    if (!is_given) continue;
    say_line(fmt::format(
        "{}: without effect, as another program has started these ranks. Give it to that one "
        "(autodist run has it), or start with autodist train alone.",
        option));
  }
}

int supervise(const std::vector<std::string>& words, const Supervised& request) {
  const std::string folder = value_of(words, "--save").value_or("");
  const std::atomic<bool>& interrupted = watch_stop_signals(/*user_signal=*/true);
  Supervision supervision(request.restarts, [&] {
    const std::string named =
        job::specified(value_of(words, "--cluster").value_or(""), process_environment());
    return job::Membership(cluster::read_cluster(named.empty() ? "local:2" : named),
                           value_of(words, "--devices") == "cpu", request.min_ranks);
  });
  if (!request.faults.empty()) supervision.add_faults(parse_fault_plan(request.faults));
  std::vector<std::string> command = words;
  Standby<Chief> standby(supervision, request.standby, [&](std::uint32_t number) {
    // Which checkpoint it goes on from is told when its turn comes; that there are some is so now.
    const bool has_saved = supervision.checkpoint_in(folder).has_value();
    return start_chief(has_saved ? resuming(words, folder) : words, supervision, number);
  });
  while (true) {
    std::unique_ptr<Chief> chief = standby.take();
    if (!chief) chief = start_chief(command, supervision, 0);
    const int status = status_of(*chief, request.grace, supervision, standby, interrupted);
    const bool by_signal = WIFSIGNALED(status);
    const int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (interrupted) {  // it may have been starting again
      supervision.save_snapshot(folder);
      return code;
    }
    const auto end = by_signal ? job::end_of_signal(WTERMSIG(status)) : job::end_of_exit(code);
    if (!supervision.goes_on(end, folder, interrupted, [&] { return standby.is_there(); })) {
      if (end != job::GenerationEnd::kInOrder) supervision.save_snapshot(folder);
      const auto checkpoint = supervision.checkpoint_in(folder);
      if (checkpoint && end != job::GenerationEnd::kInOrder && !interrupted) {
        say_line(fmt::format("to go on from {}: {}", *checkpoint,
                             as_typed(resuming(without_option(words, "--faults"), *checkpoint))));
      }
      return code;
    }
    if (const auto checkpoint = supervision.checkpoint_in(folder)) {
      command = resuming(words, *checkpoint);
    }
  }
}

}  // namespace

void declare_supervised(CLI::App& verb, Supervised& supervised) {
  verb.add_option("--faults", supervised.faults)->group("");
  verb.add_option("--restarts", supervised.restarts,
                  fmt::format("after a lost rank, start all ranks again; give up after so many "
                              "starts in a row that got no further (default {})",
                              supervised.restarts))
      ->check(in_range(0, 1'000'000));
  verb.add_flag(
          kStandbyFlag, supervised.standby,
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

int train_supervised(const std::vector<std::string>& words) {
  const auto request = request_of(words);
  const bool launched = is_launched();
  if (!request || launched ||
      (request->restarts == 0 && request->grace == 0 && request->faults.empty())) {
    if (launched && request && !request->faults.empty()) {
      say_line(
          "chaos: this process is a rank that somebody else has started. Give chaos the command "
          "that starts the job.");
      return static_cast<int>(ErrorCode::kUsage);
    }
    if (launched) warn_unheeded(words);
    return hand_over(words);
  }
  try {
    return supervise(words, *request);
  } catch (const Error& error) {
    say_line(error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace autodist::app
