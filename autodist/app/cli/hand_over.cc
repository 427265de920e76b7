#include "autodist/app/cli/hand_over.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/this_process.h"
#include "autodist/base/error.h"
#include "autodist/job/subprocess.h"
#include "autodist/job/wait_policy.h"

namespace autodist::app {

int hand_over(std::vector<std::string> arguments) {
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = (beside / "autodist-torch").string();
  // OpenMP reads it when it is loaded, so this is the time to say it for a chief, too.
  if (!job::says_how_to_wait(process_environment())) ::setenv(job::kWaitPolicy, job::kPassive, 1);
  choose_blas_kernels();
  ::execv(program.c_str(), job::argv_of(arguments).data());
  say_line(fmt::format(
      "{} needs {}, which cannot be started: {}. Build AutoDist with libtorch (AUTODIST_TORCH=ON).",
      arguments.at(1), program, std::strerror(errno)));
  return static_cast<int>(ErrorCode::kEnvironment);
}

}  // namespace autodist::app
