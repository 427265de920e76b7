// `autodist`: the light half of the command line. Verbs that compute are handed, unparsed, to
// `autodist-torch` in the same folder.

#include <algorithm>

#include "autodist/app/cli/hand_over.h"
#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/train_supervised.h"
#include "autodist/studies/bench.h"

namespace {

// Parts of a verb that need no libtorch, while others do.
bool is_here(const std::string& verb, const std::string& part) {
  using namespace autodist::app;
  if (verb != "bench" && verb != "dataset") return false;
  const auto& here =
      verb == "bench" ? autodist::studies::light_benchmarks() : light_data_set_parts();
  return std::find(here.begin(), here.end(), part) != here.end();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace autodist::app;
  if (argc >= 2) {
    const Verb* verb = find_verb(argv[1]);
    const bool is_light = verb != nullptr && argc >= 3 && is_here(verb->name, argv[2]);
    if (verb != nullptr && verb->binary == Binary::kTorch && !is_light) {
      const std::vector<std::string> words(argv, argv + argc);
      return std::string(verb->name) == "train" ? train_supervised(words) : hand_over(words);
    }
  }
  return run_program(argc, argv, Binary::kLight,
                     {{"bench", autodist::studies::declare_bench_light},
                      {"chaos", declare_chaos},
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
                      {"supervise", declare_supervise},
                      {"version", declare_version}});
}
