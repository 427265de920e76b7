#include "autodist/capture/self_check.h"

#include "autodist/base/error.h"
#include "autodist/capture/interpreter.h"
#include "autodist/capture/tensor_type.h"

namespace autodist::capture {
namespace {

std::string describe(const ir::Graph& graph, ir::OpId id) {
  const ir::Op& op = graph.op(id);
  const std::string& scope = graph.scopes[op.scope.value];
  return fmt::format("{}{}{}", op.name, scope.empty() ? "" : " in ", scope);
}

bool has_shape(const at::Tensor& tensor, const ir::TensorType& type, std::int64_t batch) {
  if (tensor.dim() != static_cast<std::int64_t>(type.sizes.size())) return false;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (tensor.size(static_cast<std::int64_t>(i)) != type.sizes[i].at(batch)) return false;
  }
  return true;
}

// Notes the first op whose result has another shape than the graph says.
class ShapeCheck {
 public:
  ShapeCheck(const ir::Graph& graph, std::int64_t batch) : graph_(graph), batch_(batch) {}

  void operator()(ir::OpId id, const std::vector<at::Tensor>& slots) {
    if (!difference_.empty()) return;
    ir::for_each_result(graph_.op(id), [&](ir::ValueId result) {
      const ir::Value& value = graph_.value(result);
      if (has_shape(slots[value.slot.value], value.type, batch_)) return;
      difference_ =
          fmt::format("{}: a result's size is not affine in the batch", describe(graph_, id));
    });
  }
  [[nodiscard]] const std::string& difference() const { return difference_; }

 private:
  const ir::Graph& graph_;
  std::int64_t batch_;
  std::string difference_;
};

Outcome outcome_of(const Interpreter& replay, const ir::Graph& graph, const Bindings& tensors) {
  Outcome outcome;
  for (ir::ValueId output : graph.outputs)
    outcome.outputs.push_back(digest_of(replay.tensor(output)));
  for (const ir::Variable& variable : graph.variables) {
    outcome.gradients.push_back(variable.gradient ? digest_of(replay.tensor(*variable.gradient))
                                                  : Digest());
  }
  for (const at::Tensor& buffer : tensors.buffers) outcome.buffers.push_back(digest_of(buffer));
  return outcome;
}

}  // namespace

std::string self_check(const Subject& subject, const ir::Graph& graph, const Bindings& tensors,
                       const CheckRun& run) {
  const Outcome eager = subject.run(graph, subject.rows(run.start, run.count), run.seed);
  subject.restore_buffers();
  subject.seed(run.seed);
  ComputePlace place;
  place.device = subject.device();
  Interpreter replay(graph, tensors, place, run.count);
  ShapeCheck shapes(graph, run.count);
  ir::OpId current;
  replay.before = [&](ir::OpId id) {
    subject.look_around();
    current = id;
  };
  replay.after = [&](ir::OpId id, const std::vector<at::Tensor>& slots) { shapes(id, slots); };
  try {
    replay.run(subject.rows(run.start, run.count));
  } catch (const c10::Error& error) {
    return fmt::format("{} does not run with {} samples: {}", describe(graph, current), run.count,
                       error.what_without_backtrace());
  }
  if (!shapes.difference().empty()) return shapes.difference();
  const std::string different = difference(graph, eager, outcome_of(replay, graph, tensors));
  if (different.empty()) return "";
  const Outcome again = subject.run(graph, subject.rows(run.start, run.count), run.seed);
  if (const std::string unsteady = difference(graph, eager, again); !unsteady.empty()) {
    return fmt::format(
        "{} differs between two runs of the step itself on the same data, as it does with ops that "
        "add in any order (index_put on several threads; torch.use_deterministic_algorithms(True), "
        "or at::globalContext().setDeterministicAlgorithms, gives them one)",
        unsteady);
  }
  return fmt::format("{} with {} samples differs between the step and its replay", different,
                     run.count);
}

}  // namespace autodist::capture
