#include "autodist/studies/placement_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/search/placement/generators.h"
#include "autodist/search/placement/placeto_simulator.h"
#include "autodist/search/placement/throughput.h"

namespace autodist::studies {
namespace {

using namespace search::placement;

constexpr std::size_t kDevices = 4;
constexpr std::size_t kPlacements = 64;  // simulated in turn
constexpr std::size_t kMoves = 100'000;
constexpr std::uint64_t kSeed = 2;  // gives graphs of 270, 314 and 300 tasks

DeviceIndex draw_device(std::mt19937_64& random) {
  return static_cast<DeviceIndex>(random() % kDevices);
}

// Full simulations of a step, each of another random placement.
double simulations_per_second(const TaskGraph& graph, int runs) {
  PlacetoSimulator simulator(graph, kDevices);
  std::mt19937_64 random(kSeed);
  std::vector<Placement> placements(kPlacements, Placement(graph.tasks.size()));
  for (Placement& placement : placements) {
    for (auto& device : placement) device = draw_device(random);
  }
  const double seconds = least_cpu_seconds(runs, [&] {
    for (const Placement& placement : placements) simulator.run(placement);
  });
  return kPlacements / seconds;
}

// Loads of a step after one group's move, every fourth of which is taken.
double moves_per_second(const TaskGraph& graph, int runs) {
  const ThroughputProblem problem(graph, alike(kDevices, 0), 1e3);
  struct Move {
    std::uint32_t group;
    DeviceIndex device;
  };
  std::mt19937_64 random(kSeed);
  std::vector<DeviceIndex> start(problem.groups());
  for (DeviceIndex& device : start) device = draw_device(random);
  std::vector<Move> moves(kMoves);
  for (Move& move : moves) {
    move = {static_cast<std::uint32_t>(random() % problem.groups()), draw_device(random)};
  }
  double evaluated = 0;
  double sum = 0;  // used after the loop, so that the compiler leaves nothing out
  const double seconds = least_cpu_seconds(runs, [&] {
    ThroughputState state(problem, start);
    evaluated = 0;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      const Move& move = moves[i];
      if (state.device_of(move.group) == move.device) continue;
      sum += state.after_move(move.group, move.device).to;
      ++evaluated;
      if (i % 4 == 0) state.move(move.group, move.device);
    }
  });
  AD_CHECK(sum > 0) << "loads of " << sum;
  return evaluated / seconds;
}

const std::vector<Goal>& placement_goals() {
  static const std::vector<Goal> all{
      {"simulations_per_s", "full simulations of a step in Placeto's mode, the slowest family's",
       true, 2e4},
      {"moves_per_s", "incremental evaluations for the throughput objective, likewise", true, 1e6},
  };
  return all;
}

}  // namespace

Figures measure_placement(bool quick) {
  const int runs = quick ? 3 : 15;
  Figures result;
  double simulations = std::numeric_limits<double>::infinity();
  double moves = std::numeric_limits<double>::infinity();
  for (const std::string& family : families()) {
    const TaskGraph graph = generate(family, kSeed);
    const double simulated = simulations_per_second(graph, runs);
    const double moved = moves_per_second(graph, runs);
    result.raw[family + "_tasks"] = static_cast<double>(graph.tasks.size());
    result.raw[family + "_simulations_per_s"] = simulated;
    result.raw[family + "_moves_per_s"] = moved;
    simulations = std::min(simulations, simulated);
    moves = std::min(moves, moved);
  }
  result.figures["simulations_per_s"] = simulations;
  result.figures["moves_per_s"] = moves;
  return result;
}

std::string placement_speed_table(const Figures& figures) {
  return goals_table(placement_goals(), figures);
}

std::string placement_speed_page(const Figures& figures) {
  return fmt::format(
      "# How fast placements are evaluated\n\nWritten by `autodist bench place -o "
      "docs/benchmarks/placement-speed.md`. Graphs as `autodist place generated:FAMILY:2` makes "
      "them, {} devices, random placements. Times are of the process's CPU, one thread, the least "
      "of several runs: others on the machine only add.\n\n{}",
      kDevices, goals_page(placement_goals(), figures));
}

}  // namespace autodist::studies
