// Figures of a benchmark against their goals, as a page and as the terminal shows them.

#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/units.h"

namespace autodist::studies {

struct Figures {
  std::map<std::string, double> figures;  // by the names of their goals
  std::map<std::string, double> raw;      // what they are made of
};

struct Goal {
  const char* name;
  const char* meaning;
  bool at_least;  // else at most
  double value;
};

// Of this process's CPU, whatever else the machine does: the least of `runs` runs, in seconds, for
// others on the machine only add.
double least_cpu_seconds(int runs, const std::function<void()>& work);

// Kendall's rank correlation of the pairs' two sides; pairs that tie on a side are left out. 0
// where nothing is ordered.
double kendall(const std::vector<std::pair<double, double>>& pairs);

// 0.0123 s as "12.3", for tables.
std::string milliseconds(Seconds seconds);

// One line per goal that has a figure.
std::string goals_table(const std::vector<Goal>& goals, const Figures& figures);
// Markdown: every goal, then what the figures are made of.
std::string goals_page(const std::vector<Goal>& goals, const Figures& figures);

}  // namespace autodist::studies
