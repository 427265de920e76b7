// What is text, and what it takes on a screen.

#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace autodist {

// Whether a character of UTF-8 begins with this byte, or goes on with it.
inline bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

// Whether these bytes have no control characters but white space, as protobuf's raw form has for
// its lengths and tags.
inline bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char c) {
    return c >= 0x20 || c == '\n' || c == '\t' || c == '\r';
  });
}

// Columns that a line takes: one per character.
inline std::size_t columns_of(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), begins_character));
}

// Where the first `count` characters of a text end; its size where it has fewer.
inline std::size_t end_of_characters(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && count-- == 0) break;
  }
  return end;
}

// The parts between separators, as std::getline gives them: an empty text has none, and a separator
// at the end begins none.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// The parts before, between and behind separators: an empty text is one empty part.
inline std::vector<std::string> split_all(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The text with each of these characters written as the text beside it.
inline std::string escaped(std::string_view text, const std::map<char, std::string>& written) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    const auto other = written.find(c);
    if (other == written.end()) {
      result += c;
    } else {
      result += other->second;
    }
  }
  return result;
}

// A sentence as a part of another one.
inline std::string without_dot(std::string text) {
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

}  // namespace autodist
