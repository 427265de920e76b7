#include "autodist/app/cli/program.h"

#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "autodist/app/cli/help.h"
#include "autodist/app/cli/parse_errors.h"
#include "autodist/app/output_file.h"
#include "autodist/app/terminal.h"
#include "autodist/app/this_process.h"
#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"

namespace autodist::app {
namespace {

constexpr std::size_t kUsual = 80;      // columns, where a terminal does not say
constexpr std::size_t kReadable = 100;  // of text that is not a table
constexpr std::size_t kLeast = 20;

// Of standard output or error, where that is a terminal.
std::size_t shown_columns(int descriptor) {
  return std::max(kLeast, terminal_columns(descriptor).value_or(kUsual));
}

constexpr int kDefect = 70;  // EX_SOFTWARE

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int report(const std::string& message, int code) {
  say_line(one_line(message));
  return code;
}

// CLI11 calls an unknown verb an "extra argument"; people want to know which verb they meant.
void refuse_unknown_verb(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-' || find_verb(argv[1]) != nullptr) return;
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.push_back(verb.name);
  fail(ErrorCode::kUsage, "unknown verb '{}'.{} See autodist --help.", argv[1],
       did_you_mean(argv[1], names));
}

// JSON holds nothing else, and the answer names what was asked for: said before the work.
void expect_utf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    try {
      static_cast<void>(nlohmann::json(argv[i]).dump());
    } catch (const nlohmann::json::type_error&) {
      const auto replace = nlohmann::json::error_handler_t::replace;
      fail(ErrorCode::kUsage,
           "--json: argument {}, {}, is not UTF-8, which JSON cannot hold. Rename it, or leave "
           "--json out.",
           i, nlohmann::json(argv[i]).dump(-1, ' ', false, replace));
    }
  }
}

// A variable of a shell that is not set would be taken for the option left out.
void refuse_empty_values(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    const auto& values = option->results();
    if (std::find(values.begin(), values.end(), "") != values.end()) {
      fail(ErrorCode::kUsage, "{}: its value is empty. Give it one, or leave the option out.",
           option->get_name());
    }
  }
}

// What is read before it is written anew, as a strategy, may be the same file.
void expect_files_apart(const CLI::App& verb) {
  const std::set<std::string> writing{"--output", "--report",         "--trace",
                                      "--log",    "--write-strategy", "--write-plans"};
  const std::set<std::string> reading{"graph", "inputs", "predicted", "measured", "--predicted"};
  const std::string& name = verb.get_name();
  if (name == "run" || name == "supervise" || name == "chaos") return;  // another program's words
  std::vector<NamedFile> written;
  std::vector<NamedFile> read;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& value : option->results()) {
      if (writing.count(option->get_name()) > 0) written.push_back({option->get_name(), value});
      if (reading.count(option->get_name()) > 0) read.push_back({option->get_name(), value});
    }
  }
  expect_apart(written, read);
}

