// In which order a placer visits the tasks of a graph: the seven orders of Wang, Payberah, Hagos
// and Vlassov (arXiv 2201.09676), exactly as Placeto's code with NetworkX gives them.

#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "autodist/search/placement/task_graph.h"

namespace autodist::search::placement {

enum class Order : std::uint8_t {
  kAlpha,         // sorted names
  kTopo,          // Kahn's algorithm with a stack: the newest task without open parents
  kReversedTopo,  // that one backwards
  kLexicoTopo,    // Kahn's algorithm, the least name first
  kDfsPreorder,   // depth first from every task in the order of the file
  kDfsPostorder,
  kBfs,    // breadth first from every source in the order of names
  kRandom  // a permutation drawn from the generator
};

inline constexpr Order kAllOrders[] = {
    Order::kAlpha,       Order::kTopo,         Order::kReversedTopo, Order::kLexicoTopo,
    Order::kDfsPreorder, Order::kDfsPostorder, Order::kBfs,          Order::kRandom};

// "lexico_topo"
std::string to_string(Order order);

// Throws Error(kUsage) with the nearest known name.
Order parse_order(const std::string& name);

// Each task's place among the sorted names.
std::vector<std::uint32_t> ranks_by_name(const TaskGraph& graph);

// All tasks, each once. `random` is read by kRandom alone. REQUIRES: a verified graph.
std::vector<std::uint32_t> traversal(const TaskGraph& graph, Order order, std::mt19937_64& random);

}  // namespace autodist::search::placement
