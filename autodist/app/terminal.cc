#include "autodist/app/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "autodist/base/text.h"

namespace autodist::app {
namespace {

std::size_t first_not_space(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Columns before the second column.
std::size_t second_column(std::string_view line) {
  const std::size_t gap = line.find("  ", first_not_space(line));
  if (gap == std::string_view::npos) return 0;
  const std::size_t begin = gap + first_not_space(line.substr(gap));
  return begin < line.size() ? columns_of(line.substr(0, begin)) : 0;
}

// Where a line goes on that is broken.
std::size_t indent_of(std::string_view line, std::size_t columns) {
  const std::size_t second = second_column(line);
  if (second > 0 && second <= columns / 2) return second;
  const std::size_t inside = first_not_space(line) + 4;
  return inside <= columns / 2 ? inside : 0;
}

void wrap_line(std::string_view line, std::size_t columns, std::size_t indent, std::string& text) {
  std::string rest(line);
  const bool is_row = indent != second_column(line);  // of a table: broken between its cells
  while (columns_of(rest) > columns) {
    const std::size_t end = end_of_characters(rest, columns);
    const std::size_t begin = first_not_space(rest);
    std::size_t space = is_row ? rest.rfind("  ", end) : std::string::npos;
    if (space == std::string::npos || space <= begin) space = rest.rfind(' ', end);
    if (space == std::string::npos || space <= begin) space = rest.find(' ', end);
    if (space == std::string::npos) break;  // one word
    std::string next = rest.substr(space);
    next.erase(0, first_not_space(next));
    rest.erase(space);
    while (!rest.empty() && rest.back() == ' ') rest.pop_back();
    text += rest + '\n';
    if (next.empty()) return;
    rest = std::string(indent, ' ') + next;
  }
  text += rest + '\n';
}

}  // namespace

std::optional<std::size_t> terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::string cut(std::string_view line, std::size_t columns) {
  if (columns_of(line) <= columns) return std::string(line);
  if (columns == 0) return "";
  return std::string(line.substr(0, end_of_characters(line, columns - 1))) + "…";
}

std::string first_that_fit(const std::vector<std::string>& parts, std::size_t columns) {
  if (parts.empty()) return "";
  std::string line = cut(parts.front(), columns);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string more = line + "  " + parts[i];
    if (columns_of(more) > columns) break;
    line = more;
  }
  return line;
}

std::string wrapped(std::string_view text, std::size_t columns, std::optional<std::size_t> indent) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const bool is_whole = end < text.size();
    const std::string_view line = text.substr(0, end);
    wrap_line(line, columns, indent.value_or(indent_of(line, columns)), result);
    if (!is_whole) result.pop_back();
    text.remove_prefix(end + (is_whole ? 1 : 0));
  }
  return result;
}

int WrappingBuffer::overflow(int c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  line_ += traits_type::to_char_type(c);
  if (line_.back() != '\n') return c;
  return sync() == 0 ? c : traits_type::eof();
}

int WrappingBuffer::sync() {
  const std::string text = wrapped(line_, columns_);
  line_.clear();
  const auto size = static_cast<std::streamsize>(text.size());
  return target_.sputn(text.data(), size) == size ? target_.pubsync() : -1;
}

}  // namespace autodist::app
