// Names by which a user asks for values of a step: "loss", "fc1.weight.grad", "features.0" (what
// the layer with these parameters made).

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

inline constexpr const char* kLossName = "loss";

// Of the tensor "features.0.weight": "features.0"; "" of one that is of no module.
std::string module_of(const std::string& tensor);

// What a name stands for: the gradient of a variable, or a value and the op after which it is
// there.
struct WatchedValue {
  std::optional<VariableId> gradient;
  ValueId value;
  OpId after;
  bool batched = false;  // its first dimension is the batch
};

// Whether its first dimension is the batch; where the graph's batch is fixed, whether it is as
// long.
bool is_batched(const Graph& graph, ValueId value);

// Nothing for names that the graph does not know; "loss" is none of them. A module's value is what
// the last forward op made that reads parameters or buffers of it, or of the modules in it: a
// layer's own result, without what is done with it outside. Of several calls that of the last.
std::optional<WatchedValue> find_watched(const Graph& graph, const std::string& name);

// All that find_watched() knows.
std::vector<std::string> watchable_names(const Graph& graph);

}  // namespace autodist::ir
