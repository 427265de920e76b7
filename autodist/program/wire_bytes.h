// How many bytes of a slice travel in a step. The report, the simulator and the tests count with
// these, so that they cannot disagree.

#pragma once

#include <cstdint>

#include "autodist/program/program.h"

namespace autodist::program {

// Rows of the slice's table that a step of `batch` samples touches: as many as it looks up, spread
// evenly over the table; fewer where lookups repeat. All of them where an op reads the variable in
// another way. REQUIRES: slice.rows != kNone.
std::int64_t touched_rows(const Program& program, const Slice& slice, std::int64_t batch);

// Between a slice's owner and one other member, in a step of `batch` samples per replica. Payload
// alone: no frame headers, no acknowledgements.
struct SliceBytes {
  Bytes contribution;  // member to owner
  Bytes result;        // owner to member
  Bytes asked;         // member to owner: the numbers of the rows that it wants (kFetch)
  Bytes fetched;       // owner to member: those rows
};
SliceBytes wire_bytes(const Program& program, const Slice& slice, std::int64_t batch);

}  // namespace autodist::program
