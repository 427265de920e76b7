// `autodist bench`: measurements, as ratios within one run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "autodist/app/subprocess.h"
#include "autodist/app/torch/bench.h"
#include "autodist/app/torch/torch_verbs.h"
#include "autodist/base/error.h"

namespace autodist::app {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double run_probe(const BenchArguments& arguments, const std::string& probe,
                 const std::string& model) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const Finished finished =
      run_to_end({self, "bench", arguments.name, "--probe", probe, "--probe-model", model});
  if (finished.exit_code != 0) {
    fail(ErrorCode::kUsage, "bench {}: the probe '{}' of {} failed", arguments.name, probe, model);
  }
  return std::stod(finished.output);
}

Action declare_bench(CLI::App& verb) {
  auto arguments = std::make_shared<BenchArguments>();
  verb.add_option("name", arguments->name, "capture or staleness")
      ->required()
      ->check(CLI::IsMember({"capture", "staleness"}));
  verb.add_flag("--quick", arguments->quick, "fewer repetitions of the same figures");
  verb.add_option("--probe", arguments->probe)->group("");
  verb.add_option("--probe-model", arguments->probe_model)->group("");
  return [arguments](Console& console) {
    return arguments->name == "capture" ? bench_capture(*arguments, console)
                                        : bench_staleness(*arguments, console);
  };
}

}  // namespace autodist::app
