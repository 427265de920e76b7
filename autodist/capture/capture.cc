#include "autodist/capture/capture.h"

#include <features.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/text.h"
#include "autodist/capture/costs.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/capture/flops.h"
#include "autodist/capture/op_traits.h"
#include "autodist/capture/other_way.h"
#include "autodist/capture/recorder.h"
#include "autodist/capture/self_check.h"
#include "autodist/capture/subject.h"
#include "autodist/capture/symbolic_batch.h"
#include "autodist/capture/tensor_type.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/own_ops.h"
#include "autodist/ir/text.h"

namespace autodist::capture {
namespace {

// libtorch's generators and the executor of scripted code are one per process.
std::mutex one_capture_at_a_time;

struct Draft {
  Recording recording;
  std::string reason;                  // why there is none
  bool single_sample_differs = false;  // CapturedStep
  bool runs_on_one_sample = false;     // as a comparison has shown
};

// Whether a capture at the example's own size would lack it, too. Memory that only more rows than
// the example's take is no reason to refuse.
bool is_lack_at_any_size(const Subject& subject, std::int64_t count, const std::exception& error) {
  const auto* refusal = dynamic_cast<const DeviceRefusal*>(&error);
  if (refusal != nullptr && !refusal->lacks_memory()) return true;  // a kernel
  const bool is_memory =
      refusal != nullptr || dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  return is_memory && count <= subject.example_rows();
}

std::string why_not(std::int64_t count, const std::exception& error) {
  return fmt::format("the step does not run with {} samples: {}", count,
                     autodist::first_line(error.what()));
}

// A recording at `count` rows, or the reason why the step does not run with so many.
Draft record_rows(const Subject& subject, std::int64_t start, std::int64_t count,
                  std::uint64_t seed, bool check_writes) {
  try {
    return {subject.record(subject.rows(start, count), seed, check_writes), ""};
  } catch (const std::exception& error) {
    const bool is_recorders = dynamic_cast<const Error*>(&error) != nullptr &&
                              dynamic_cast<const DeviceRefusal*>(&error) == nullptr;
    if (is_recorders || is_lack_at_any_size(subject, count, error)) throw;
    return {{}, why_not(count, error)};
  }
}

// The sizes of a symbolic capture. Two are recorded, on different data: the example's own, so that
// a step which does something else with many samples shows it, and a small one. At a third, graph
// and step are compared. In this order a number that merely counts the calls is not taken for one
// that grows with the batch.
struct Sizes {
  std::int64_t first;
  std::int64_t second;
  std::int64_t third;
};

Sizes sizes_for(std::int64_t example_rows) {
  if (example_rows >= 4) return {3, example_rows, 2};
  if (example_rows == 1) return {2, 3, 4};
  return {3, 2, 4};
}

// Which op it is that makes graph and step differ, if its arguments show it.
std::string explain(const Subject& subject, const ir::Graph& graph, const std::string& different,
                    std::int64_t count, std::uint64_t seed) {
  const Draft third = record_rows(subject, 0, count, seed, false);
  if (!third.reason.empty()) return third.reason;
  const std::string culprit = contradiction(graph, third.recording.graph);
  return culprit.empty() ? different : culprit;
}

std::string check_symbolic(const Subject& subject, const Recording& recording, std::int64_t start,
                           std::int64_t count, std::uint64_t seed) {
  const Bindings tensors = subject.bindings(recording.graph, recording.constants);
  std::string different;
  try {
    different = self_check(subject, recording.graph, tensors, {start, count, seed});
  } catch (const std::exception& error) {
    if (is_lack_at_any_size(subject, count, error)) throw;
    different = why_not(count, error);
  }
  return different.empty() ? "" : explain(subject, recording.graph, different, count, seed);
}

// Whether the graph does on a single sample what the step does there; nothing where the step does
// not run, as with a batch norm.
std::optional<bool> agrees_on_single_sample(const Subject& subject, const Recording& recording,
                                            std::uint64_t seed) {
  const Bindings tensors = subject.bindings(recording.graph, recording.constants);
  try {
    return self_check(subject, recording.graph, tensors, {1, 1, seed}).empty();
  } catch (const std::exception& error) {
    if (is_lack_at_any_size(subject, 1, error)) throw;
    return std::nullopt;
  }
}

// Whether the step itself runs on a single sample.
bool runs_on_single_sample(const Subject& subject, const Recording& recording, std::uint64_t seed) {
  try {
    subject.run(recording.graph, subject.rows(1, 1), seed);
    return true;
  } catch (const Error&) {  // as where Ctrl-C was pressed
    throw;
  } catch (const std::exception& error) {
    if (is_lack_at_any_size(subject, 1, error)) throw;
    return false;
  }
}

// Whether the example goes another way than `recorded`, which had fewer rows, by what the host
// reads of it. Whatever is recorded from then on goes the example's.
bool goes_another_way(Subject& subject, const ir::Graph& recorded, std::uint64_t seed) {
  const std::vector<bool> read = ir::booleans_of(recorded);
  if (read.empty()) return false;
  const std::vector<bool> of_example = subject.booleans_of_example(seed);
  subject.answer(of_example);
  return of_example != read;
}

Draft record_symbolic(Subject& subject, const Options& options) {
  const std::int64_t example_rows = subject.example_rows();
  if (example_rows == 0) return {{}, "the first input has no batch dimension"};
  const Sizes sizes = sizes_for(example_rows);
  const auto record_first = [&] {
    return record_rows(subject, 0, sizes.first, options.seed, options.self_check);
  };
  Draft first = record_first();
  if (!first.reason.empty()) return first;
  if (goes_another_way(subject, first.recording.graph, options.seed)) first = record_first();
  if (!first.reason.empty()) return first;
  const Draft second = record_rows(subject, sizes.first, sizes.second, options.seed + 1, false);
  if (!second.reason.empty()) return second;
  Unified unified = unify(first.recording.graph, second.recording.graph);
  first.reason = unified.difference;
  if (!first.reason.empty()) return first;
  first.recording.graph = std::move(unified.graph);
  first.recording.graph.example_batch = example_rows;
  if (options.self_check) {
    const bool has_numbers = ir::has_number_guards(first.recording.graph);  // other ones, mostly
    std::optional<bool> agrees;
    if (example_rows == 1 || !has_numbers) {
      agrees = agrees_on_single_sample(subject, first.recording, options.seed + 2);
    }
    first.single_sample_differs = agrees == false && !has_numbers;
    first.runs_on_one_sample = agrees.has_value();
    if (example_rows > 1 || agrees != true) {
      first.reason = check_symbolic(subject, first.recording, 1, sizes.third, options.seed + 2);
    }
  }
  // The example itself is what the first step has.
  if (first.reason.empty() && ir::has_number_guards(first.recording.graph)) {
    first.reason = check_symbolic(subject, first.recording, 0, example_rows, options.seed);
  }
  return first;
}

// Two recordings of the example's size, of different data, which must be equal; where sizes follow
// from data, both of the example.
Recording record_fixed(Subject& subject, const Options& options, const std::string& reason) {
  const std::int64_t count = std::max<std::int64_t>(subject.example_rows(), 1);
  const auto refuse = [&](const std::string& what) {
    fail(
        ErrorCode::kUsage,
        "capture: '{}' cannot be replayed on other data: {}. What the host computes for each "
        "batch must be an input of the step or be computed with tensors, what a module keeps from "
        "step to step a buffer; what it sets up in its first step, let it set up before (call it).",
        subject.step().name, what);
  };
  Recording first = subject.record(subject.rows(0, count), options.seed, options.self_check);
  subject.answer(ir::booleans_of(first.graph));
  const int other = ir::has_number_guards(first.graph) ? 0 : 1;  // rows and seed
  {
    const Recording second =
        subject.record(subject.rows(other, count), options.seed + other, false);
    const Unified unified = unify(first.graph, second.graph);
    if (!unified.difference.empty()) refuse(unified.difference);
  }
  first.graph.batch_fixed_reason = reason;
  if (options.self_check) {
    const Bindings tensors = subject.bindings(first.graph, first.constants);
    const std::string different =
        self_check(subject, first.graph, tensors, {2 * other, count, options.seed + 2 * other});
    if (!different.empty()) refuse(different);
  }
  return first;
}

Draft record_checked(Subject& subject, const Options& options) {
  std::string reason = "asked for";
  if (options.symbolic_batch) {
    Draft draft = record_symbolic(subject, options);
    if (draft.reason.empty()) return draft;
    reason = draft.reason;
  }
  return {record_fixed(subject, options, reason), ""};
}

// A recorder keeps many small things while a step allocates and frees large ones; the heap would be
// full of holes that nothing fits in, and a capture would take a fifth more memory than the step.
// While it lives, the tensors of all but tiny steps lie outside of the heap and go back to the
// system when they are freed. Afterwards the allocator is as a job has it: tensors come from the
// heap, which keeps what is freed. glibc would raise both thresholds by itself, but no longer does
// once one was set, and a step would give its memory back and have it cleared again.
class TensorsOutsideTheHeap {
 public:
  explicit TensorsOutsideTheHeap(const TrainingStep& step) {
    std::size_t bytes = 0;
    for (const NamedTensor& each : step.parameters) bytes += each.tensor.nbytes();
    active_ = bytes >= kLargeStep;
    set_thresholds(128 << 10, 128 << 10);
  }
  ~TensorsOutsideTheHeap() { set_thresholds(32 << 20, std::numeric_limits<int>::max()); }
  TensorsOutsideTheHeap(const TensorsOutsideTheHeap&) = delete;
  TensorsOutsideTheHeap& operator=(const TensorsOutsideTheHeap&) = delete;

