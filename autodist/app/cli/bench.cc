// `autodist bench sim` and `bench p3`: what needs no libtorch. The other benchmarks are
// autodist-torch's.

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/studies/p3.h"
#include "autodist/app/studies/speed.h"
#include "autodist/base/file.h"

namespace autodist::app {
namespace {

struct BenchArguments {
  std::string name;
  std::string output;
  std::string data;
  bool quick = false;
};

// Measured tables that may not be copied into the project.
std::string data_folder(const BenchArguments& arguments) {
  if (!arguments.data.empty()) return arguments.data;
  const char* set = std::getenv("AUTODIST_DATA");
  return set != nullptr ? set : "../shared/data";
}

int bench(const BenchArguments& arguments, Console& console) {
  if (arguments.name == "p3") {
    const std::string page = p3_page();
    if (!arguments.output.empty()) write_file_atomically(arguments.output, page);
    if (!console.json) console.out << page;
    return 0;
  }
  const SpeedFigures figures = measure_simulator(data_folder(arguments), arguments.quick);
  if (!arguments.output.empty()) write_file_atomically(arguments.output, speed_page(figures));
  if (console.json) {
    console.out << nlohmann::ordered_json{{"figures", figures.figures}, {"raw", figures.raw}}.dump()
                << "\n";
  } else {
    console.out << speed_table(figures);
  }
  return 0;
}

}  // namespace

const std::vector<std::string>& light_benchmarks() {
  static const std::vector<std::string> names{"sim", "p3"};
  return names;
}

Action declare_bench_light(CLI::App& verb) {
  auto arguments = std::make_shared<BenchArguments>();
  verb.add_option("name", arguments->name, "sim: speed and scale of the simulator; p3: P3's study")
      ->required()
      ->check(CLI::IsMember(light_benchmarks()));
  verb.add_flag("--quick", arguments->quick, "fewer repetitions of the same figures");
  verb.add_option("-o,--output", arguments->output, "write the page of figures here");
  verb.add_option("--data", arguments->data,
                  "folder of measured tables (default: AUTODIST_DATA, then ../shared/data)");
  return [arguments](Console& console) { return bench(*arguments, console); };
}

}  // namespace autodist::app
