// Walks through every order in which the events of a small job can happen, and holds the laws of
// the protocol against each.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "autodist/program/program.h"
#include "autodist/protocol/events.h"

namespace autodist::protocol {

struct WalkOptions {
  Step steps = 2;
  bool fetches = false;                                     // rows are asked for
  std::set<std::pair<std::uint32_t, Step>> overflows = {};  // whose gradients are not finite
  // All ranks are told to stop after so many steps, each at any time before it begins the next.
  // Without `fetches` and `snapshots`.
  std::optional<Step> stop = {};

  // How often all ranks are lost: at any time. Then they begin again as another generation, from
  // any snapshot that is complete, and what is on its way stays so. `takes` says whether a rank
  // takes what one of another generation has sent; without it ranks take everything.
  std::uint32_t losses = 0;
  std::function<bool(std::uint32_t sent_by, std::uint32_t rank)> takes = {};
  // The chief, rank 0, gathers a snapshot before each step but the first: once its variables are
  // settled it asks the owners for their state, ahead of what it contributes to the step.
  bool snapshots = false;
  // A connection that breaks may deliver the question at any later time; and whether an owner
  // compares its version with the one that it is asked for, and refuses.
  bool late_questions = false;
  bool owners_compare = true;
};

struct Walked {
  std::string broken;  // the first law that did not hold: there the walk ends
  std::size_t ends = 0;
  std::size_t states = 0;
  std::map<std::string, int> done;  // World::done of the last end
  // With losses: how many messages were on their way that ranks which begin again do not take, over
  // all states, and the versions from which they begin.
  std::size_t refused = 0;
  std::set<Step> begun_again;
};

Walked walk(const program::Program& program, const WalkOptions& options);

}  // namespace autodist::protocol
