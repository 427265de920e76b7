// What a job keeps from one step to the next, and which ranks have which elements of it. Whoever
// saves it, loads it or moves it to another plan (program/transition.h) asks here.
//
// Beside what stands here, a rank keeps what is its own and stays where it is: the buffers of its
// replica, the factors of a library's codec, and the loss scale, which is the same at every rank.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodist/program/program.h"

namespace autodist::program {

enum class State : std::uint8_t {
  kParameters,   // of the newest version
  kRule,         // what an update rule keeps of each element: moments, momentum
  kOwed,         // what compression has kept back of a rank's own gradients: every rank another
  kOwedAverage,  // what it has kept back of the averages, at whoever makes them
};
inline constexpr State kStates[] = {State::kParameters, State::kRule, State::kOwed,
                                    State::kOwedAverage};
std::string name_of(State state);  // "parameters", "rule", "owed", "owed_average"

// Elements [begin, end) of a variable in row-major order.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const Stretch& a, const Stretch& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Some elements of one variable, and the ranks that have them.
struct Holding {
  ir::VariableId variable;
  std::vector<Stretch> stretches;  // ascending, with gaps between them
  std::vector<Rank> ranks;         // ascending, not empty
};

// Of a slice between two steps, ascending; none where it has no such state.
std::vector<Rank> holders_of(const Slice& slice, State state);

// Between two steps, when all ranks have all that the steps before made. Nothing is named twice;
// what no rank has is left out.
std::vector<Holding> held_in(const Program& program, State state);
// What must be where before the next step can begin; nothing is named twice.
std::vector<Holding> needed_in(const Program& program, State state);

// Whether members of a slice keep back what compression loses, and whether its owner does: of an
// average only a cast loses something; what top-k contributions add up to leaves whole.
bool feeds_back(const Slice& slice);
bool loses_averages(const Slice& slice);

}  // namespace autodist::program
