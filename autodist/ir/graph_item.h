// AutoDist's graph_item: a TensorFlow graph, the variables that it trains and their gradients
// (docs/formats/graph_item.md). Read for what planning needs: AutoDist's strategies and data sets
// name its variables.
//
// The reader passes over what it does not know and makes do with what is there; only bytes that are
// no graph_item, or sizes that cannot be, are refused.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/dtype.h"
#include "autodist/base/units.h"
#include "autodist/ir/graph.h"

namespace autodist::ir {

// An op of TensorFlow's graph.
struct ItemNode {
  std::string name;
  std::string op;                   // its kind: "MatMul"
  std::vector<std::string> inputs;  // "x", "x:1", "^x" (control)
  std::string device;

  friend bool operator==(const ItemNode&, const ItemNode&);
};

struct ItemVariable {
  std::string name;  // "dense/kernel": without the ":0" of the file
  // Nothing where no op of the graph says it, or where it is none of ours (strings, say).
  std::optional<DType> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  bool trainable = false;

  friend bool operator==(const ItemVariable&, const ItemVariable&);
};

// Which tensors are the gradient of a variable.
struct ItemGradient {
  std::vector<std::string> tensors;  // one; of a sparse one its indices, values and dense shape
  std::string target;                // the variable's name, without ":0"

  [[nodiscard]] bool sparse() const { return tensors.size() == 3; }
  friend bool operator==(const ItemGradient&, const ItemGradient&);
};

struct GraphItem {
  std::vector<ItemNode> nodes;
  std::vector<ItemVariable> variables;  // in the order of the file, distinct names
  std::vector<ItemGradient> gradients;  // in the order of their tensors' names
  std::vector<std::string> table_initializers;

  friend bool operator==(const GraphItem&, const GraphItem&);
};

// Raw protobuf, as AutoDist writes it. What is read from it is the same item. Of the ops'
// attributes it holds the variables' dtypes and shapes alone, and no savers: enough for any
// planner, not enough for TensorFlow to run. REQUIRES: the dtype and shape of a variable are those
// of its op, see add_variable.
std::string serialize(const GraphItem& item);

// `where` names the source in messages. Throws Error(kUsage) for bytes that are no graph_item, are
// damaged, or hold a variable of more than 2^48 elements.
GraphItem deserialize_graph_item(const std::string& bytes, const std::string& where);

GraphItem read_graph_item(const std::string& path);
void write_graph_item(const std::string& path, const GraphItem& item);

// Whether these bytes are one, rather than a strategy or anything else; damaged ones may be.
bool looks_like_graph_item(const std::string& bytes);

// Adds the variable and the VarHandleOp that holds its dtype and shape.
void add_variable(GraphItem& item, ItemVariable variable);

// The pair that names each variable, where there is one (the first, where there are several). The
// item owns them.
std::map<std::string, const ItemGradient*> gradients_by_variable(const GraphItem& item);

// 0 where the dtype or the shape is not known.
Bytes bytes_of(const ItemVariable& variable);

// How many ops there are of each kind: most frequent first, equals by name.
std::vector<std::pair<std::string, std::size_t>> ops_by_kind(const GraphItem& item);

// For people: totals, ops by kind (at most `most_kinds`; 0: all), the variables in order.
std::string to_text(const GraphItem& item, std::size_t most_kinds);

// A step that stands for the item where a plan is made: its trainable variables in order, with
// sizes and sparse flags, each read by one op and its gradient made by one, in the opposite order;
// the other variables are buffers. It has no costs, and no libtorch can execute it. Where the item
// pairs no gradient with any variable, each trainable one has a dense gradient. Throws
// Error(kUsage), prefixed with `where`, where none is trainable, one has no dtype or shape, or all
// together have more than 2^60 bytes.
Graph variables_of(const GraphItem& item, const std::string& where);

}  // namespace autodist::ir
