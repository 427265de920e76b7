// `autodist completion`: verbs and options in the shell.

#include "autodist/app/cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "autodist/app/cli/light_verbs.h"
#include "autodist/app/cli/verbs.h"
#include "autodist/base/check.h"
#include "autodist/base/text.h"
#include "autodist/planning/archive.h"
#include "autodist/planning/defaults.h"
#include "autodist/search/builders/builders.h"

namespace autodist::app {
namespace {

// Words in double quotes of a shell.
std::string quoted(const std::string& text) {
  const std::string inside =
      escaped(text, {{'"', "\\\""}, {'\\', "\\\\"}, {'$', "\\$"}, {'`', "\\`"}});
  return fmt::format("\"{}\"", inside);
}

std::string names() {
  std::vector<std::string> all;
  for (const Verb& verb : verbs()) all.push_back(verb.name);
  return fmt::format("{}", fmt::join(all, " "));
}

// Values of options, and what verbs take first, by name.
std::string builders() {
  std::string all = planning::kSearch;
  for (const search::Builder& each : search::builders()) all += ' ' + each.name;
  return all;
}
std::string models() { return fmt::format("{}", fmt::join(planning::archived_graphs(), " ")); }
constexpr const char* kVerbsOfModels = "capture inspect plan explain simulate place train export";

// Of a verb's --help: the names of its options, the values of one that lists them, and those of
// what it takes first.
constexpr const char* kOptions =
    R"(--help 2>/dev/null | sed -nE 's/^  (-[a-zA-Z],)?(--[a-z][a-z,-]+).*/\2/p' | tr , '\n')";
constexpr const char* kValues =
    R"(--help 2>/dev/null | sed -nE "s/^  (-[a-zA-Z],)?$option ([a-z0-9_-]+(\|[a-z0-9_-]+)+).*/\2/p" 2>/dev/null | tr '|' '\n')";
constexpr const char* kFirstValues =
    R"(--help 2>/dev/null | sed -nE '/^Positionals/,/^$/s/^  [a-z]+ ([a-z0-9_-]+(\|[a-z0-9_-]+)+).*/\1/p' | head -n 1 | tr '|' '\n')";

std::string bash() {
  return fmt::format(
      R"sh(# Completion of autodist for bash: autodist completion bash > FILE, then source FILE.
_autodist() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD - 1]}} verb=${{COMP_WORDS[1]}}
  # An = is a word of its own.
  if [ "$option" = = ]; then option=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
  if [ "$word" = = ]; then word=; fi
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{0} --help --version" -- "$word"))
  elif [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$(autodist "$verb" {1})" -- "$word"))
  elif [ "$option" = --builder ]; then
    COMPREPLY=($(compgen -W "{3}" -- "$word"))
  elif [ "${{option#--}}" != "$option" ]; then
    COMPREPLY=($(compgen -W "$(autodist "$verb" {2})" -- "$word"))
  elif [ "$COMP_CWORD" -eq 2 ]; then
    case " {5} " in
      *" $verb "*) COMPREPLY=($(compgen -W "{4}" -- "$word")) ;;
      *) COMPREPLY=($(compgen -W "$(autodist "$verb" {6})" -- "$word")) ;;
    esac
  fi
}}
complete -o default -F _autodist autodist
)sh",
      names(), kOptions, kValues, builders(), models(), kVerbsOfModels, kFirstValues);
}

