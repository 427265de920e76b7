// Variables of which a step touches few rows: embeddings. What must hold so that only those rows
// travel.

#pragma once

#include <optional>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// Whether the variable is trained row by row: its gradient is sparse, and its rule leaves every row
// alone that the gradient does not name. SGD, Adagrad, and Adam, which on rows is
// torch.optim.SparseAdam: moments of rows that a step does not touch stand still. The other rules
// move all rows at every step; for them the gradient is made dense.
bool trained_by_rows(const Variable& variable);

// The values that hold the numbers of all rows that a step reads of the variable, where each read
// is a look-up of rows (aten::embedding) whose numbers are known before the first of them. Nothing
// where some op reads it in another way, or the numbers depend on what was looked up.
std::optional<std::vector<ValueId>> rows_read(const Graph& graph, VariableId variable);

}  // namespace autodist::ir
