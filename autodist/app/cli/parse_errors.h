// What CLI11 makes of a command line that is wrong, in words that say what to do; and what it would
// take for right.

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "autodist/app/cli/verbs.h"

namespace autodist::app {

// From here on every number of the verb must be finite and in decimal digits. CLI11 alone takes 010
// for eight and -1 for a huge unsigned number, and finds nan in any of its ranges.
void expect_plain_numbers(CLI::App& declared);

// A check of an option's value, which says "VALUE, a number from 1 to 100 expected" where the value
// is outside of `range`, whose bounds are `least` and `most`. Callers use the second form.
CLI::Validator in_range(const CLI::Range& range, double least, double most);
template <typename Number>
CLI::Validator in_range(Number least, Number most) {
  return in_range(CLI::Range(least, most), static_cast<double>(least), static_cast<double>(most));
}

// The largest number of steps or samples that an option takes.
inline constexpr std::int64_t kMostCount = 1'000'000'000;

// One line. `verb` is nullptr where none was named.
std::string explained(const CLI::ParseError& error, const Verb* verb, const CLI::App& program);

// Throws Error(kUsage) where `option` was given without what it is of: "VERB: --text is of -o,
// which is not given. Add -o, or leave it out." Both are names of options that `declared` has.
void expect_with(const CLI::App& declared, const std::string& option, const std::string& needed);
// Throws Error(kUsage) where `option` was given beside `other`, which leaves it without effect;
// `why` is a clause: "of the search, and --builder chooses without one".
void expect_without(const CLI::App& declared, const std::string& option, const std::string& other,
                    const std::string& why);
// One of the things that a verb does, and the options that only this one takes. An option that no
// part lists is of all parts.
struct PartOptions {
  std::string part;
  std::vector<std::string> options;
};
// Throws Error(kUsage) where one was given that is of other parts alone: "ckpt: --only is of
// extract, and this is list. Leave it out." A part that is not listed has none.
void expect_of_part(const CLI::App& declared, const std::string& part,
                    const std::vector<PartOptions>& parts);

}  // namespace autodist::app
