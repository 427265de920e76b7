// What rings and trees of an all-reduce load, as means over all owners: which rank owns a slice
// hardly matters, since every one of them passes it on.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::program {

struct Relay {
  struct Node {  // slices that cross its card on their way to the owner, per slice of the job
    double sent = 0;
    double received = 0;
    double inside = 0;  // between its own ranks
    // The busiest of its ranks: slices that it sends or gets on their way to the owner, per slice.
    double busiest_across = 0;  // its card
    double busiest_inside = 0;
  };
  std::vector<Node> nodes;  // results come back the same way: sent and received are exchanged
  double summed = 0;        // contributions that a member adds up, per slice
  double hops = 0;          // of the longest way to an owner
};

// Of slices that are spread evenly over `members`, which are ranks of `program`, ascending.
// `node_of_rank` counts below `nodes`. By every route on which members pass on what others send;
// none of fewer than three members.
std::map<Route, Relay> relays_of(const Program& program, const std::vector<std::uint32_t>& members,
                                 const std::vector<std::uint32_t>& node_of_rank, std::size_t nodes);

}  // namespace autodist::program
