// Update rules on some rows of a block, as torch.optim applies them to sparse gradients: SGD,
// Adagrad, and SparseAdam for adam. Rows that are not named keep their parameters and their state.

#pragma once

#include <cstddef>
#include <cstdint>

#include "autodist/exec/optimizer_kernels.h"
#include "autodist/exec/sparse_rows.h"

namespace autodist::exec {

// One update in place. `gradient` holds the rows, `parameters` and `state` the whole block. The
// other arguments and what is required of them: apply(). REQUIRES: ir::trained_by_rows.
void apply_rows(const ir::UpdateRule& rule, double lr_factor, std::int64_t step,
                const RowBlock& block, const Rows& gradient, std::byte* parameters,
                UpdateState& state);

}  // namespace autodist::exec
