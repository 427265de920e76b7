// Placements built in one pass over a graph, by a model of when devices and links are free: HEFT
// (Topcuoglu et al. 2002), ETF (Hwang et al. 1989), and after Baechi (Jeon et al. 2020) m-TOPO,
// m-ETF and an m-SCT-like rule, which respect memory.
//
// The model is coarser than a simulation: a link carries one tensor after the other in the order in
// which they are asked for, a device one task after the other in the order in which it gets them.

#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

inline constexpr std::uint32_t kNoNode = 0xffffffff;  // a node of its own

// What the model knows of a device. Times in the graph's unit.
struct ListDevice {
  bool cpu = false;
  double speed = 1;
  double bytes_per_unit = 7600;  // of its outgoing link
  double memory = kNotSupported;
  double after_op = 0;        // pause after a task of non-zero cost
  double after_transfer = 0;  // pause of the link
  // Devices of one node share its network card; among themselves they have a faster link.
  std::uint32_t node = kNoNode;
  double inside_bytes_per_unit = 0;
};

enum class ListRule : std::uint8_t {
  kTopo,  // fill devices one after the other in topological order, each to its share of the work
  kHeft,  // the largest upward rank first, on the device where it ends first
  kEtf,   // of all ready tasks and devices the pair that can start first
  kSct,   // as kEtf, but a task's favourite child waits for its device (m-SCT-like)
};

struct ListOptions {
  ListRule rule = ListRule::kHeft;
  // Times what communication costs in the ranks and when devices are compared; above 1 keeps
  // neighbours together.
  double caution = 1;
  double noise = 0;  // relative, on ranks and comparisons, drawn from the generator
};

// REQUIRES: a verified graph. Colours are kept: the first task of a colour decides. Memory is kept
// while some device has room, counting each task's own bytes and outputs.
Placement place_by_list(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                        const ListOptions& options, std::mt19937_64& random);

// As HEFT, with these priorities in place of the upward ranks. REQUIRES: one key per task.
Placement place_by_keys(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                        const ListOptions& options, const std::vector<double>& keys);

// Longest path of a task to the end, with average costs and `caution` times the transfers on it.
std::vector<double> upward_ranks(const TaskGraph& graph, const std::vector<ListDevice>& devices,
                                 double caution);

}  // namespace autodist::search::placement
