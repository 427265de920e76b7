#include "autodist/report/alike_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace autodist::report {
namespace {

std::vector<std::string> letters_and_numbers(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit == (parts.size() % 2 == 1)) parts.emplace_back();
    parts.back() += c;
  }
  return parts;
}

}  // namespace

void AlikeRows::add(std::vector<std::string> row) {
  const std::vector<std::string> parts = letters_and_numbers(row.front());
  std::vector<std::string> cells(row.begin() + 1, row.end());
  const bool known = most_ != 0 && std::any_of(alike_.begin(), alike_.end(), [&](Alike& each) {
                       return join(parts, cells, each);
                     });
  if (known) return;
  Alike& alone = alike_.emplace_back();
  for (const std::string& part : parts) alone.name.push_back({part});
  alone.cells = std::move(cells);
}

bool AlikeRows::join(const std::vector<std::string>& parts, const std::vector<std::string>& cells,
                     Alike& with) {
  if (with.cells != cells || with.name.size() != parts.size()) return false;
  for (std::size_t i = 0; i < parts.size(); i += 2) {
    if (with.name[i].front() != parts[i]) return false;
  }
  for (std::size_t i = 1; i < parts.size(); i += 2) {
    std::vector<std::string>& numbers = with.name[i];
    if (std::find(numbers.begin(), numbers.end(), parts[i]) == numbers.end()) {
      numbers.push_back(parts[i]);
    }
  }
  ++with.count;
  return true;
}

// Numbers are listed where they are few, and all that can be made of them is there.
std::string AlikeRows::name_of(const Alike& alike) {
  constexpr std::size_t kFew = 4;
  std::size_t made = 1;
  for (const std::vector<std::string>& part : alike.name) made *= part.size();
  std::string text;
  for (const std::vector<std::string>& part : alike.name) {
    if (part.size() == 1) {
      text += part.front();
    } else {
      const bool listed = part.size() <= kFew && made == alike.count;
      text += listed ? fmt::format("{{{}}}", fmt::join(part, ",")) : "*";
    }
  }
  return alike.count == 1 ? text : fmt::format("{} ×{}", text, alike.count);
}

std::vector<std::vector<std::string>> AlikeRows::shown() const {
  std::vector<std::vector<std::string>> rows;
  for (const Alike& each : alike_) {
    if (most_ != 0 && rows.size() == most_) break;
    rows.push_back(each.cells);
    rows.back().insert(rows.back().begin(), name_of(each));
  }
  return rows;
}

std::size_t AlikeRows::hidden() const {
  std::size_t hidden = 0;
  for (std::size_t i = most_; most_ != 0 && i < alike_.size(); ++i) hidden += alike_[i].count;
  return hidden;
}

}  // namespace autodist::report
