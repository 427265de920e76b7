// `autodist run`: somebody's own program on every rank of a cluster.
//
// What follows the end of a start is decided by Supervision::goes_on(), as for supervise(). The
// loops around it are two: here any rank, or machine, ends a start by an Error, which this process
// says; there one child does by its exit status, and has said why.

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/cli/supervise.h"
#include "autodist/app/standby.h"
#include "autodist/app/stop_signal.h"
#include "autodist/app/supervision.h"
#include "autodist/app/this_process.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/base/mutex.h"
#include "autodist/cluster/members.h"
#include "autodist/comm/rendezvous.h"
#include "autodist/job/launch.h"
#include "autodist/job/machine.h"
#include "autodist/job/place.h"
#include "autodist/job/remote.h"

namespace autodist::app {
namespace {

struct RunArguments {
  std::string cluster = "local:2";
  std::vector<std::string> program;
  std::string logs;
  bool cpu_only = false;
  bool dry_run = false;
  Supervised supervised;
};

constexpr Seconds kCause{2};  // that an interpreter takes to end

// The program as every rank finds it: a path with a slash is a file, anything else lies on PATH.
job::CommandLine command_of(const std::vector<std::string>& words) {
  job::CommandLine command{words.front(), words};
  if (words.front().find('/') != std::string::npos) {
    command.program = std::filesystem::absolute(words.front()).lexically_normal().string();
    std::error_code unknown;
    if (std::filesystem::is_directory(command.program, unknown)) {
      fail(ErrorCode::kUsage, "run: {} is a folder, a program expected. Name one in it.",
           words.front());
    }
    if (::access(command.program.c_str(), X_OK) != 0) {
      fail(ErrorCode::kUsage, "run: {}: {}. Name a program, as a file that may be run (chmod +x).",
           words.front(), std::strerror(errno));
    }
  } else if (!is_on_path(words.front(), process_environment())) {
    fail(ErrorCode::kUsage, "{}: no such program in PATH. For one in this folder: ./{}",
         words.front(), words.front());
  }
  return command;
}

// Each rank's lines on standard output, and in a file of its own.
class RankLogs {
 public:
  RankLogs(Console& console, std::string folder) : console_(console), folder_(std::move(folder)) {}

  // REQUIRES: no rank runs.
  void open(std::size_t ranks) {
    if (folder_.empty()) return;
    const MutexLock lock(mutex_);
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    while (files_.size() < ranks) {
      const std::string name = fmt::format("{}/rank-{}.log", folder_, files_.size());
      files_.emplace_back(name, "--logs " + name, AppendedFile::Begin::kAnew);
    }
  }

  void print(std::uint32_t rank, const std::string& line) {
    const MutexLock lock(mutex_);
    console_.as_it_is() << "[rank " << rank << "] " << line << std::endl;
    if (files_.empty() || files_[rank].append(line + "\n") || !missing_.empty()) return;
    missing_ = files_[rank].failure();
    console_.err << "autodist: " << missing_ << "; lines are missing, the ranks go on" << std::endl;
  }

  // Of the first line that could not be written; empty: none.
  [[nodiscard]] std::string missing() {
    const MutexLock lock(mutex_);
    return missing_;
  }

 private:
  Console& console_;
  std::string folder_;
  Mutex mutex_;
  std::vector<AppendedFile> files_ AD_GUARDED_BY(mutex_);
  std::string missing_ AD_GUARDED_BY(mutex_);
};

void print_commands(Console& console, const std::vector<job::RankProcess>& processes,
                    const job::RemoteProgram& program, const job::JobPlace& chief) {
  std::ostream& out = console.as_it_is();
  for (const job::RankProcess& process : processes) {
    out << fmt::format("# rank {} on {}\n", process.rank,
                       process.node.empty() ? "this machine" : process.node);
    std::string line;
    if (process.node.empty()) {
      job::JobPlace place = chief;
      place.rank = process.rank;
      for (const std::string& each : job::place_variables(place, process.input_descriptor)) {
        line += each + " ";
      }
      out << line << job::quoted(program.command) << "\n";
      continue;
    }
    for (const std::string& word : process.command.arguments) line += job::quoted(word) + " ";
    out << line << "<<'SCRIPT'\n" << process.input << "SCRIPT\n";
  }
}

// Where the chief listens, and with which key: of one generation.
job::JobPlace meeting_place(job::JobPlace chief) {
  chief.key = job::make_job_key();
  // Free now; rank 0 takes it in a moment.
  chief.chief_port = comm::ChiefListener(chief.chief_address, 0).port();
  return chief;
}

// All ranks of one start. What those of a standby say is kept until its turn.
class JobStart {
 public:
  JobStart(const std::vector<job::RankProcess>& processes, RankLogs& logs, bool stands_by)
      : logs_(logs),
        stands_by_(stands_by),
        ranks_(
            processes, [this](std::uint32_t rank, const std::string& line) { take(rank, line); },
            job::StartedRanks::DiesWithUs::kGroups) {}