std::string zsh() {
  std::string text =
      "#compdef autodist\n"
      "# Completion of autodist for zsh: autodist completion zsh > _autodist, in a folder of "
      "fpath.\n"
      "_autodist() {\n  local -a verbs words_of_it\n  local option=$words[CURRENT-1]\n  verbs=(\n";
  for (const Verb& verb : verbs()) {
    text += fmt::format("    {}\n", quoted(verb.name + ":" + verb.summary));
  }
  text += fmt::format(R"sh(  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
  elif [[ "$words[CURRENT]" == -* ]]; then
    words_of_it=(${{(f)"$(autodist "$words[2]" {})"}})
    compadd -- $words_of_it
  elif [[ "$option" == --builder ]]; then
    compadd -- {}
  else
    if [[ "$option" == --* ]]; then
      words_of_it=(${{(f)"$(autodist "$words[2]" {})"}})
      (( $#words_of_it )) && compadd -- $words_of_it && return
    fi
    if (( CURRENT == 3 )) && [[ " {} " == *" $words[2] "* ]]; then
      compadd -- {}
    elif (( CURRENT == 3 )); then
      words_of_it=(${{(f)"$(autodist "$words[2]" {})"}})
      (( $#words_of_it )) && compadd -- $words_of_it && return
    fi
    _files
  fi
}}
compdef _autodist autodist
)sh",
                      kOptions, builders(), kValues, kVerbsOfModels, models(), kFirstValues);
  return text;
}

std::string fish() {
  std::string text =
      "# Completion of autodist for fish: autodist completion fish > "
      "~/.config/fish/completions/autodist.fish\n";
  for (const Verb& verb : verbs()) {
    text += fmt::format("complete -c autodist -f -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                        quoted(verb.summary));
  }
  text += fmt::format(R"sh(function __autodist_options
  set -l words (commandline -opc)
  autodist $words[2] {}
end
function __autodist_values
  set -l words (commandline -opc)
  set -l option $words[-1]
  string match -q -- '--*' $option; and autodist $words[2] {}
end
function __autodist_first_values
  set -l words (commandline -opc)
  test (count $words) -eq 2; and autodist $words[2] {}
end
complete -c autodist -n 'not __fish_use_subcommand' -a '(__autodist_first_values)'
complete -c autodist -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -a '(__autodist_options)'
complete -c autodist -n 'not __fish_use_subcommand' -a '(__autodist_values)'
complete -c autodist -l builder -xa '{}'
complete -c autodist -n '__fish_seen_subcommand_from {}' -a '{}'
)sh",
                      kOptions, kValues, kFirstValues, builders(), kVerbsOfModels, models());
  return text;
}

// A line of roff: no control at its beginning, hyphens that can be copied.
std::string roff(const std::string& text) {
  const std::string line = escaped(text, {{'\\', "\\e"}, {'-', "\\-"}});
  const bool is_control = !line.empty() && (line.front() == '.' || line.front() == '\'');
  return (is_control ? "\\&" : "") + line;
}

std::string man() {
  std::string text = fmt::format(
      ".TH AUTODIST 1 \"\" \"AutoDist {}\" \"User Commands\"\n.SH NAME\nautodist \\- plan how to "
      "train a model on many machines, and train it\n.SH SYNOPSIS\n.B autodist\n.I verb\n"
      "[\\fIoptions\\fR]\n.SH VERBS\n",
      AUTODIST_VERSION);
  for (const Verb& verb : verbs()) {
    text += fmt::format(".TP\n.B {}\n{}.\n.br\nExample: \\fB{}\\fR\n", roff(verb.name),
                        roff(verb.summary), roff(verb.example));
  }
  return text +
         ".SH OPTIONS\nEvery verb takes \\fB\\-\\-help\\fR, which lists its options, and "
         "all that answer \\fB\\-\\-json\\fR.\n.SH EXIT STATUS\n0 done; 2 usage; 3 environment; 4 "
         "the plan is infeasible; 5 peers were lost; 6 a checkpoint is bad; 7 authentication; 70 a "
         "defect of "
         "AutoDist; 124 time\\-out; 130 interrupted.\n";
}

}  // namespace

const std::vector<std::string>& completion_kinds() {
  static const std::vector<std::string> kinds{"bash", "zsh", "fish", "man"};
  return kinds;
}

std::string completion_of(const std::string& kind) {
  if (kind == "bash") return bash();
  if (kind == "zsh") return zsh();
  if (kind == "fish") return fish();
  AD_CHECK(kind == "man") << "completion for " << kind;
  return man();
}

Action declare_completion(CLI::App& verb) {
  auto kind = std::make_shared<std::string>();
  verb.add_option("for", *kind, "bash, zsh, fish: a script to source; man: a manual page")
      ->required()
      ->check(CLI::IsMember(completion_kinds()));
  return [kind](Console& console) {
    const std::string text = completion_of(*kind);
    console.out << (console.json
                        ? nlohmann::ordered_json{{"for", *kind}, {"text", text}}.dump() + "\n"
                        : text);
    return 0;
  };
}

}  // namespace autodist::app
