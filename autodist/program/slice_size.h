// The sizes that program/loads.h takes, of the slices of a Program.

#pragma once

#include <cstdint>

#include "autodist/program/loads.h"
#include "autodist/program/program.h"

namespace autodist::program {

// In a step of `batch` samples per replica, which touches as many rows of a table as it looks up,
// spread evenly over the table; all of them where an op reads the variable in another way.
SliceSize size_of(const Program& program, const Slice& slice, std::int64_t batch);

// The same of a whole variable in one slice, with the sizes of every form that it could travel in.
SliceSize size_of(const ir::Graph& graph, ir::VariableId variable, std::int64_t members,
                  std::int64_t batch);

inline Loads loads_of(const Program& program, const Slice& slice, std::int64_t batch) {
  return loads_of(slice.exchange, size_of(program, slice, batch));
}

// All that a library reduces at once, in elements.
LibraryLoads loads_of(const ir::Graph& graph, const Collective& collective);

}  // namespace autodist::program
