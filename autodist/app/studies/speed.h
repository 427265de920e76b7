// How fast the simulator is and how large a cluster it takes: the figures of `bench sim`.

#pragma once

#include <map>
#include <string>

namespace autodist::app {

struct SpeedFigures {
  std::map<std::string, double> figures;  // by the names of docs/benchmarks/simulator.md
  std::map<std::string, double> raw;      // what they are made of
};

// `data`: folder of measured NCCL tables; where it is missing their figures are left out. `quick`
// repeats less.
SpeedFigures measure_simulator(const std::string& data, bool quick);

// The page docs/benchmarks/simulator.md, and what the terminal shows.
std::string speed_page(const SpeedFigures& figures);
std::string speed_table(const SpeedFigures& figures);

}  // namespace autodist::app
