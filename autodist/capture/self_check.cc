#include "autodist/capture/self_check.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "autodist/base/error.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/capture/interpreter.h"
#include "autodist/capture/other_way.h"
#include "autodist/capture/tensor_type.h"
#include "autodist/ir/text.h"

namespace autodist::capture {
namespace {

std::string describe(const ir::Graph& graph, ir::OpId id) {
  return fmt::format("{}{}", graph.op(id).name, ir::in_scope(graph, graph.op(id)));
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

Values values_of(const Interpreter& replay, const ir::Graph& graph, const Bindings& tensors) {
  Values values;
  for (ir::ValueId output : graph.outputs) values.push_back(replay.tensor(output));
  for (const ir::Variable& variable : graph.variables) {
    values.push_back(variable.gradient ? replay.tensor(*variable.gradient) : at::Tensor());
  }
  for (const at::Tensor& buffer : tensors.buffers) values.push_back(buffer);
  return values;
}

// The first thing in which `replayed` differs from `eager`, in words; empty: nothing.
std::string difference(const ir::Graph& graph, const Outcome& eager, const Outcome& replayed) {
  if (eager.size() != replayed.size()) return "the number of outputs";
  for (std::size_t i = 0; i < eager.size(); ++i) {
    if (eager[i] != replayed[i]) return name_of_value(graph, i);
  }
  return "";
}

// Copies that the next run does not write.
Values kept(Values values) {
  for (at::Tensor& each : values) {
    if (each.defined()) each = each.clone();
  }
  return values;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  const auto whole = [](const at::Tensor& each) {
    return (each.is_sparse() ? each.to_dense() : each).to(at::kDouble);
  };
  return (whole(a) - whole(b)).norm().item<double>();
}

// Runs of one step differ by what rounding makes of the order of sums. A replay of it differs from
// a run no more than so many times as another run does, or as half of the digits.
constexpr double kTimesApart = 16;

bool is_another_run(const at::Tensor& first, const at::Tensor& second, const at::Tensor& replayed) {
  if (!first.defined() || !replayed.defined()) return first.defined() == replayed.defined();
  if (first.sizes() != replayed.sizes()) return false;
  double half_of_digits = 0;
  if (at::isFloatingType(first.scalar_type())) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, first.scalar_type(), "epsilon", [&] {
      half_of_digits = std::sqrt(static_cast<double>(std::numeric_limits<scalar_t>::epsilon()));
    });
  }
  const double allowed = std::max(kTimesApart * distance(first, second),
                                  half_of_digits * distance(first, at::zeros_like(first)));
  return distance(first, replayed) <= allowed;
}

// The first thing in which the replay differs from the step by more than rounding.
std::string beyond_rounding(const ir::Graph& graph, const Values& first, const Values& second,
                            const Values& replayed) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!is_another_run(first[i], second[i], replayed[i])) return name_of_value(graph, i);
  }
  return "";
}

// The graph's run of the step.
struct Replayed {
  Values values;
  std::string difference;  // in shapes; or why it does not run
};

Replayed replay_of(const Subject& subject, const ir::Graph& graph, const Bindings& tensors,
                   const CheckRun& run) {
  subject.restore_buffers();
  subject.seed(run.seed);
  ComputePlace place;
  place.device = subject.device();
  Interpreter replay(graph, tensors, place, run.count);
  replay.reads_booleans = run.throws_other_way;
  ShapeCheck shapes(graph, run.count);
  ir::OpId current;
  replay.before = [&](ir::OpId id) {
    subject.look_around();
    current = id;
  };
  replay.after = [&](ir::OpId id, const std::vector<at::Tensor>& slots) { shapes(id, slots); };
  try {
    replay.run(subject.rows(run.start, run.count));
  } catch (const OtherWay& other) {
    if (run.throws_other_way) throw;
    return {{}, fmt::format("{}: {}", describe(graph, current), other.what())};
  } catch (const c10::OutOfMemoryError& error) {
    throw refusal_of(subject.step(), subject.device(), "at op " + describe(graph, current), error);
  } catch (const c10::Error& error) {
    return {{},
            fmt::format("{} does not run with {} samples: {}", describe(graph, current), run.count,
                        error.what_without_backtrace())};
  }
  return {values_of(replay, graph, tensors), shapes.difference()};
}

}  // namespace

std::string self_check(const Subject& subject, const ir::Graph& graph, const Bindings& tensors,
                       const CheckRun& run) {
  const auto step = [&] {
    return subject.run(graph, subject.rows(run.start, run.count), run.seed);
  };
  Outcome outcome;
  std::string unlike;
  const auto replay = [&] {
    const Replayed replayed = replay_of(subject, graph, tensors, run);
    unlike = replayed.difference;
    outcome = digests_of(replayed.values);
  };
  if (run.throws_other_way) replay();  // first: the step is told to go the graph's way
  const Outcome eager = digests_of(step());
  if (!run.throws_other_way) replay();
  if (!unlike.empty()) return unlike;
  const std::string different = difference(graph, eager, outcome);
  if (different.empty()) return "";
  const std::string unsteady = difference(graph, eager, digests_of(step()));
  if (unsteady.empty()) {
    return fmt::format("{} with {} samples differs between the step and its replay", different,
                       run.count);
  }
  if (subject.device().is_cpu()) {
    return fmt::format(
        "{} differs between two runs of the step itself on the same data, as it does with ops that "
        "add in any order (index_put on several threads; torch.use_deterministic_algorithms(True), "
        "or at::globalContext().setDeterministicAlgorithms, gives them one)",
        unsteady);
  }
  // Many of a GPU's kernels add in any order.
  const Values first = kept(step());
  const Values second = kept(step());
  const Replayed third = replay_of(subject, graph, tensors, run);
  if (!third.difference.empty()) return third.difference;
  const std::string far = beyond_rounding(graph, first, second, third.values);
  if (far.empty()) return "";
  return fmt::format(
      "{} with {} samples differs between the step and its replay, by more than between two runs "
      "of the step",
      far, run.count);
}

}  // namespace autodist::capture
