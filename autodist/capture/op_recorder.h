// Turns the calls that pass the dispatcher into ops of a Graph, and refuses those that a replay
// would get wrong. Knows libtorch's boxed calls; not who runs the step. Private to capture.

#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autodist/capture/op_call.h"
#include "autodist/capture/op_traits.h"
#include "autodist/capture/recorder.h"
#include "autodist/capture/scope_tracker.h"
#include "autodist/capture/tensor_table.h"

namespace autodist::capture {

class OpRecorder {
 public:
  // `where`: the line of the user's program that runs, in words; may be empty, and say nothing.
  OpRecorder(RecordOptions options, std::function<std::string()> where);
  ~OpRecorder();
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;

  // Tensors that exist before the step.
  ir::ValueId declare(const at::Tensor& tensor, ir::StorageKind kind, const std::string& name);

  // An op between its two halves.
  struct Pending {
    const OpTraits* traits = nullptr;
    ir::Op op;
    std::vector<ir::StorageId> read;
    std::vector<ir::StorageId> written;
    bool tainted = false;  // depends on inputs, variables, state or random numbers
    bool has_size_of_data = false;
    // In the backward pass, where the sizes of its results follow from these alone.
    std::vector<at::Tensor> masks;
    bool reads_integer = false;                            // of data, and can_guard()
    std::vector<std::pair<at::Tensor, Digest>> untouched;  // what it must leave as it is
    // Of an op that draws what an earlier one has drawn: the generator's state, to be put back.
    std::optional<ir::ValueId> drawn_again;
  };

