#include "autodist/studies/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "autodist/base/clock.h"

namespace autodist::studies {
namespace {

std::string verdict(const Goal& goal, double value) {
  const bool met = goal.at_least ? value >= goal.value : value <= goal.value;
  return met ? "met" : "missed";
}

}  // namespace

double least_cpu_seconds(int runs, const std::function<void()>& work) {
  const ProcessCpuClock clock;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < runs; ++i) {
    const Seconds start = clock.now();
    work();
    least = std::min(least, (clock.now() - start).value);
  }
  return least;
}

std::string milliseconds(Seconds seconds) { return fmt::format("{:.1f}", 1000 * seconds.value); }

double kendall(const std::vector<std::pair<double, double>>& pairs) {
  std::int64_t agreed = 0;
  std::int64_t ordered = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double both = (pairs[i].first - pairs[j].first) * (pairs[i].second - pairs[j].second);
      if (both == 0) continue;
      ++ordered;
      agreed += both > 0 ? 1 : -1;
    }
  }
  return ordered > 0 ? static_cast<double>(agreed) / static_cast<double>(ordered) : 0;
}

std::string goals_table(const std::vector<Goal>& goals, const Figures& figures) {
  std::string text;
  for (const Goal& goal : goals) {
    const auto found = figures.figures.find(goal.name);
    if (found == figures.figures.end()) continue;
    text += fmt::format("{:<28} {:>12.4g}  goal {} {:<8g} {:<7} {}\n", goal.name, found->second,
                        goal.at_least ? ">=" : "<=", goal.value, verdict(goal, found->second),
                        goal.meaning);
  }
  return text;
}

std::string goals_page(const std::vector<Goal>& goals, const Figures& figures) {
  std::string text = "| figure | what | measured | goal | |\n|---|---|---|---|---|\n";
  for (const Goal& goal : goals) {
    const auto found = figures.figures.find(goal.name);
    const char* sign = goal.at_least ? "≥" : "≤";
    if (found == figures.figures.end()) {
      text += fmt::format("| `{}` | {} | not measured | {} {:g} | |\n", goal.name, goal.meaning,
                          sign, goal.value);
      continue;
    }
    text += fmt::format("| `{}` | {} | {:.4g} | {} {:g} | {} |\n", goal.name, goal.meaning,
                        found->second, sign, goal.value, verdict(goal, found->second));
  }
  text += "\nWhat they are made of:\n\n| | |\n|---|---|\n";
  for (const auto& [name, value] : figures.raw) {
    text += fmt::format("| `{}` | {:.4g} |\n", name, value);
  }
  return text;
}

}  // namespace autodist::studies
