// A table that fits a terminal.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace autodist::report {

// Rows as ir::align() writes them, in at most so many columns (0: any number): first cells that are
// too long lose their middle ("encoder…dense.weight"), and where too little would be left of them,
// or two of them would be the same, a row takes several lines, its other cells below the first one.
// A cell that is too long even so is wider. Cells in `right` (indices of columns) are aligned to
// the right.
std::string fitted_table(std::vector<std::vector<std::string>> rows,
                         const std::vector<std::size_t>& right, std::size_t columns);

}  // namespace autodist::report
