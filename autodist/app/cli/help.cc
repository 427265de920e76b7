#include "autodist/app/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "autodist/app/terminal.h"

namespace autodist::app {
namespace {

constexpr std::size_t kNames = 28;  // columns, beside which descriptions stand
constexpr std::size_t kNarrow = 5;  // below which they stand, where there is no room beside

// "TEXT:{cpu,gpu}" as "cpu|gpu"; other checks of a value are told when it fails them.
std::string shown_kind(const std::string& type) {
  const std::size_t open = type.find(":{");
  if (open == std::string::npos) return type.substr(0, type.find(':'));
  std::string choices = type.substr(open + 2, type.rfind('}') - open - 2);
  std::replace(choices.begin(), choices.end(), ',', '|');
  return choices;
}

// "a|b|c" in lines of so many columns.
std::string broken(std::string values, std::size_t columns) {
  std::string lines;
  while (values.size() > columns) {
    const std::size_t bar = values.rfind('|', columns - 1);
    if (bar == std::string::npos) break;
    lines += values.substr(0, bar + 1) + "\n      ";
    values.erase(0, bar + 1);
  }
  return lines + values;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter(std::size_t columns, bool at_terminal)
      : columns_(columns), at_terminal_(at_terminal) {
    column_width(columns < 2 * kNames ? kNarrow : kNames);
  }

  // An example's lines are one command, to be copied.
  std::string make_footer(const CLI::App* app) const override {
    const std::string text = CLI::Formatter::make_footer(app);
    const std::size_t example = text.find("\n  ");
    if (example == std::string::npos) return wrapped(text, columns_, 0);
    std::string shown = wrapped(text.substr(example), columns_ - 2, 4);
    for (std::size_t at = 0; (at = shown.find("\n    ", at)) != std::string::npos; at += 3) {
      shown.insert(at, " \\");
    }
    return text.substr(0, example) + shown;
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    // A group of options that are not shown leaves a line behind.
    for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    return CLI::Formatter::make_group(wrapped(group, columns_ - 1, 2), is_positional,
                                      std::move(options));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return ' ' + option->get_option_text();
    std::string text;
    if (option->get_type_size() != 0) text = shown_kind(option->get_type_name());
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (option->get_required()) text += " (required)";
    const std::size_t beside = option->get_name().size() + 8;  // the name, and what is indented
    if (at_terminal_ && columns_ > 2 * beside) text = broken(text, columns_ - beside);
    return text.empty() ? "" : ' ' + text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string& value = option->get_default_str();
    const bool tells = !value.empty() && value != "\"\"" && value != "[]" && value != "0" &&
                       value != "false" && text.find("default") == std::string::npos;
    if (tells && option->get_type_size() != 0) text += fmt::format(" (default {})", value);
    return beside(text);
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_display_name(true), beside(verb->get_description()),
                             get_column_width());
    return out.str();
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), columns_, 0);
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return wrapped(CLI::Formatter::make_usage(app, std::move(name)), columns_);
  }

 private:
  // Lines that stand beside, or below, a name; the caller indents them.
  [[nodiscard]] std::string beside(const std::string& text) const {
    return wrapped(text, columns_ - get_column_width(), 0);
  }

  std::size_t columns_;
  bool at_terminal_;
};

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter(std::size_t columns, bool at_terminal) {
  return std::make_shared<HelpFormatter>(columns, at_terminal);
}

}  // namespace autodist::app
