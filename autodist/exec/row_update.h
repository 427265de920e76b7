// Update rules on some rows of a block, as torch.optim applies them to sparse gradients: SGD,
// Adagrad, and SparseAdam for adam. Rows that are not named keep their parameters and their state.

#pragma once

#include <cstddef>

#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/sparse_rows.h"

namespace autodist::exec {

// One update in place. `gradient` holds the rows, `parameters` and `state` the whole block.
// REQUIRES: `state` was made for the rule and the block; ir::trained_by_rows.
void apply_rows(const UpdateStep& update, const RowBlock& block, const Rows& gradient,
                std::byte* parameters, UpdateState& state);

}  // namespace autodist::exec
