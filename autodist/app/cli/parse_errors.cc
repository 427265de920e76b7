#include "autodist/app/cli/parse_errors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/base/numbers.h"
#include "autodist/base/text.h"

namespace autodist::app {
namespace {

bool are_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Empty where `text` is one.
std::string refuse_whole_number(const std::string& text, bool is_signed) {
  std::string_view digits = text;
  if (is_signed && !digits.empty() && digits.front() == '-') digits.remove_prefix(1);
  const bool leads_with_zero = digits.size() > 1 && digits.front() == '0';
  if (are_digits(digits) && !leads_with_zero) {
    // CLI11 takes the largest number for one that does not fit.
    const bool fits = is_signed ? as_number<std::int64_t>(text).has_value()
                                : as_number<std::uint64_t>(text).has_value();
    return fits ? "" : fmt::format("'{}' is too large a number. Give a smaller one.", text);
  }
  return fmt::format("'{}', a whole number{} in decimal digits expected", text,
                     is_signed ? "" : " of 0 or more");
}

std::string refuse_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_hex = text.find_first_of("xX") != std::string::npos;
  if (!text.empty() && *end == '\0' && std::isfinite(value) && !is_hex) return "";
  return fmt::format("'{}', a number expected", text);
}

// Every name of every option, as it is typed.
std::vector<std::string> names_of(const CLI::App& declared) {
  std::vector<std::string> names;
  for (const CLI::Option* option : declared.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// Without an exponent where it is a whole number, as people count.
std::string plain_number(double number) {
  return number == std::floor(number) ? fmt::format("{:.0f}", number) : fmt::format("{}", number);
}

// Whether the text names the option: as a whole word, which --save is not in --save-every.
bool is_of(const std::string& text, const std::string& name) {
  constexpr char kEnds[] = " :=";
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || text[at - 1] == ' ';
    if (begins && (end == text.size() || std::strchr(kEnds, text[end]) != nullptr)) return true;
  }
  return false;
}

std::string takes_no_value(const std::string& flag) {
  return flag + ": takes no value. Leave that out.";
}

// Of a value that one of CLI11's checks refuses; "" for another text.
std::string explained_value(const std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return "";
  const std::string name = text.substr(0, colon);
  const std::string rest = text.substr(colon + 2);
  const std::string in_list = " not in {";
  if (const std::size_t at = rest.find(in_list); at != std::string::npos && rest.back() == '}') {
    const std::size_t begin = at + in_list.size();
    const std::vector<std::string> words = split(rest.substr(begin, rest.size() - 1 - begin), ',');
    const std::string value = rest.substr(0, at);
    return fmt::format("{}: '{}', one of {} expected{}", name, value, fmt::join(words, ", "),
                       nearest_hint(value, words));
  }
  return "";
}

}  // namespace

void expect_plain_numbers(CLI::App& declared) {
  for (CLI::Option* option : declared.get_options()) {
    const std::string type = option->get_type_name();
    // An empty value has a message of its own. A transform comes before the checks of ranges, whose
    // words say nothing of how a number is written.
    const auto check = [option](auto refuse) {
      option->transform(CLI::Validator(
          [refuse](std::string& text) { return text.empty() ? "" : refuse(text); }, ""));
    };
    if (type.starts_with("UINT")) {
      check([](const std::string& text) { return refuse_whole_number(text, false); });
    } else if (type.starts_with("INT")) {
      check([](const std::string& text) { return refuse_whole_number(text, true); });
    } else if (type.starts_with("FLOAT")) {
      check(refuse_number);
    }
  }
}

CLI::Validator in_range(const CLI::Range& range, double least, double most) {
  CLI::Validator refuses = range;  // with its words in --help
  refuses.operation([range, least, most](std::string& text) {
    return range(text).empty() ? std::string()
                               : fmt::format("{}, a number from {} to {} expected", text,
                                             plain_number(least), plain_number(most));
  });
  return refuses;
}

std::string explained(const CLI::ParseError& error, const Verb* verb, const CLI::App& program) {
  const std::string text = error.what();
  const std::string of = verb == nullptr ? "" : verb->name + ": ";
  const std::string help =
      fmt::format("See autodist {}--help.", verb == nullptr ? "" : verb->name + " ");
  const CLI::App& declared = verb == nullptr ? program : *program.get_subcommand(verb->name);
  const std::vector<std::string> unknown = program.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || verb == nullptr) {
    for (const std::string& word : unknown) {
      if (word.front() != '-' || word == "--") continue;
      const std::string name = word.substr(0, word.find('='));
      return fmt::format("{}there is no option {}{} {}", of, name,
                         nearest_hint(name, names_of(declared)), help);
    }
    if (!unknown.empty()) {
      return fmt::format("{}'{}' is more than it takes. {}", of, unknown.back(), help);
    }
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return verb == nullptr ? "a verb is missing. " + help
                           : fmt::format("{}{}. For example: {}", of, text, verb->example);
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    return fmt::format("{}. Leave one of them out.", text);
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    return fmt::format("{}. Add it, or leave the other out.", text);
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    const std::string value = explained_value(text);
    if (!value.empty()) return value;
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string option = text.substr(0, text.find_first_of(": "));
    // CLI11 names a flag that was given a value, which it must not have, without dashes.
    if (option.front() != '-') return takes_no_value("--" + option);
    const std::size_t given = declared.count(option);
    if (given > 1) return fmt::format("{}: given {} times. Keep one.", option, given);
    return fmt::format("{}: its value is missing. Give it one, or leave the option out.", option);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    for (const CLI::Option* option : declared.get_options()) {
      if (option->count() == 0 || !is_of(text, option->get_name())) continue;
      return option->get_items_expected_max() == 0
                 ? takes_no_value(option->get_name())
                 : fmt::format("{}: '{}' is too large a number. Give a smaller one.",
                               option->get_name(), option->results().back());
    }
  }
  return text;
}

void expect_with(const CLI::App& declared, const std::string& option, const std::string& needed) {
  if (declared.count(option) == 0 || declared.count(needed) > 0) return;
  fail(ErrorCode::kUsage, "{}: {} is of {}, which is not given. Add {}, or leave it out.",
       declared.get_name(), option, needed, needed);
}

void expect_without(const CLI::App& declared, const std::string& option, const std::string& other,
                    const std::string& why) {
  if (declared.count(option) == 0 || declared.count(other) == 0) return;
  fail(ErrorCode::kUsage, "{}: {} is {}. Leave one of {} and {} out.", declared.get_name(), option,
       why, option, other);
}

void expect_of_part(const CLI::App& declared, const std::string& part,
                    const std::vector<PartOptions>& parts) {
  std::map<std::string, std::vector<std::string>> owners;
  for (const PartOptions& each : parts) {
    for (const std::string& option : each.options) owners[option].push_back(each.part);
  }
  for (const auto& [option, of] : owners) {
    if (declared.count(option) == 0 || std::find(of.begin(), of.end(), part) != of.end()) continue;
    fail(ErrorCode::kUsage, "{}: {} is of {}, and this is {}. Leave it out.", declared.get_name(),
         option, fmt::join(of, " and "), part);
  }
}

}  // namespace autodist::app
