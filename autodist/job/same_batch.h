// Whether the ranks give a step the same batch, told from sums over ranks, which every step has
// anyway.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace autodist::job {

// What a rank adds to a step's sums for a batch with this digest.
std::vector<double> batch_numbers(std::uint64_t digest);

// That the batches of a step differ, as a line; "" where they are the same. `sums`: of the
// batch_numbers() of up to 2^15 ranks, or more numbers, of which these are the last; too few where
// no rank has told of a batch. One of 65,536 other batches is taken for the same.
std::string other_batch_line(std::int64_t step, const std::vector<double>& sums);

}  // namespace autodist::job
