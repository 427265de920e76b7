// `autodist version`: what to put in a bug report.

#include <fmt/format.h>
#include <sys/utsname.h>
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "autodist/app/blas_kernels.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/libtorch.h"
#include "autodist/app/this_process.h"
#include "autodist/planning/archive.h"

namespace autodist::app {
namespace {

// "Linux 6.1.0 x86_64": without the name of the machine, which is nobody's business.
std::string system_text() {
  utsname system{};
  ::uname(&system);
  return fmt::format("{} {} {}", system.sysname, system.release, system.machine);
}

}  // namespace

Action declare_version(CLI::App& verb) {
  return [](Console& console) {
    int major = 0;
    int minor = 0;
    int patch = 0;
    zmq_version(&major, &minor, &patch);
    const std::string kernels = blas_kernels(process_environment());
    const LibtorchOfBuild libtorch = libtorch_of_build();
    nlohmann::ordered_json facts{
        {"autodist", AUTODIST_VERSION},
        {"libtorch", libtorch.version},
        {"libtorch_from", libtorch.folder.empty() ? "the system" : libtorch.folder},
        {"libtorch_for", libtorch.built_for},
        {"library_all_reduces", AUTODIST_GLOO != 0},
        {"zeromq", fmt::format("{}.{}.{}", major, minor, patch)},
        {"fmt",
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
        {"compiler", __VERSION__},
        {"build_type", AUTODIST_BUILD_TYPE},
        {"sanitizer", AUTODIST_SANITIZE},
        {"system", system_text()},
        {"cores", std::thread::hardware_concurrency()},
        {"blas_kernels", process_environment()(kBlasKernels).value_or(kernels)},
        {"better_kernels", better_kernels(kernels, vector_units_of_this_cpu())},
        {"shipped_graphs", planning::archived_graphs().size()},
    };
    if (console.json) return console.answer(facts);
    for (const auto& [name, value] : facts.items()) {
      console.out << fmt::format("{:<15} {}\n", name,
                                 value.is_string() ? value.get<std::string>() : value.dump());
    }
    return 0;
  };
}

}  // namespace autodist::app
