#include "autodist/report/html/run_log.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "autodist/base/error.h"
#include "autodist/base/text.h"

namespace autodist::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kPlan = "plan";
constexpr std::size_t kLongestPlan = 160;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::string& line : split(text, '\n')) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

// A cell may stand in quotes, which are doubled inside of it.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  while (in.peek() != std::istringstream::traits_type::eof()) {
    std::string cell;
    if (in.peek() == '"') in >> std::quoted(cell, '"', '"');
    std::string rest;
    std::getline(in, rest, ',');
    cells.push_back(cell + rest);
  }
  return cells;
}

double number_of(const std::string& cell) {
  std::size_t used = 0;
  try {
    const double value = std::stod(cell, &used);
    return used == cell.size() ? value : kNone;
  } catch (const std::exception&) {
    return kNone;
  }
}

// A value of each name, in the order of the names; a name that is new gets a column.
std::vector<double> values_of(const Json& row, RunLog& log) {
  std::vector<double> values(log.names.size(), kNone);
  for (const auto& [name, value] : row.items()) {
    if (name == "step" || !(value.is_number() || value.is_null())) continue;
    auto found = std::find(log.names.begin(), log.names.end(), name);
    if (found == log.names.end()) {
      log.names.push_back(name);
      log.columns.emplace_back(log.steps.size(), kNone);
      values.push_back(kNone);
      found = log.names.end() - 1;
    }
    if (value.is_number()) {
      values[static_cast<std::size_t>(found - log.names.begin())] = value.get<double>();
    }
  }
  return values;
}

RunLog parse_json_lines(const std::vector<std::string>& lines, const std::string& where) {
  RunLog log;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json row = Json::parse(lines[i], nullptr, false);
    const bool cut = row.is_discarded() && i + 1 == lines.size() && i > 0;
    if (cut) break;
    if (!row.is_object() || !row.contains("step") || !row.at("step").is_number_integer()) {
      fail(ErrorCode::kUsage,
           "{}, line {}: a JSON object with an integer \"step\" expected, as `train --log` writes",
           where, i + 1);
    }
    const std::vector<double> values = values_of(row, log);
    const auto plan = row.find(kPlan);
    const bool is_named = plan != row.end() && plan->is_string();
    log.add(row.at("step").get<std::int64_t>(), values,
            is_named ? plan->get<std::string>().substr(0, kLongestPlan) : "");
  }
  return log;
}

RunLog parse_csv(const std::vector<std::string>& lines, const std::string& where) {
  const std::vector<std::string> head = cells_of(lines.front());
  const bool has_plan = head.size() > 1 && head.back() == kPlan;
  RunLog log(std::vector<std::string>(head.begin() + 1, head.end() - (has_plan ? 1 : 0)));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = cells_of(lines[i]);
    if (cells.size() != head.size()) {
      if (i + 1 == lines.size() && i > 1) break;  // cut short
      fail(ErrorCode::kUsage,
           "{}, line {}: {} fields, {} expected as in the head. Mend the line, or leave it out.",
           where, i + 1, cells.size(), head.size());
    }
    const double step = number_of(cells.front());
    if (!(std::abs(step) < 1e15)) {
      fail(ErrorCode::kUsage,
           "{}, line {}: '{}' is no step, a whole number expected. Mend the line, or leave it out.",
           where, i + 1, cells.front());
    }
    std::vector<double> values;
    for (std::size_t cell = 1; cell <= log.names.size(); ++cell) {
      values.push_back(number_of(cells[cell]));
    }
    log.add(static_cast<std::int64_t>(step), values,
            has_plan ? cells.back().substr(0, kLongestPlan) : "");
  }
  return log;
}

// Indices of a stretch [begin, end) that have to stay.
void keep_extremes(const std::vector<double>& column, std::size_t begin, std::size_t end,
                   std::set<std::size_t>& kept) {
  std::size_t least = end;
  std::size_t most = end;
  bool missing = false;
  for (std::size_t i = begin; i < end; ++i) {
    if (std::isnan(column[i])) {
      if (!std::exchange(missing, true)) kept.insert(i);  // one shows that there are some
      continue;
    }
    if (least == end || column[i] < column[least]) least = i;
    if (most == end || column[i] > column[most]) most = i;
  }
  if (least == end) return;
  kept.insert(least);
  kept.insert(most);
}

}  // namespace

void RunLog::add(std::int64_t step, const std::vector<double>& values, const std::string& plan) {
  const auto from = std::lower_bound(steps.begin(), steps.end(), step) - steps.begin();
  overwritten += static_cast<std::int64_t>(steps.size()) - from;
  steps.resize(static_cast<std::size_t>(from));
  steps.push_back(step);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i].resize(static_cast<std::size_t>(from));
    columns[i].push_back(i < values.size() ? values[i] : kNone);
  }
  const auto known = std::find(plans.begin(), plans.end(), plan);
  plan_of.resize(static_cast<std::size_t>(from));
  plan_of.push_back(static_cast<std::size_t>(known - plans.begin()));
  if (known == plans.end()) plans.push_back(plan);
}

RunLog parse_run_log(const std::string& text, const std::string& where) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) fail(ErrorCode::kUsage, "{}: empty, a log of `train --log` expected", where);
  const bool is_json = lines.front().front() == '{';
  if (!is_json && lines.front().rfind("step,", 0) != 0) {
    fail(ErrorCode::kUsage,
         "{}: JSON lines or CSV with a head that begins with 'step' expected, as `train --log` "
         "writes",
         where);
  }
  RunLog log = is_json ? parse_json_lines(lines, where) : parse_csv(lines, where);
  if (log.steps.empty()) {
    fail(ErrorCode::kUsage, "{}: a log without a step. Train one step at least.", where);
  }
  const auto has_number = [](const std::vector<double>& column) {
    return std::any_of(column.begin(), column.end(),
                       [](double each) { return std::isfinite(each); });
  };
  if (std::none_of(log.columns.begin(), log.columns.end(), has_number)) {
    fail(ErrorCode::kUsage, "{}: a log without a number but its steps. Give one of `train --log`.",
         where);
  }
  return log;
}

RunLog thinned(const RunLog& log, std::size_t most) {
  if (log.steps.size() <= most) return log;
  std::vector<std::vector<double>> looked_at = log.columns;
  if (log.plans.size() > 1) looked_at.emplace_back(log.plan_of.begin(), log.plan_of.end());
  const std::size_t per_stretch = 3 * std::max<std::size_t>(1, looked_at.size());
  const std::size_t stretches = std::max<std::size_t>(1, most / per_stretch);
  std::set<std::size_t> kept{0, log.steps.size() - 1};
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * log.steps.size() / stretches;
    const std::size_t end = (i + 1) * log.steps.size() / stretches;
    for (const std::vector<double>& column : looked_at) keep_extremes(column, begin, end, kept);
  }
  RunLog result(log.names);
  result.overwritten = log.overwritten;
  for (const std::size_t i : kept) {
    std::vector<double> values;
    for (const std::vector<double>& column : log.columns) values.push_back(column[i]);
    result.add(log.steps[i], values, log.plans[log.plan_of[i]]);
  }
  return result;
}

}  // namespace autodist::report
