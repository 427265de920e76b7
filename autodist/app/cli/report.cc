// `autodist report`: one HTML file of a plan and a run, or what a trace says of late slices.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/report_page.h"
#include "autodist/app/trace_file.h"
#include "autodist/report/late.h"

namespace autodist::app {
namespace {

struct ReportArguments {
  ReportRequest request;
  std::string output = "report.html";
  std::string late;
  std::size_t top = 10;
};

int say_late(const ReportArguments& arguments, Console& console) {
  const program::Trace trace = read_trace(arguments.late);
  expect_origin(trace.origin, arguments.late, program::TraceOrigin::kRun);
  console.out << (console.json ? report::late_json(trace, arguments.top) + "\n"
                               : report::late_table(trace, arguments.top));
  return 0;
}

int write_page(const ReportArguments& arguments, Console& console) {
  expect_writable("--output", arguments.output);
  std::vector<std::string> warnings;
  const report::PageInputs inputs = page_inputs(arguments.request, warnings);
  for (const std::string& warning : warnings) console.err << "autodist: " << warning << "\n";
  report::write_page(inputs, arguments.output);
  if (console.json) {
    return console.answer(
        {{"report", arguments.output}, {"title", inputs.title}, {"sources", inputs.sources}});
  }
  console.out << "Written to " << arguments.output << ": open it in any browser\n";
  return 0;
}

void declare_inputs(CLI::App& verb, ReportRequest& request) {
  verb.add_option("inputs", request.inputs,
                  "what to show, told by content: traces of `train --trace`, a log of `train "
                  "--log`, a strategy, a captured graph or the name of a shipped one, a cluster, "
                  "what `simulate --json` printed, with --what-if too");
  verb.add_option("--predicted", request.predicted,
                  "a trace of `simulate --trace`, shown above the measured one");
  verb.add_option("--cluster", request.cluster,
                  "a cluster file, a host file, or local:N; with a graph and a strategy, the "
                  "page says what goes over the wire");
  verb.add_option("--builder", request.builder, "NAME or NAME:key=value,… in a strategy's place");
  verb.add_option("--title", request.title, "the page's title (default: from the inputs)");
  declare_devices(verb, request.cpu_only);
}

}  // namespace

Action declare_report(CLI::App& verb) {
  auto arguments = std::make_shared<ReportArguments>();
  declare_inputs(verb, arguments->request);
  verb.add_option("-o,--output", arguments->output, "the page (default report.html)");
  verb.add_option("--late", arguments->late,
                  "no page: of a trace of `train --trace`, the slices that delayed the step most, "
                  "and where they were meanwhile");
  verb.add_option("--top", arguments->top, "how many of them; 0: all");
  return [arguments, &verb](Console& console) {
    expect_with(verb, "--top", "--late");
    for (const char* option :
         {"inputs", "--output", "--predicted", "--title", "--builder", "--cluster", "--devices"}) {
      expect_without(verb, option, "--late", "of a page, and --late makes none");
    }
    return arguments->late.empty() ? write_page(*arguments, console)
                                   : say_late(*arguments, console);
  };
}

}  // namespace autodist::app
