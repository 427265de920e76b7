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

Pipe::Pipe(const std::string& whom) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    fail(ErrorCode::kEnvironment, "{}: pipe: {}. Allow more open files (ulimit -n).", whom,
         std::strerror(errno));
  }
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
}

void Pipe::fill(const std::string& whom, const std::string& bytes) const {
  ::fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
  if (::write(write_end.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    fail(ErrorCode::kEnvironment,
         "{}: {} bytes of input did not fit into a pipe; give less, or end other programs of "
         "this user, which hold many.",
         whom, bytes.size());
  }
}

pid_t forked(const std::string& whom) {
  const pid_t pid = ::fork();
  if (pid < 0) {
    fail(ErrorCode::kEnvironment, "{}: fork: {}. Allow more processes (ulimit -u).", whom,
         std::strerror(errno));
  }
  return pid;
}

Finished run_to_end(const std::vector<std::string>& arguments, const std::string& input,
                    bool with_errors) {
  const std::string& whom = arguments.front();
  Pipe in(whom);
  Pipe out(whom);
  in.fill(whom, input);
  std::vector<std::string> copies = arguments;
  const std::vector<char*> argv = argv_of(copies);
  const pid_t pid = forked(whom);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(in.read_end.get(), STDIN_FILENO);
    ::dup2(out.write_end.get(), STDOUT_FILENO);
    if (with_errors) ::dup2(out.write_end.get(), STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  in.read_end = Descriptor();
  in.write_end = Descriptor();
  out.write_end = Descriptor();
  Finished finished;
  char buffer[4096];
  for (ssize_t got; (got = ::read(out.read_end.get(), buffer, sizeof buffer)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0) finished.output.append(buffer, static_cast<std::size_t>(got));
  }
  out.read_end = Descriptor();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  finished.exit_code = WIFSIGNALED(status) ? kBySignal + WTERMSIG(status) : WEXITSTATUS(status);
  if (finished.exit_code == 127) {
    fail(ErrorCode::kEnvironment, "{} cannot be started. Install it, or put it on PATH.", whom);
  }
  return finished;
}

std::string last_words(const Finished& finished) {
  std::string said = finished.output;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return said.empty() ? "no answer" : said.substr(said.rfind('\n') + 1);
}

std::vector<char*> argv_of(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return argv;
}

}  // namespace autodist::job
