// `autodist`: the light half of the command line. Verbs that compute are handed, unparsed, to
// `autodist-torch` in the same folder.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/wait_policy.h"
#include "autodist/base/error.h"

namespace {

int hand_over(char** argv) {
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = (beside / "autodist-torch").string();
  // OpenMP reads it when it is loaded, so this is the time to say it for a chief, too.
  if (!autodist::app::says_how_to_wait(autodist::app::process_environment())) {
    ::setenv(autodist::app::kWaitPolicy, autodist::app::kPassive, 1);
  }
  autodist::app::choose_blas_kernels();
  ::execv(program.c_str(), argv);
  std::cerr << "autodist: " << argv[1] << " needs " << program
            << ", which cannot be started: " << std::strerror(errno)
            << ". Build AutoDist with libtorch (AUTODIST_TORCH=ON).\n";
  return static_cast<int>(autodist::ErrorCode::kEnvironment);
}

// Parts of a verb that need no libtorch, while others do.
bool is_here(const std::string& verb, const std::string& part) {
  using namespace autodist::app;
  if (verb != "bench" && verb != "dataset") return false;
  const auto& here = verb == "bench" ? light_benchmarks() : light_data_set_parts();
  return std::find(here.begin(), here.end(), part) != here.end();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace autodist::app;
  if (argc >= 2) {
    const Verb* verb = find_verb(argv[1]);
    const bool is_light = verb != nullptr && argc >= 3 && is_here(verb->name, argv[2]);
    if (verb != nullptr && verb->program == Program::kTorch && !is_light) return hand_over(argv);
  }
  return run_program(argc, argv, Program::kLight,
                     {{"bench", declare_bench_light},
                      {"compare", declare_compare},
                      {"completion", declare_completion},
                      {"dataset", declare_data_set},
                      {"doctor", declare_doctor},
                      {"explain", declare_explain},
                      {"inspect", declare_inspect},
                      {"place", declare_place},
                      {"plan", declare_plan},
                      {"report", declare_report},
                      {"run", declare_run},
                      {"simulate", declare_simulate},
                      {"version", declare_version}});
}