  // Around every op, with its arguments (results) on top of the stack. begin() throws
  // Error(kUsage) before the op runs.
  Pending begin(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void end(const c10::OperatorHandle& op, Pending pending, const torch::jit::Stack& stack);
  // Whether what the host reads by this op, or the sizes that it makes, can be known before the
  // first gradient leaves the rank: by an op of the forward pass, or by one of the backward pass
  // that depends on no gradient, as where libtorch looks for zeros in what prod() was given.
  [[nodiscard]] bool can_guard(const ir::Op& op) const;
  // In the place of end(), for an op by which the host reads a Boolean (reads_boolean()) and that
  // can_guard(): it becomes a guard, with the ops that it follows from at the forward pass's end.
  void end_guard(Pending pending, bool read);
  // Likewise for one by which it reads an integer (Pending::reads_integer).
  void end_integer_guard(Pending pending, std::int64_t read);

  // "aten::mm.out in encoder.layer.0", of an op that has begun.
  [[nodiscard]] std::string describe(const ir::Op& op) const;

  void enter_backward() {
    phase_ = ir::Phase::kBackward;
    backward_begins_ = graph_.ops.size();
  }
  [[nodiscard]] bool in_forward() const { return phase_ == ir::Phase::kForward; }
  void enter_node(std::int64_t sequence_number) { node_ = sequence_number; }
  [[nodiscard]] std::int64_t node() const { return node_; }

  // After the backward pass. Throws Error(kUsage) where a tensor has got a gradient that is no
  // parameter of the step: it would not be trained.
  void check_gradients_of_others() const;

  // The value that a tensor is by now; nothing if no op made it.
  std::optional<ir::ValueId> find(const at::Tensor& tensor);

  ir::Graph& graph() { return graph_; }
  std::vector<at::Tensor>& constants() { return constants_; }

 private:
  struct StorageState {
    bool tainted = false;
    bool host_number = false;                        // a scalar that the host made
    std::optional<std::size_t> uninitialised_since;  // index of the op that made it
  };

  // A tensor that requires a gradient and is no parameter of the step (a teacher's, which is read
  // without gradients), when an op first reads it.
  struct OtherLeaf {
    at::Tensor tensor;
    at::Tensor gradient;  // of before the step, to be put back
    std::string read_by;
    std::string where;
  };

  template <typename... Args>
  [[noreturn]] void refuse(const ir::Op& op, fmt::format_string<Args...> format,
                           Args&&... args) const;

  ir::Argument argument(const ir::Op& op, const c10::IValue& value, Pending& pending);
  ir::Argument tensor_argument(const at::Tensor& tensor, Pending& pending);
  ir::Argument list_argument(const ir::Op& op, const c10::IValue& value, Pending& pending);
  ir::ValueId value_read(const at::Tensor& tensor, Pending& pending);
  void note_other_leaf(at::Tensor leaf, const ir::Op& reader);
  ir::ValueId add_constant(const at::Tensor& tensor, const std::string& name);
  void add_host_number(const at::Tensor& tensor);
  void initialise_from_host(const at::Tensor& tensor);

  void note_writes(const OpTraits& traits, Pending& pending);
  // Whether what is in it may be something else in the next step.
  [[nodiscard]] bool depends_on_step(const at::Tensor& tensor) const;
  // Whether the sizes of the results follow from what is in arguments that depends on the step.
  bool has_data_dependent_shape(const c10::OperatorHandle& handle,
                                const c10::IValue* arguments) const;
  void check_refusals(const c10::OperatorHandle& handle, const Pending& pending,
                      const c10::IValue* arguments) const;
  void keep_host_contents(const OpTraits& traits, const c10::IValue* arguments);
  void digest_untouched(Pending& pending, const c10::IValue* arguments) const;
  ir::Result result(const c10::IValue& value, const Pending& pending, bool& any_new);
  std::optional<ir::ValueId> tensor_result(const at::Tensor& tensor, const Pending& pending,
                                           bool& any_new);
  [[nodiscard]] bool is_known_index(const ir::Op& op) const;
  // Masks by which an op chooses elements, where all of them follow from the forward pass alone;
  // else none.
  [[nodiscard]] std::vector<at::Tensor> masks_of_forward(const ir::Op& op,
                                                         const c10::IValue* arguments);
  void guard_sizes(const std::vector<ir::Result>& results, ir::ScopeId scope);
  void guard_count(const at::Tensor& mask, ir::ScopeId scope);
  void add_guard(ir::Op op, const char* name, ir::Argument of, ir::Argument expected);
  // Ops of the backward pass so far by which what `reader` reads follows from the forward pass,
  // ascending; nothing where it depends on a gradient, too.
  [[nodiscard]] std::optional<std::vector<std::size_t>> makers_in_backward(
      const ir::Op& reader) const;
  // To the end of the forward pass. REQUIRES: it reads nothing that the backward pass makes.
  void move_to_forward(std::size_t index);
  StorageState& state(ir::StorageId storage);

  [[nodiscard]] at::Tensor generator_state() const;
  void before_drawing(Pending& pending);
  void after_drawing(std::optional<ir::ValueId> drawn_again, ir::ScopeId scope);
  std::optional<ir::ValueId> add_generator_op(const char* name, ir::ScopeId scope,
                                              std::optional<ir::ValueId> state,
                                              const at::Tensor& result);

  RecordOptions options_;
  std::function<std::string()> where_;
  ir::Graph graph_;
  TensorTable table_{graph_};
  ScopeTracker scopes_{graph_};
  std::vector<StorageState> states_;
  std::vector<at::Tensor> constants_;
  std::vector<OtherLeaf> other_leaves_;
  ir::Phase phase_ = ir::Phase::kForward;
  std::size_t backward_begins_ = 0;  // index of its first op, once there is one
  std::int64_t guards_ = 0;          // so far, of all kinds
  std::set<ir::Values> guarded_indices_;
  // The default generator's states before the ops that draw from it, and after the last of them.
  std::map<std::string, ir::ValueId> drawn_from_;  // by digest
  std::optional<std::string> after_last_draw_;
  std::int64_t node_ = -1;
};

}  // namespace autodist::capture
