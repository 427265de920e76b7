// A job under one Program, settled between two steps, becomes the same job under another: which
// pieces of its state go from where to where.
//
// A checkpoint is the same with files at one end: to write one, the chief gathers what it has not
// (gathering()); to read one, every rank takes its part of whole tensors.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/units.h"
#include "autodist/program/program.h"
#include "autodist/program/state.h"

namespace autodist::program {

// Elements of a state of one variable that a rank gets from another.
struct Move {
  State state = State::kParameters;
  ir::VariableId variable;
  Rank from;
  Rank to;
  std::vector<Stretch> stretches;  // ascending, with gaps between them
};
std::int64_t element_count(const Move& move);
// How many bytes a move is. What an update rule keeps of an element exec alone knows
// (exec/state_bytes.h).
using BytesOfMove = std::function<Bytes(const Move& move)>;

struct Transition {
  std::vector<Move> moves;  // what the first gates wait for comes first
  // Of what compression owes of these some has no place in the new Program, and is dropped.
  std::vector<ir::VariableId> forgotten;
};

// From `from` to `to`, of one graph and over the same ranks. Of several ranks that have a piece the
// one on the same node gives it, else they take turns. Throws Error(kInfeasible) for other ranks,
// another graph, and placed graphs.
Transition transition(const Program& from, const Program& to);

// All of one state to one rank, from the first that has it.
Transition gathering(const Program& program, State state, Rank to);

// Throws InternalError: a piece that `to` needs is neither there nor comes; it comes twice, or to a
// rank that has it; or from a rank that has it not.
void verify(const Transition& transition, const Program& from, const Program& to);

// What each pair of ranks has to move, from the first to the second.
std::map<std::pair<Rank, Rank>, Bytes> bytes_between(const Transition& transition,
                                                     const BytesOfMove& bytes_of);

// A line per move, "rule fc1.weight 0 -> 1: [0, 20) [40, 60)", then one per variable of which what
// is owed is dropped.
std::string to_text(const Transition& transition, const Program& program);

}  // namespace autodist::program
