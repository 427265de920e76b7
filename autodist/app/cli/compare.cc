// `autodist compare`: a predicted trace beside a measured one.

#include <CLI/CLI.hpp>
#include <memory>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/comparison.h"
#include "autodist/app/output_file.h"
#include "autodist/app/trace_file.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"

namespace autodist::app {

Action declare_compare(CLI::App& verb) {
  struct Arguments {
    std::string predicted;
    std::string measured;
    std::string output;
    bool all = false;
  };
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("predicted", arguments->predicted,
                  "a trace that `autodist simulate --trace` wrote")
      ->required();
  verb.add_option("measured", arguments->measured, "one that `autodist train --trace` wrote")
      ->required();
  verb.add_option("-o,--output", arguments->output, "write both as one Perfetto trace here");
  verb.add_flag("--all", arguments->all, "show every variable");
  return [arguments](Console& console) {
    expect_writable("--output", arguments->output);
    const program::Trace predicted = read_trace(arguments->predicted);
    const program::Trace measured = read_trace(arguments->measured);
    if (predicted.origin == program::TraceOrigin::kRun) {
      if (measured.origin == program::TraceOrigin::kSimulation) {
        fail(ErrorCode::kUsage,
             "compare: {} is of a run, and {} of a simulation, the other way round expected. Swap "
             "them.",
             arguments->predicted, arguments->measured);
      }
      console.tell("autodist: both are of runs, the first one as 'predicted'\n");
    } else if (measured.origin == program::TraceOrigin::kSimulation) {
      console.tell("autodist: both are of simulations, the second one as 'measured'\n");
    }
    const Comparison comparison = compare(predicted, measured);
    if (!arguments->output.empty()) {
      write_file_atomically(arguments->output, side_by_side(predicted, measured));
    }
    console.out << (console.json
                        ? comparison_json(comparison) + "\n"
                        : comparison_table(comparison, arguments->all ? 0 : 10, console.columns));
    return 0;
  };
}

}  // namespace autodist::app
