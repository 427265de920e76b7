// A small job under way, for walks (walk.h): its ranks, what is between them, and what happens when
// an effect is performed.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "autodist/protocol/job.h"
#include "autodist/protocol/rank.h"

namespace autodist::protocol {

// What the chief, rank 0, and the owners of slices say to each other about a snapshot of the
// version: exec/gathering.h does so on bytes.
struct SnapshotNews {
  enum class Kind : std::uint8_t { kWanted, kPiece, kTooLate };
  Kind kind = Kind::kWanted;
  Rank from;
  Step step = 0;
};
// A message on its way: what it is to whoever gets it.
using Message = std::variant<Event, SnapshotNews>;

// What is on its way on one link comes in order.
struct Link {
  std::uint32_t generation = 1;  // of the ranks that sent it
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  bool apart = false;  // of two links between two ranks the one for what others may overtake

  friend bool operator<(const Link& a, const Link& b) {
    return std::tie(a.generation, a.from, a.to, a.apart) <
           std::tie(b.generation, b.from, b.to, b.apart);
  }
};

// Whose pieces of a snapshot are still to come to the chief.
struct SnapshotUnderWay {
  Step step = 0;
  std::set<std::uint32_t> missing;
};

// Copied at every branch of a walk.
struct World {
  // All ranks begin at the version.
  World(const Job& job, Step version);

  Step first;  // the version at which this generation of ranks began
  std::uint32_t generation = 1;
  std::uint32_t losses = 0;  // that may still come
  std::vector<RankProtocol> ranks;
  std::map<Link, std::vector<Message>> links;
  std::vector<std::pair<std::uint32_t, Event>> started;  // as the events that will end it
  std::vector<std::size_t> at;                           // by rank: of its script
  std::vector<bool> sleeps;              // by rank: at something that was closed, until it is woken
  std::vector<bool> told;                // by rank: to stop, or that it need not
  std::vector<std::vector<bool>> reads;  // by rank and variable
  std::vector<Step> owners_version;      // by slice: what its owner's state holds
  std::set<Step> snapshots;              // versions whose pieces have all come; and the start
  std::optional<SnapshotUnderWay> under_way;
  std::map<std::string, int> done;  // what must happen once, how often: "update0.1@4"
};

std::string text_of(const Message& message);

// What is the same in every world of a walk.
struct Setting {
  const program::Program& program;
  const Job& job;                      // the program's
  std::vector<std::uint32_t> servers;  // ranks that do not compute
  std::string broken = {};             // the first law that did not hold
};

// Notes a law that does not hold.
void hold(Setting& setting, bool holds, std::string_view law);

// The event happens at the rank, and everything that its protocol asks for then.
void happen(Setting& setting, World& world, std::uint32_t rank, const Event& event);

}  // namespace autodist::protocol