 private:
  static constexpr std::size_t kLargeStep = 1 << 20;
  // Tensors of so many bytes are outside; so many bytes that are free at the heap's end go back.
  void set_thresholds(int outside, int given_back) const {
    if (!active_) return;
#ifdef __GLIBC__
    ::mallopt(M_MMAP_THRESHOLD, outside);
    ::mallopt(M_TRIM_THRESHOLD, given_back);
#endif
  }

  bool active_ = false;
};

// The recorder reports recorded ops for which memory is missing; runs beside the recording need
// memory, too.
template <typename Run>
auto with_memory_for(const TrainingStep& step, Run run) {
  try {
    return run();
  } catch (const c10::OutOfMemoryError& error) {
    throw refusal_of(step, device_of(step), "outside of recorded ops", error);
  }
}

CapturedStep capture_alone(const TrainingStep& step, const Options& options, bool training) {
  const TensorsOutsideTheHeap tidy(step);
  Subject subject(step, training, options.scaled_loss, options.look_around);
  subject.answer(options.booleans);
  const bool first = options.first && options.self_check;
  if (first) subject.set_up(options.seed);
  Draft draft = record_checked(subject, options);
  CapturedStep captured;
  captured.needs_several_samples =
      first && !draft.runs_on_one_sample && subject.example_rows() > 1 &&
      !runs_on_single_sample(subject, draft.recording, options.seed + 2);
  captured.graph = std::move(draft.recording.graph);
  captured.graph.device = c10::DeviceTypeName(subject.device().type(), /*lower_case=*/true);
  captured.tensors = subject.bindings(captured.graph, std::move(draft.recording.constants));
  captured.single_sample_differs = draft.single_sample_differs;
  count_work(captured.graph);
  if (options.cost_repetitions > 0) {
    try {
      measure_costs(captured.graph, subject, captured.tensors, options.cost_repetitions,
                    options.seed);
    } catch (const OtherWay& other) {
      fail(ErrorCode::kUsage, "capture: '{}' on the same rows twice: {}.", step.name, other.what());
    }
  }
  count_peak_bytes(captured.graph);
  ir::verify(captured.graph, step.name);
  return captured;
}

CapturedStep capture_as(const TrainingStep& step, const Options& options, bool training) {
  const std::lock_guard<std::mutex> alone(one_capture_at_a_time);
  return with_memory_for(step, [&] { return capture_alone(step, options, training); });
}

}  // namespace

std::string number_of_data(const ir::Graph& graph, std::size_t index) {
  std::size_t guards = 0;
  std::size_t i = 0;
  while (!ir::is_guard(graph.ops.at(i)) || guards++ != index) ++i;
  if (!ir::is_number_guard(graph.ops[i])) return "";
  if (graph.ops[i].name == ir::kIntegerGuardOp) {
    return fmt::format("The host reads a number that depends on data{}. {}",
                       ir::in_scope(graph, graph.ops[i]), kWithTheTensor);
  }
  while (ir::is_guard(graph.ops[i])) --i;  // an op of several results has as many guards
  const ir::Op& op = graph.ops[i];
  return fmt::format("{}{} makes a tensor whose size depends on data. {}", ir::full_name(op),
                     ir::in_scope(graph, op), with_fixed_sizes(op.name));
}

CapturedStep capture(const TrainingStep& step, const Options& options) {
  return capture_as(step, options, true);
}

ir::Graph capture_step(const TrainingStep& step, const Options& options) {
  return capture(step, options).graph;
}

CapturedStep capture_evaluation(const TrainingStep& step, const Options& options) {
  return capture_as(step, options, false);
}

void verify_replay(const TrainingStep& step, const ir::Graph& graph, const Bindings& tensors,
                   const Batch& batch, std::uint64_t seed) {
  const std::lock_guard<std::mutex> alone(one_capture_at_a_time);
  TrainingStep on_batch = step;
  on_batch.example = batch;
  const bool trains =
      std::any_of(graph.variables.begin(), graph.variables.end(),
                  [](const ir::Variable& each) { return each.gradient.has_value(); });
  const Subject subject(on_batch, trains, ir::scales_loss(graph));
  const std::int64_t rows = std::max<std::int64_t>(subject.example_rows(), 1);
  const std::string different = with_memory_for(step, [&] {
    return self_check(subject, graph, tensors, {0, rows, seed, /*throws_other_way=*/true});
  });
  if (different.empty()) return;
  const std::string changes = step.host_changes ? step.host_changes() : "";
  fail(ErrorCode::kUsage,
       "verify: '{}' no longer does what was captured: {}. {}{}What the host changes between steps "
       "must be an input of the step.",
       step.name, different, changes, changes.empty() ? "" : " ");
}

}  // namespace autodist::capture
