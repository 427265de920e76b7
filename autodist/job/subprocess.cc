#include "autodist/job/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "autodist/base/error.h"

namespace autodist::job {

Finished run_to_end(const std::vector<std::string>& arguments, const std::string& input,
                    bool with_errors) {
  int ends[2];
  int in[2];
  if (::pipe2(ends, O_CLOEXEC) != 0 || ::pipe2(in, O_CLOEXEC) != 0) {
    fail(ErrorCode::kEnvironment, "{}: pipe: {}. Allow more open files (ulimit -n).",
         arguments.front(), std::strerror(errno));
  }
  // Before anybody reads it, so that nobody can break the pipe.
  const ssize_t written = ::write(in[1], input.data(), input.size());
  ::close(in[1]);
  if (written != static_cast<ssize_t>(input.size())) {
    fail(ErrorCode::kEnvironment,
         "{}: {} bytes of input did not fit into a pipe; end other programs of this user, which "
         "hold many.",
         arguments.front(), input.size());
  }
  std::vector<std::string> copies = arguments;
  const std::vector<char*> argv = argv_of(copies);
  const pid_t pid = ::fork();
  if (pid < 0)
    fail(ErrorCode::kEnvironment, "{}: fork: {}. Allow more processes (ulimit -u).",
         arguments.front(), std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    if (with_errors) ::dup2(ends[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(ends[1]);
  Finished finished;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0) finished.output.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  finished.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (finished.exit_code == 127) {
    fail(ErrorCode::kEnvironment, "{} cannot be started. Install it, or put it on PATH.",
         arguments.front());
  }
  return finished;
}

std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

}  // namespace autodist::job