  ~JobStart() {
    if (stands_by_) ranks_.kill_all();  // it has nothing to end in order
  }
  JobStart(const JobStart&) = delete;
  JobStart& operator=(const JobStart&) = delete;

  void take_over() {
    const MutexLock lock(mutex_);
    stands_by_ = false;
    for (const auto& [rank, line] : std::exchange(kept_, {})) logs_.print(rank, line);
  }
  std::optional<std::string> ended() { return ranks_.ended(); }
  job::StartedRanks& ranks() { return ranks_; }

 private:
  void take(std::uint32_t rank, const std::string& line) {
    const MutexLock lock(mutex_);
    if (stands_by_) {
      kept_.emplace_back(rank, line);
    } else {
      logs_.print(rank, line);
    }
  }

  RankLogs& logs_;
  Mutex mutex_;
  bool stands_by_ AD_GUARDED_BY(mutex_);
  std::vector<std::pair<std::uint32_t, std::string>> kept_ AD_GUARDED_BY(mutex_);
  job::StartedRanks ranks_;  // the last: its threads use the others
};

// How the rank ended because of which a generation did.
class BadEnd : public Error {
 public:
  explicit BadEnd(const job::StartedRanks::Cause& cause)
      : Error(code_of(end_of(cause.status), cause.status), cause.account),
        end_(end_of(cause.status)) {}
  [[nodiscard]] job::GenerationEnd end() const { return end_; }

 private:
  static job::GenerationEnd end_of(int status) {
    return WIFSIGNALED(status) ? job::end_of_signal(WTERMSIG(status))
                               : job::end_of_exit(WEXITSTATUS(status));
  }
  static ErrorCode code_of(job::GenerationEnd end, int status) {
    const bool is_refusal = end == job::GenerationEnd::kRefused;
    return is_refusal ? static_cast<ErrorCode>(WEXITSTATUS(status)) : ErrorCode::kPeersLost;
  }

