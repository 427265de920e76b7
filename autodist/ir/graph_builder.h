// Writes a Graph by hand, op by op, in the order of execution: for tests, for examples and for
// readers of foreign formats. It keeps the ids, versions and slots right and computes what follows
// from the ops, so that finish() always returns a graph that verify() accepts.
//
//   GraphBuilder step("linear");
//   const ValueId x = step.input("x", contiguous({batch(), 8}));
//   const ValueId w = step.variable("w", contiguous({4, 8}));
//   const ValueId w_t = step.view("aten::t", w, contiguous({8, 4}));
//   const ValueId y = step.op("aten::mm", {x, w_t}, contiguous({batch(), 4}));
//   step.output(step.op("aten::mean", {y}, contiguous({})));
//   step.backward();
//   …
//   step.gradient(w, dw);
//   const Graph graph = step.finish();

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "autodist/ir/graph.h"

namespace autodist::ir {

// per_sample * B: a dimension that is the batch.
inline Affine batch(std::int64_t per_sample = 1) { return {per_sample, 0}; }

// A size or a list of sizes: a plain integer does not depend on the batch.
struct Size {
  Affine affine;
  Size(std::int64_t constant) : affine{0, constant} {}  // NOLINT: lists of sizes read as numbers
  Size(Affine a) : affine(a) {}                         // NOLINT
};

// A dense row-major tensor. REQUIRES: at most one size depends on the batch.
TensorType contiguous(std::initializer_list<Size> sizes, DType dtype = DType::kFloat32);
TensorType contiguous(const std::vector<Affine>& sizes, DType dtype = DType::kFloat32);

// What an op does besides reading its arguments and making its results.
struct Effects {
  std::vector<std::uint32_t> writes;  // indices of arguments
  bool random = false;
  Cost cost;
  Affine flops;
  Affine bytes_moved;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name, std::int64_t example_batch = 1);

  // Tensors that exist before the step.
  ValueId input(std::string name, TensorType type, bool batched = true);
  ValueId variable(std::string name, TensorType type, UpdateRule update = {});
  ValueId buffer(std::string name, TensorType type);
  // `bytes` are its contents, or empty for a named (frozen) one.
  ValueId constant(std::string name, TensorType type, std::string bytes = {});

  // What the following ops belong to; forward and the scope "" at first.
  void scope(const std::string& name);
  void forward() { phase_ = Phase::kForward; }
  void backward() { phase_ = Phase::kBackward; }

  // An op that makes one new tensor, or several.
  ValueId op(const std::string& name, std::vector<Argument> arguments, TensorType result,
             const Effects& effects = {});
  std::vector<ValueId> op(const std::string& name, std::vector<Argument> arguments,
                          std::vector<TensorType> results, const Effects& effects = {});
  // An op whose result is another view of the storage of `base`, its first argument.
  ValueId view(const std::string& name, ValueId base, TensorType result,
               const std::vector<Argument>& further = {}, const Cost& cost = {});
  // An op that writes its first argument and returns it: "aten::add_".
  ValueId in_place(const std::string& name, std::vector<Argument> arguments, Effects effects = {});

  // The view that `value` is, after all writes so far. Arguments are taken as current() by
  // themselves: a value from before a write stands for its storage's present version.
  ValueId current(ValueId value);

  // REQUIRES: `variable` came from variable().
  void gradient(ValueId variable, ValueId gradient, bool sparse = false);
  void output(ValueId value);

  // The graph as it stands, analysed and verified; the builder may go on. Peak memory is the sum of
  // all storages. Throws as verify() does.
  [[nodiscard]] Graph finish();

 private:
  ValueId add_storage(StorageKind kind, TensorType type);
  ValueId add_value(StorageId storage, SlotId slot, TensorType type);
  Op& add_op(const std::string& name, std::vector<Argument> arguments, const Effects& effects);

  Graph graph_;
  Phase phase_ = Phase::kForward;
  ScopeId scope_;
  std::vector<std::uint32_t> versions_;  // per storage
};

}  // namespace autodist::ir
