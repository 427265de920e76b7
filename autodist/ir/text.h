// Small pieces of text that the readable forms of graphs and programs share.

#pragma once

#include <string>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// "7", "B", "3B+2", "-B-1".
std::string to_string(const Affine& affine);
// "f32[B, 3, 224, 224]", with " strides[…]" where it is not row-major, " offset=…" where it does
// not begin its storage and " sparse" for a sparse one.
std::string to_string(const TensorType& type);
// "fwd", "bwd".
std::string name_of(Phase phase);
// "aten::add.Tensor": an op's name with its overload, where it has one.
std::string full_name(const Op& op);
// What stands behind an op's name: " in features.0"; "" where it is of no module. REQUIRES: in
// range.
std::string in_scope(const Graph& graph, const Op& op);

// The names that people know values by: a variable's, buffer's or constant's own name, "%x" for the
// input x, "%12" for all others. A later version of a named tensor is "running_mean@1".
class Names {
 public:
  explicit Names(const Graph& graph);
  // REQUIRES: in range.
  [[nodiscard]] std::string of(ValueId value) const;
  [[nodiscard]] const Graph& graph() const { return graph_; }

 private:
  const Graph& graph_;
  std::vector<std::string> slots_;  // empty: not named
};

// "%12 = aten::convolution(%x, conv1.weight, none, [2, 2])". An argument that the op writes has a
// "!" before it. With types, "%12: f32[B, 64] = …".
enum class ShowTypes : bool { kNo, kYes };
std::string to_string(const Names& names, const Op& op, ShowTypes types = ShowTypes::kNo);

// "sgd lr=0.1 momentum=0.9": every option.
std::string to_string(const UpdateRule& update);
// What the variables are of, "float32", or the first and "…" where they differ.
std::string precision_of(const Graph& graph);
// Of the longest input with a row of whole numbers per sample, such as words; 0: there is none. The
// types say no more: a row of categories counts as a sequence, too.
std::int64_t sequence_length(const Graph& graph);
// What a throughput is of: "16, float32"; where samples are sequences, "16 sequences of 128,
// float32".
std::string batch_text(const Graph& graph, std::int64_t samples, const std::string& precision);
// "3.40 MFLOP".
std::string flops_text(std::int64_t flops);

// Pads every column but the last of a row to the column's width, two spaces apart; the rows end
// with a line break. Cells in `right` (indices of columns) are aligned to the right.
std::string align(const std::vector<std::vector<std::string>>& rows, const std::string& indent,
                  const std::vector<std::size_t>& right = {});

}  // namespace autodist::ir
