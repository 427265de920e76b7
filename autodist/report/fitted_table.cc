#include "autodist/report/fitted_table.h"

#include <algorithm>
#include <optional>
#include <set>

#include "autodist/base/text.h"
#include "autodist/ir/text.h"

namespace autodist::report {
namespace {

constexpr std::size_t kLeastName = 24;

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : split(text, '\n')) widest = std::max(widest, columns_of(line));
  return widest;
}

// The last so many characters.
std::string last_of(const std::string& text, std::size_t count) {
  std::size_t at = text.size();
  while (at > 0 && count > 0) count -= begins_character(text[--at]) ? 1 : 0;
  return text.substr(at);
}

// With so many sixths of what is left at the end.
std::string without_middle(const std::string& text, std::size_t columns, std::size_t sixths) {
  if (columns_of(text) <= columns) return text;
  const std::size_t tail = sixths * (columns - 1) / 6;
  return text.substr(0, end_of_characters(text, columns - 1 - tail)) + "…" + last_of(text, tail);
}

using Rows = std::vector<std::vector<std::string>>;

// The first cells, cut so that those that differ still do: mostly they do at the end. Nothing where
// that cannot be.
std::optional<std::vector<std::string>> shortened_names(const Rows& rows, std::size_t columns) {
  std::set<std::string> whole;
  for (const auto& row : rows) whole.insert(row.front());
  for (const std::size_t sixths : {4, 3, 2, 5}) {
    std::vector<std::string> names;
    for (const auto& row : rows) names.push_back(without_middle(row.front(), columns, sixths));
    if (std::set<std::string>(names.begin(), names.end()).size() == whole.size()) return names;
  }
  return std::nullopt;
}

// The columns from `begin` on that fit into a line.
std::size_t end_of_line(const Rows& rows, std::size_t begin, std::size_t columns) {
  std::size_t end = begin;
  for (std::size_t wide = 1; end < rows.front().size(); ++end) {
    std::size_t widest = 0;
    for (const auto& row : rows) widest = std::max(widest, columns_of(row[end]));
    if (end > begin && wide + widest > columns) break;
    wide += widest + 2;
  }
  return end;
}

std::string in_several_lines(const Rows& rows, const std::vector<std::size_t>& right,
                             std::size_t columns) {
  std::vector<std::string> texts;
  const auto names = shortened_names(rows, columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    texts.push_back((names ? (*names)[i] : rows[i].front()) + '\n');
  }
  for (std::size_t begin = 1, end = 1; begin < rows.front().size(); begin = end) {
    end = end_of_line(rows, begin, columns);
    Rows some;
    for (const auto& row : rows) {
      some.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(begin),
                        row.begin() + static_cast<std::ptrdiff_t>(end));
    }
    std::vector<std::size_t> to_the_right;
    for (const std::size_t column : right) {
      if (column >= begin && column < end) to_the_right.push_back(column - begin);
    }
    const std::vector<std::string> lines = split(ir::align(some, " ", to_the_right), '\n');
    for (std::size_t i = 0; i < rows.size(); ++i) texts[i] += lines[i] + '\n';
  }
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

}  // namespace

std::string fitted_table(std::vector<std::vector<std::string>> rows,
                         const std::vector<std::size_t>& right, std::size_t columns) {
  const std::string whole = ir::align(rows, "", right);
  const std::size_t wide = widest_line(whole);
  if (columns == 0 || wide <= columns) return whole;
  std::size_t name = 0;
  for (const auto& row : rows) name = std::max(name, columns_of(row.front()));
  std::optional<std::vector<std::string>> names;
  if (name + columns >= wide + kLeastName) names = shortened_names(rows, name + columns - wide);
  if (!names) return in_several_lines(rows, right, columns);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].front() = (*names)[i];
  return ir::align(rows, "", right);
}

}  // namespace autodist::report
