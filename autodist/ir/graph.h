// A Graph is one training step: forward and backward ops, the values between them, the variables
// they train and how each is updated. Captured once; it knows no strategy and no cluster.
//
// Plain data. Build it with capture, read it from a file (graph_file.h), check it with verify().
//
// The batch is symbolic: every integer that depends on it is an Affine a*B + c, so that one capture
// serves replicas of any batch size. A graph whose step is not affine in the batch is batch-fixed
// and says why (batch_fixed_reason).

#pragma once

#include <complex>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "autodist/base/digest.h"
#include "autodist/base/dtype.h"
#include "autodist/base/id.h"
#include "autodist/base/units.h"
#include "autodist/ir/optimizer.h"

namespace autodist::ir {

using StorageId = Id<struct StorageTag>;
using ValueId = Id<struct ValueTag>;
using OpId = Id<struct OpTag>;
using VariableId = Id<struct VariableTag>;
using ScopeId = Id<struct ScopeTag>;
using SlotId = Id<struct SlotTag>;

// per_sample * B + constant, for a batch of B samples.
struct Affine {
  std::int64_t per_sample = 0;
  std::int64_t constant = 0;

  [[nodiscard]] std::int64_t at(std::int64_t batch) const { return per_sample * batch + constant; }
  friend bool operator==(const Affine& a, const Affine& b) {
    return a.per_sample == b.per_sample && a.constant == b.constant;
  }
};

// A real number that depends on the batch: numerator / denominator as doubles, 1 / B say.
struct Quotient {
  Affine numerator;
  Affine denominator;

  [[nodiscard]] double at(std::int64_t batch) const {
    return static_cast<double>(numerator.at(batch)) / static_cast<double>(denominator.at(batch));
  }
  friend bool operator==(const Quotient& a, const Quotient& b) {
    return a.numerator == b.numerator && a.denominator == b.denominator;
  }
};

enum class Layout : std::uint8_t { kStrided, kSparseCoo };

struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<Affine> sizes;
  std::vector<Affine> strides;  // in elements; empty for sparse
  Affine offset;                // into the storage, in elements
  Layout layout = Layout::kStrided;

  friend bool operator==(const TensorType&, const TensorType&);
};

enum class StorageKind : std::uint8_t { kIntermediate, kInput, kVariable, kBuffer, kConstant };

// A piece of memory. Views of one base share it.
struct Storage {
  StorageKind kind = StorageKind::kIntermediate;
  Affine bytes;

  friend bool operator==(const Storage&, const Storage&);
};

// A value is (storage, version, view): an op that writes in place makes a new version of the
// storage and thereby new values. `slot` is (storage, view) alone: what an executor keeps a tensor
// handle for; all versions of one view share it.
struct Value {
  StorageId storage;
  std::uint32_t version = 0;
  SlotId slot;
  TensorType type;

  friend bool operator==(const Value&, const Value&);
};

// Arguments of an op, in the order of its schema. An Affine is an integer; a number where the
// schema wants a tensor is a number that takes no part in type promotion (libtorch's "wrapped
// number").
struct None {
  friend bool operator==(None, None) { return true; }
};
struct RankDevice {  // the device that the rank computes on
  friend bool operator==(RankDevice, RankDevice) { return true; }
};
struct HostDevice {  // the CPU, whatever the rank computes on
  friend bool operator==(HostDevice, HostDevice) { return true; }
};
struct RankGenerator {  // the rank's random generator, seeded anew at every step
  friend bool operator==(RankGenerator, RankGenerator) { return true; }
};
using Values = std::vector<std::optional<ValueId>>;
using Argument =
    std::variant<None, ValueId, Values, Affine, double, bool, std::string, std::vector<Affine>,
                 std::vector<double>, std::vector<bool>, RankDevice, HostDevice, RankGenerator,
                 Quotient, std::complex<double>>;

// None: not a tensor (or an undefined one); nothing reads it.
using Result = std::variant<None, ValueId, Values>;

enum class Phase : std::uint8_t { kForward, kBackward };

// What an op takes where it was captured: fixed + per_sample * B seconds.
struct Cost {
  Seconds fixed;
  Seconds per_sample;
  Affine scratch{};  // bytes that its kernel allocates beside its results, at their highest

  [[nodiscard]] Seconds at(std::int64_t batch) const {
    return fixed + per_sample * static_cast<double>(batch);
  }
  friend bool operator==(const Cost&, const Cost&);
};

struct Op {
  std::string name;      // "aten::convolution"
  std::string overload;  // "" or "Tensor"
  std::vector<Argument> arguments;
  std::vector<Result> results;
  // Indices of arguments that the op writes: declared by its schema or by capture's own table.
  std::vector<std::uint32_t> writes;
  bool random = false;  // draws from a generator; ordered among its like
  Phase phase = Phase::kForward;
  ScopeId scope;
  Cost cost;           // measured at the chief; not part of the digest
  Affine flops;        // multiply and add count as two; 0 where no formula is known
  Affine bytes_moved;  // read plus written, by formula

