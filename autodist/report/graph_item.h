// A graph_item for machines; ir::to_text is for people.

#pragma once

#include <string>

#include "autodist/ir/graph_item.h"

namespace autodist::report {

// One object: totals, ops by kind, variables in order; units in the names. What is not known is
// null.
std::string graph_item_json(const ir::GraphItem& item);

}  // namespace autodist::report
