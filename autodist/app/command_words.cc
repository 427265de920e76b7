#include "autodist/app/command_words.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "autodist/job/remote.h"

namespace autodist::app {
namespace {

std::string typed(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("-_./:,=+@%", c) != nullptr;
  });
  return plain ? word : job::quoted(word);
}

}  // namespace

std::optional<std::string> value_of(const std::vector<std::string>& words,
                                    const std::string& option) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) {
      value = words[++i];
    } else if (words[i].starts_with(option + "=")) {
      value = words[i].substr(option.size() + 1);
    }
  }
  return value;
}

bool has_word(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string> without_option(const std::vector<std::string>& words,
                                        const std::string& option) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option) {
      ++i;
    } else if (!words[i].starts_with(option + "=")) {
      all.push_back(words[i]);
    }
  }
  return all;
}

std::vector<std::string> with_value(const std::vector<std::string>& words,
                                    const std::string& option, const std::string& value) {
  std::vector<std::string> all = without_option(words, option);
  all.insert(all.end(), {option, value});
  return all;
}

std::vector<std::string> resuming(const std::vector<std::string>& words,
                                  const std::string& checkpoint) {
  return with_value(without_option(words, "--init"), "--resume", checkpoint);
}

std::string as_typed(const std::vector<std::string>& words) {
  std::string command = std::filesystem::path(words.front()).filename().string();
  for (std::size_t i = 1; i < words.size(); ++i) command += " " + typed(words[i]);
  return command;
}

}  // namespace autodist::app