  friend bool operator==(const Op&, const Op&);
};

struct Input {
  std::string name;
  ValueId value;
  bool batched = true;  // the first dimension is the batch; others go whole to every replica

  friend bool operator==(const Input&, const Input&);
};

// A trained parameter.
struct Variable {
  std::string name;                  // the first of its names
  std::vector<std::string> aliases;  // further names of a tied parameter
  ValueId value;
  std::optional<ValueId> gradient;  // nothing: no op of the step contributes to it (unused)
  bool sparse_gradient = false;
  // First op that reads it (when it is needed) and last op of its gradient (when it is complete)
  // and last op that reads any view of its storage (when it may be overwritten). Absent when
  // unused.
  std::optional<OpId> first_use;
  std::optional<OpId> gradient_complete;
  std::optional<OpId> last_read;
  UpdateRule update;

  friend bool operator==(const Variable&, const Variable&);
};

// State that the step keeps but does not train: batch-norm statistics. Per replica.
struct Buffer {
  std::string name;
  ValueId value;
  bool mutated = false;

  friend bool operator==(const Buffer&, const Buffer&);
};

// A frozen parameter, or a tensor that the step reads but nobody named (position ids, masks).
struct Constant {
  std::string name;  // of a frozen parameter; "" otherwise
  ValueId value;
  Digest digest;
  std::string bytes;  // contents, row-major; empty when larger than 1 MiB or when it has a name

  friend bool operator==(const Constant&, const Constant&);
};

// How the samples of a batch make its loss.
enum class Reduction : std::uint8_t { kMean, kSum };

struct Graph {
  std::string name;
  std::string libtorch_version;    // may be planned with any; executed only with this one
  std::string device;              // kind that it was captured on, for Op::cost: "cpu", "cuda"
  std::int64_t example_batch = 1;  // samples per replica at capture
  std::string batch_fixed_reason;  // empty: the batch is symbolic
  Reduction reduction = Reduction::kMean;

  std::vector<std::string> scopes;  // "features.0"; scopes[0] is ""
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<Op> ops;  // in an order that respects every dependency
  std::vector<Input> inputs;
  std::vector<Variable> variables;
  std::vector<Buffer> buffers;
  std::vector<Constant> constants;
  std::vector<ValueId> outputs;  // outputs[0] is the loss of a training step
  std::uint32_t slot_count = 0;

  Affine peak_bytes;        // variables, gradients and activations at their highest
  std::vector<Clip> clips;  // gradient clipping, a declared barrier each
  Schedule schedule;        // of the learning rate

  [[nodiscard]] const Op& op(OpId id) const { return ops[id.value]; }
  [[nodiscard]] const Value& value(ValueId id) const { return values[id.value]; }
  [[nodiscard]] const Variable& variable(VariableId id) const { return variables[id.value]; }

  friend bool operator==(const Graph&, const Graph&);
};

// Shape of a variable, constants only. REQUIRES: the sizes do not depend on the batch.
std::vector<std::int64_t> shape_of(const Graph& graph, VariableId variable);
std::int64_t element_count(const Graph& graph, VariableId variable);
Bytes bytes_of(const Graph& graph, VariableId variable);
std::map<StorageId, VariableId> variables_by_storage(const Graph& graph);

// Sizes or strides of a tensor in a batch of so many samples, and the elements that it then has.
std::vector<std::int64_t> integers_at(const std::vector<Affine>& affines, std::int64_t batch);
std::int64_t element_count(const TensorType& type, std::int64_t batch);

// Calls visit(id) for every value of an Argument or a Result, in order; of one that is not const,
// visit() may change the ids.
template <typename Alternatives, typename Visit>
void for_each_value(Alternatives& alternatives, Visit& visit) {
  if (auto* one = std::get_if<ValueId>(&alternatives)) visit(*one);
  if (auto* many = std::get_if<Values>(&alternatives)) {
    for (auto& each : *many) {
      if (each) visit(*each);
    }
  }
}
// Calls visit(value) for every value among the arguments of `op`, or among its results.
template <typename Visit>
void for_each_read(const Op& op, Visit visit) {
  for (const Argument& argument : op.arguments) for_each_value(argument, visit);
}
template <typename Visit>
void for_each_result(const Op& op, Visit visit) {
  for (const Result& result : op.results) for_each_value(result, visit);
}

// For every op the ops that must run before it, ascending, without duplicates: read-after-write,
// write-after-read and write-after-write per storage, creation of the views it reads, and the order
// among random ops.
std::vector<std::vector<OpId>> dependencies(const Graph& graph);

// Digest of the structure: everything but costs (measured times differ between ranks).
Digest structural_digest(const Graph& graph);

// Throws Error(kUsage) naming the first thing that is wrong, prefixed with `where`: ids out of
// range, a value read before it exists, a version that goes back,
// first_use/gradient_complete/last_read that contradict the ops, duplicate variable names, an op
// order that violates dependencies(), guards that are not counted from 0 in the forward pass.
void verify(const Graph& graph, const std::string& where);

}  // namespace autodist::ir
