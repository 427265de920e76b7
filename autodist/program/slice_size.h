// The sizes that program/loads.h takes, of the slices of a Program.

#pragma once

#include <cstdint>
#include <functional>

#include "autodist/program/loads.h"
#include "autodist/program/program.h"

namespace autodist::program {

// Of one slice, in a step of `batch` samples per replica, which touches as many rows of a table as
// it looks up, spread evenly over the table; all of them where an op reads the variable in another
// way.
SliceSize size_of(const Program& program, const Slice& slice, std::int64_t batch);

// Of a whole variable in one slice, in a step of `batch` samples per replica, with the sizes of
// every form that it could travel in.
SliceSize size_of(const ir::Graph& graph, ir::VariableId variable, std::int64_t members,
                  std::int64_t batch);

inline Loads loads_of(const Program& program, const Slice& slice, std::int64_t batch) {
  return loads_of(slice.exchange, size_of(program, slice, batch));
}

// Of one variable at a rank that computes, in a step of `batch` samples per replica.
struct VariableLoads {
  Bytes gradient;   // as the step makes it: all elements, or the rows that it touched
  Bytes staged;     // what leaves the device for it: the gradient, cast or not, or its factors
  Bytes installed;  // results as they are put in place, decoded
  Bytes fetched;    // what was asked for, as it is put in place
};
VariableLoads loads_of(const Program& program, ir::VariableId variable, std::int64_t batch);
// For less, by what its slices carry: contribution, result and fetched are read.
VariableLoads loads_of(const Program& program, ir::VariableId variable,
                       const std::function<Loads(SliceId)>& of_slice);

// All that a library reduces at once, in elements.
LibraryLoads loads_of(const ir::Graph& graph, const Collective& collective);

}  // namespace autodist::program