  job::GenerationEnd end_;
};

// A generation: returns its exit code, when all of its lines are in the logs. Throws BadEnd of the
// first rank that ended badly. `at_once` ends all ranks by force.
int run_all(job::StartedRanks& ranks, double grace, Supervision& supervision,
            Standby<JobStart>& standby, const std::atomic<bool>& interrupted,
            const std::atomic<bool>& at_once) {
  const SteadyClock clock;
  std::optional<Seconds> told_at;
  while (ranks.any_runs()) {
    if (at_once) {
      ranks.kill_all();
      return kBySignal + stop_signal_number();
    }
    const auto silence = supervision.look(ranks.runs(0) ? ranks.running() : "");
    if (silence) {
      ranks.kill(0);  // a halted one heeds nothing else
      throw Error(ErrorCode::kPeersLost, *silence);
    }
    if (ranks.failure() && !told_at) throw BadEnd(ranks.cause(kCause));
    if (interrupted && !told_at) {  // once: a program may take its time to end in order
      told_at = clock.now();
      ranks.stop();
    }
    standby.look(interrupted);
    if (told_at && grace > 0 && clock.now() - *told_at > Seconds{grace}) {
      fail(ErrorCode::kPeersLost,
           "{} still at work {} after {}: killed. A longer --grace waits longer.", ranks.running(),
           to_string(Seconds{grace}), stop_signal());
    }
    std::this_thread::sleep_for(kLook);
  }
  const auto bad = ranks.failure();
  if (bad && !told_at) throw BadEnd(ranks.cause(kCause));
  return bad ? kInterrupted : 0;
}

// The job's rank 0 as the others find it, but for its port and key.
job::JobPlace rank_0_of(const cluster::Cluster& cluster, bool cpu_only) {
  job::JobPlace chief;
  chief.size = static_cast<std::uint32_t>(cluster::ranks_of(cluster, cpu_only).size());
  const std::vector<cluster::Node> remote = job::remote_nodes(cluster);
  if (!remote.empty()) chief.chief_address = job::address_towards(remote.front().address);
  chief.own_address = chief.chief_address;
  return chief;
}

int run(const RunArguments& arguments, Console& console) {
  const cluster::Cluster all = cluster::read_cluster(arguments.cluster);
  const bool cpu_only = arguments.cpu_only;
  const Supervised& supervised = arguments.supervised;
  check_supervised(supervised, cluster::ranks_of(all, cpu_only).size());
  job::RemoteProgram program = job::this_program(process_variables());
  program.command = command_of(arguments.program);
  if (arguments.dry_run) {
    job::JobPlace chief = meeting_place(rank_0_of(all, cpu_only));
    chief.key = "(the job's key)";  // which people need not see
    print_commands(console, job::rank_processes(all, cpu_only, program, chief), program, chief);
    return 0;
  }

  const std::atomic<bool>& interrupted = watch_stop_signals();
  const std::atomic<bool>& at_once = watch_second_stop_signal();
  Supervision supervision(supervised.restarts,
                          [&] { return job::Membership(all, cpu_only, supervised.min_ranks); });
  if (!supervised.faults.empty()) supervision.add_faults(parse_fault_plan(supervised.faults));
  RankLogs logs(console, arguments.logs);
  const auto start = [&](std::uint32_t standby) {
    const std::vector<std::string> lost = supervision.lost();
    const cluster::Cluster cluster = cluster::without(all, lost).cluster;
    const std::vector<cluster::Node> remote = job::remote_nodes(cluster);
    // Which takes its time, and the job's machines have been asked.
    if (!remote.empty() && standby == 0) job::check_nodes(cluster, remote, program);
    job::JobPlace chief = rank_0_of(cluster, cpu_only);
    chief.lost = lost;
    chief.standby = standby;
    const bool remembers = supervised.restarts > 0 || !supervised.faults.empty();
    if (remembers) chief.memory = supervision.memory().descriptor();
    if (standby == 0) logs.open(chief.size);
    return std::make_unique<JobStart>(
        job::rank_processes(cluster, cpu_only, program, meeting_place(chief)), logs, standby > 0);
  };
  Standby<JobStart> standby(supervision, supervised.standby, start);
  int code = 0;
  while (true) {
    try {
      std::unique_ptr<JobStart> generation = standby.take();
      if (generation) {
        generation->take_over();
      } else {
        generation = start(0);
      }
      code = run_all(generation->ranks(), supervised.grace, supervision, standby, interrupted,
                     at_once);
      generation.reset();
      supervision.save_snapshot();  // of a job that is through there is none
      break;
    } catch (const Error& error) {
      if (interrupted || supervised.restarts == 0) {
        supervision.save_snapshot();
        throw;
      }
      say_line(error.what());
      const auto* const unusable = dynamic_cast<const job::UnusableMachines*>(&error);
      if (unusable != nullptr) supervision.memory().note_unusable(unusable->addresses());
      const auto* const bad = dynamic_cast<const BadEnd*>(&error);
      const auto end =
          bad != nullptr ? bad->end() : job::end_of_exit(static_cast<int>(error.code()));
      if (!supervision.goes_on(end, "", interrupted, [&] { return standby.is_there(); })) {
        supervision.save_snapshot();
        return static_cast<int>(error.code());
      }
    }
  }
  if (const std::string missing = logs.missing(); !missing.empty() && code == 0) {
    fail(ErrorCode::kCheckpoint, "{}", missing);
  }
  return code;
}

}  // namespace

Action declare_run(CLI::App& verb) {
  auto arguments = std::make_shared<RunArguments>();
  declare_cluster(verb, arguments->cluster);
  verb.add_option("--logs", arguments->logs, "a folder for what each rank writes, as rank-N.log");
  declare_devices(verb, arguments->cpu_only);
  declare_supervised(verb, arguments->supervised);
  verb.add_flag("--dry-run", arguments->dry_run, "print the commands and start nothing");
  verb.add_option("program", arguments->program, "the program and its arguments, after --")
      ->required();
  return [arguments, &verb](Console& console) {
    if (arguments->supervised.restarts == 0) {
      expect_with(verb, "--min-ranks", "--restarts");
    }
    return run(*arguments, console);
  };
}

}  // namespace autodist::app
