// What the benchmarks of `autodist bench NAME` share.

#pragma once

#include <string>
#include <vector>

#include "autodist/app/cli/program.h"

namespace autodist::app {

struct BenchArguments {
  std::string name;
  bool quick = false;
  // What a process that the benchmark starts measures: it prints one number.
  std::string probe;
  std::string probe_model;
};

int bench_capture(const BenchArguments& arguments, Console& console);
int bench_staleness(const BenchArguments& arguments, Console& console);

// A probe of this benchmark in a process of its own. Throws Error(kUsage) where it fails.
double run_probe(const BenchArguments& arguments, const std::string& probe,
                 const std::string& model);

double median(std::vector<double> values);

}  // namespace autodist::app
