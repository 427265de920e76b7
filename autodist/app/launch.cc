#include "autodist/app/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "autodist/base/error.h"

extern char** environ;

namespace autodist::app {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr std::chrono::seconds kGrace{2};

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      fail(ErrorCode::kEnvironment, "a pipe to a rank cannot be made: {}", std::strerror(errno));
    }
    read_end = ends[0];
    write_end = ends[1];
  }
};

// Our own variables are replaced, everything else is inherited.
std::vector<std::string> environment_for(const JobPlace& job, int key_descriptor) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool ours =
        variable.rfind("AUTODIST_RANK=", 0) == 0 || variable.rfind("AUTODIST_SIZE=", 0) == 0 ||
        variable.rfind("AUTODIST_CHIEF=", 0) == 0 || variable.rfind("AUTODIST_ADDRESS=", 0) == 0 ||
        variable.rfind("AUTODIST_KEY_", 0) == 0;
    if (!ours) variables.push_back(variable);
  }
  variables.push_back(fmt::format("AUTODIST_RANK={}", job.rank));
  variables.push_back(fmt::format("AUTODIST_SIZE={}", job.size));
  variables.push_back(fmt::format("AUTODIST_CHIEF={}:{}", job.chief_address, job.chief_port));
  variables.push_back(fmt::format("AUTODIST_ADDRESS={}", job.own_address));
  variables.push_back(fmt::format("AUTODIST_KEY_FD={}", key_descriptor));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Hands complete lines on until the writers have closed their ends.
void read_lines(int descriptor, std::uint32_t rank, const LocalRanks::Output& output) {
  std::string pending;
  char buffer[4096];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    pending.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos;) {
      output(rank, pending.substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  if (!pending.empty()) output(rank, pending);
  ::close(descriptor);
}

std::string how_it_ended(std::uint32_t rank, pid_t pid, int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("rank {} (pid {}) was killed by signal {}", rank, pid, WTERMSIG(status));
  }
  return fmt::format("rank {} (pid {}) ended with exit code {}", rank, pid, WEXITSTATUS(status));
}

}  // namespace

CommandLine own_command_line() {
  CommandLine command;
  command.program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string argument; std::getline(in, argument, '\0');) {
    command.arguments.push_back(argument);
  }
  return command;
}

LocalRanks::LocalRanks(const CommandLine& command, std::uint32_t first, std::uint32_t count,
                       const JobPlace& job, Output output)
    : output_(std::move(output)) {
  for (std::uint32_t i = 0; i < count; ++i) {
    JobPlace place = job;
    place.rank = first + i;
    start(command, place);
  }
}

void LocalRanks::start(const CommandLine& command, const JobPlace& job) {
  const Pipe key;
  const Pipe lines;
  // Everything that allocates happens before the fork: the child of a process with threads may only
  // call what is safe in a signal handler.
  std::vector<std::string> variables = environment_for(job, key.read_end);
  std::vector<std::string> arguments = command.arguments;
  const std::vector<char*> environment = pointers(variables);
  const std::vector<char*> argv = pointers(arguments);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) fail(ErrorCode::kEnvironment, "rank {}: fork: {}", job.rank, std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // the parent died before prctl took hold
    const int nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(lines.write_end, STDOUT_FILENO);
    ::dup2(lines.write_end, STDERR_FILENO);
    ::fcntl(key.read_end, F_SETFD, 0);  // survives exec
    ::execve(command.program.c_str(), argv.data(), environment.data());
    ::_exit(127);
  }
  // While we hold the other end, too: a rank that ends at once would leave us a broken pipe.
  const ssize_t written = ::write(key.write_end, job.key.data(), job.key.size());
  ::close(key.read_end);
  ::close(lines.write_end);
  ::close(key.write_end);
  children_.push_back({job.rank, pid, false, 0});
  readers_.emplace_back(read_lines, lines.read_end, job.rank, output_);
  if (written != static_cast<ssize_t>(job.key.size())) {
    fail(ErrorCode::kEnvironment, "rank {}: the job's key could not be handed over", job.rank);
  }
}

void LocalRanks::reap() {
  for (Child& child : children_) {
    if (child.ended) continue;
    if (::waitpid(child.pid, &child.status, WNOHANG) == child.pid) child.ended = true;
  }
}

std::optional<std::string> LocalRanks::failure() {
  reap();
  for (const Child& child : children_) {
    if (child.ended && child.status != 0) return how_it_ended(child.rank, child.pid, child.status);
  }
  return std::nullopt;
}

void LocalRanks::wait(Seconds limit) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit.value);
  while (true) {
    if (const auto bad = failure()) throw Error(ErrorCode::kPeersLost, *bad);
    const Child* running = nullptr;
    for (const Child& child : children_) {
      if (!child.ended) running = &child;
    }
    if (running == nullptr) return;
    if (std::chrono::steady_clock::now() > end) {
      fail(ErrorCode::kTimeout, "rank {} (pid {}) still runs after {}", running->rank, running->pid,
           to_string(limit));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

LocalRanks::~LocalRanks() {
  const auto running = [&] {
    reap();
    bool any = false;
    for (const Child& child : children_) any = any || !child.ended;
    return any;
  };
  const auto signal_all = [&](int signal) {
    for (const Child& child : children_) {
      if (!child.ended) ::kill(child.pid, signal);
    }
  };
  if (running()) signal_all(SIGTERM);
  const auto end = std::chrono::steady_clock::now() + kGrace;
  while (running() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kPoll);
  signal_all(SIGKILL);
  for (Child& child : children_) {
    if (!child.ended) ::waitpid(child.pid, &child.status, 0);
  }
  for (std::thread& reader : readers_) reader.join();
}

}  // namespace autodist::app