int run(int argc, char** argv, Binary binary, const std::map<std::string, Declare>& declared) {
  refuse_unknown_verb(argc, argv);
  CLI::App app("Plans how to train a model on many machines, and trains it.", "autodist");
  app.require_subcommand(1);
  app.set_version_flag("--version", AUTODIST_VERSION);
  app.footer(
      "Every verb takes --help, which shows an example, and all that answer take --json. "
      "To begin: `autodist demo`.");

  app.formatter(help_formatter(std::min(shown_columns(STDOUT_FILENO), kReadable),
                               isatty(STDOUT_FILENO) == 1));
  // A dumb terminal has no line that could be rewritten.
  const bool rewrites = isatty(STDERR_FILENO) == 1 && process_environment()("TERM") != "dumb";
  Console console{std::cout, std::cerr, false, rewrites};
  std::map<const CLI::App*, Action> actions;
  for (const Verb& verb : verbs()) {
    CLI::App* subcommand = app.add_subcommand(verb.name, verb.summary);
    subcommand->footer("Example:\n  " + verb.example);
    const auto found = declared.find(verb.name);  // either binary may know a part of `bench`
    AD_CHECK(found != declared.end() || verb.binary != binary)
        << "verb " << verb.name << " has no declaration";
    if (found == declared.end()) continue;
    subcommand->option_defaults()->always_capture_default();
    actions[subcommand] = found->second(*subcommand);
    expect_plain_numbers(*subcommand);
    if (verb.says == Says::kAnAnswer) {
      subcommand->add_flag("--json", console.json, "print one JSON object to standard output");
    }
  }
  if (argc == 1) {  // what is there, to who asks for nothing
    std::cout << app.help();
    return static_cast<int>(ErrorCode::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return report(explained(error, find_verb(argv[1]), app), static_cast<int>(ErrorCode::kUsage));
  }
  if (console.json) expect_utf8(argc, argv);
  refuse_empty_values(*app.get_subcommands().front());
  expect_files_apart(*app.get_subcommands().front());
  const auto action = actions.find(app.get_subcommands().front());
  if (action == actions.end()) {
    const std::string& verb = app.get_subcommands().front()->get_name();
    fail(ErrorCode::kUsage, "'{}' is no verb of this program, which `autodist` starts: autodist {}",
         verb, verb);
  }
  // What is for a program stays as it is.
  const bool is_text = !console.json && action->first->get_name() != "completion";
  if (!is_text || isatty(STDOUT_FILENO) == 0) return action->second(console);
  WrappingBuffer buffer(*std::cout.rdbuf(), shown_columns(STDOUT_FILENO));
  std::ostream out(&buffer);
  Console wrapping{out,       std::cerr, false, console.terminal, shown_columns(STDOUT_FILENO),
                   &std::cout};
  const int code = action->second(wrapping);
  out.flush();
  if (!out) std::cout.setstate(std::ios::badbit);
  return code;
}

}  // namespace

int Console::answer(const nlohmann::ordered_json& what) const {
  out << what.dump() << "\n";
  return 0;
}

std::ostream& Console::as_it_is() const {
  out.flush();
  return verbatim == nullptr ? out : *verbatim;
}

void Console::rewrite(const std::vector<std::string>& parts) const {
  err << '\r' << first_that_fit(parts, shown_columns(STDERR_FILENO) - 1) << "\033[K" << std::flush;
}

void Console::tell(const std::string& lines) const {
  err << (terminal ? wrapped(lines, shown_columns(STDERR_FILENO)) : lines) << std::flush;
}

void declare_graph(CLI::App& verb, std::string& graph) {
  verb.add_option("graph", graph,
                  "a captured graph, the name of a shipped one, or AutoDist's graph_item")
      ->required();
}

void declare_cluster(CLI::App& verb, std::string& cluster) {
  verb.add_option(
      "--cluster", cluster,
      "a cluster file, a host file, or local:N, N processes of this machine (default local:2)");
}

void declare_devices(CLI::App& verb, bool& cpu_only) {
  const auto set = [&cpu_only](const std::string& word) { cpu_only = word == "cpu"; };
  verb.add_option_function<std::string>("--devices", set,
                                        "cpu: one CPU rank for each listed GPU (default as-listed)")
      ->check(CLI::IsMember({"as-listed", "cpu"}));
}

int run_program(int argc, char** argv, Binary binary,
                const std::map<std::string, Declare>& declared) {
  google::protobuf::SetLogHandler(nullptr);  // our one line says it
  std::signal(SIGXFSZ, SIG_IGN);             // a file that may not grow is an error, not an end
  try {
    const int code = run(argc, argv, binary, declared);
    std::cout.flush();
    if (!std::cout) return report("standard output cannot be written. Make room where it goes.", 3);
    return code;
  } catch (const Error& error) {
    return report(error.what(), static_cast<int>(error.code()));
  } catch (const nlohmann::json::type_error& error) {  // of names that come from files
    constexpr int kNotUtf8 = 316;
    if (error.id != kNotUtf8) {
      return report(fmt::format("unexpected: {}. Please report it.", error.what()), kDefect);
    }
    return report("a name is not UTF-8, which JSON cannot hold. Rename it, or leave --json out.",
                  2);
  } catch (const InternalError& error) {
    return report(fmt::format("a defect in AutoDist: {}. Please report it.", error.what()),
                  kDefect);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    return report(fmt::format("{}: {}. Name another, or make it accessible.",
                              path.empty() ? "a file" : path, error.code().message()),
                  3);
  } catch (const std::bad_alloc&) {
    return report("no memory left. Use a smaller batch or graph, or a machine with more.", 3);
  } catch (const std::exception& error) {
    return report(fmt::format("unexpected: {}. Please report it.", error.what()), kDefect);
  }
}

}  // namespace autodist::app
