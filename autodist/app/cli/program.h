// What both binaries share: parsing by the table of verbs, one place that catches, exit codes.

#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "autodist/app/cli/verbs.h"

namespace CLI {
class App;
}

namespace autodist::app {

// Where a verb writes. With `json` it writes one JSON object to `out` and nothing else there.
struct Console {
  std::ostream& out;  // lines are broken at words where it is a terminal
  std::ostream& err;
  bool json = false;
  bool terminal = false;             // `err` is one: progress may rewrite its line
  std::size_t columns = 0;           // of the terminal that `out` is; 0: it is none
  std::ostream* verbatim = nullptr;  // `out`, with lines as they are; nullptr: `out` itself

  // With `json`: writes the answer on one line. Returns 0, the exit code of a verb that is done.
  int answer(const nlohmann::ordered_json& what) const;
  // For what is to be copied, or is another program's: lines are not broken.
  [[nodiscard]] std::ostream& as_it_is() const;
  // On a terminal: the parts of a line in the place of the last line, as many as there is room for;
  // none leave nothing there. REQUIRES: `terminal`.
  void rewrite(const std::vector<std::string>& parts) const;
  // Lines on `err`, wrapped where it is a terminal.
  void tell(const std::string& lines) const;
};

// The first word of a verb that reads a graph.
void declare_graph(CLI::App& verb, std::string& graph);
// --cluster, of a verb that takes local:2 where nobody names one.
void declare_cluster(CLI::App& verb, std::string& cluster);
// --devices as-listed|cpu.
void declare_devices(CLI::App& verb, bool& cpu_only);

// Does the verb's work after parsing; returns the exit code.
using Action = std::function<int(Console&)>;
// Declares a verb's options on its subcommand and returns its action.
using Declare = std::function<Action(CLI::App&)>;

// Parses the command line and runs one verb of `declared`. Every failure is one line on standard
// error and an exit code (base/error.h; 2 for usage, 70 for a defect of ours).
int run_program(int argc, char** argv, Binary binary,
                const std::map<std::string, Declare>& declared);

}  // namespace autodist::app
