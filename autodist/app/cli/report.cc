// `autodist report`: what a trace says.

#include <CLI/CLI.hpp>
#include <memory>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/base/file.h"
#include "autodist/report/late.h"

namespace autodist::app {
namespace {

constexpr std::int64_t kLargestTrace = std::int64_t{2} << 30;

struct ReportArguments {
  std::string late;
  std::size_t top = 10;
};

int report_verb(const ReportArguments& arguments, Console& console) {
  const ir::Trace trace =
      ir::read_chrome_json(read_file(arguments.late, kLargestTrace), arguments.late);
  if (console.json) {
    console.out << report::late_json(trace, arguments.top) << "\n";
  } else {
    console.out << report::late_table(trace, arguments.top);
  }
  return 0;
}

}  // namespace

Action declare_report(CLI::App& verb) {
  auto arguments = std::make_shared<ReportArguments>();
  verb.add_option("--late", arguments->late,
                  "a trace of `train --trace`: the slices that delayed the step most, and where "
                  "they were meanwhile")
      ->required();
  verb.add_option("--top", arguments->top, "how many of them; 0: all");
  return [arguments](Console& console) { return report_verb(*arguments, console); };
}

}  // namespace autodist::app
