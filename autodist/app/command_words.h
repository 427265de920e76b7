// The words of a command that people type, for a process that starts the same command again.

#pragma once

#include <optional>
#include <string>
#include <vector>

namespace autodist::app {

// What follows "--option", or stands behind "--option="; the last counts, as for the command line.
std::optional<std::string> value_of(const std::vector<std::string>& words,
                                    const std::string& option);

// Whether this is one of them, as a flag is.
bool has_word(const std::vector<std::string>& words, const std::string& word);

// The words with this value for the option, and no other.
std::vector<std::string> with_value(const std::vector<std::string>& words,
                                    const std::string& option, const std::string& value);

// The words without the option and its value.
std::vector<std::string> without_option(const std::vector<std::string>& words,
                                        const std::string& option);

// The words of `train` for a job that goes on from `checkpoint`, which has every value that --init
// would begin with.
std::vector<std::string> resuming(const std::vector<std::string>& words,
                                  const std::string& checkpoint);

// As people type them, without the folder of the program.
std::string as_typed(const std::vector<std::string>& words);

}  // namespace autodist::app
