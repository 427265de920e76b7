#include "autodist/job/torch/captured.h"

#include <torch/cuda.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "autodist/base/dtype.h"
#include "autodist/base/error.h"
#include "autodist/base/even_part.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/ir/own_ops.h"
#include "autodist/ir/text.h"
#include "autodist/job/gpus.h"
#include "autodist/job/torch/rank_device.h"

namespace autodist::job {
namespace {

// Each costs a capture, and as many layers are seldom left out by chance.
constexpr std::size_t kWaysTried = 64;

// While the step is captured, between ops.
constexpr Seconds kBetweenOps{0.1};

std::optional<ir::LossScaling> scaling_of(const NamedStep& step, const JobOptions& options) {
  if (!step.optimizer || options.loss_scaling.empty()) return std::nullopt;
  return ir::parse_loss_scaling(options.loss_scaling);
}

// The step as it is captured: one that trains nothing has its loss for output, without gradients;
// one whose loss is scaled takes the scale as a further input, which goes whole to every replica.
TrainingStep as_captured(const NamedStep& named, const std::optional<ir::LossScaling>& scaling) {
  TrainingStep step = named.step;
  if (!named.name.empty()) step.name = named.name;
  if (scaling) {
    step.batched.clear();
    for (std::size_t i = 0; i < named.step.example.size(); ++i) {
      step.batched.push_back(is_batched(named.step, i));
    }
    step.batched.push_back(false);
    step.example.push_back(as_input(scaling->scale));
  }
  if (named.optimizer) return step;
  step.evaluate = [declared = named.step](const Batch& batch) {
    return returned_by(declared, batch);
  };
  step.enter_evaluation = nullptr;
  return step;
}

capture::Options options_of(JoinedJob& job, const Captured& step) {
  capture::Options options;
  options.seed = step.seed;
  options.scaled_loss = step.scaling.has_value();
  options.look_around = [&job, before = Seconds{0}]() mutable {
    const Seconds now = job.clock().now();
    if (now - before < kBetweenOps) return;
    before = now;
    job.look_around();
  };
  const bool measures = job.options().measure && job.is_chief() && job.size() > 1;
  if (!measures) options.cost_repetitions = 0;
  return options;
}

capture::CapturedStep capture_as(const Captured& step, const capture::Options& options) {
  return step.trains() ? capture::capture(step.step, options)
                       : capture::capture_evaluation(step.step, options);
}

std::int64_t unused_variables(const ir::Graph& graph) {
  return std::count_if(graph.variables.begin(), graph.variables.end(),
                       [](const ir::Variable& each) { return !each.gradient; });
}

// The graph of another way, unmeasured; nothing where the step refuses its batch there, or is
// refused.
std::optional<ir::Graph> try_way(const Captured& step, capture::Options options) {
  options.cost_repetitions = 0;
  options.self_check = false;
  try {
    return capture_as(step, options).graph;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
  } catch (const std::exception&) {  // NOLINT: the step's own
  }
  return std::nullopt;
}

// The plan knows the variables that the graph trains, and a way may leave some out (a layer that is
// skipped at random). Guard by guard, the other value is tried where variables are unused; it is
// kept where fewer are.
std::vector<bool> widest_way(const Captured& step, capture::Options options,
                             const ir::Graph& first) {
  std::vector<bool> way = ir::booleans_of(first);
  std::int64_t unused = unused_variables(first);
  for (std::size_t i = 0; i < std::min(way.size(), kWaysTried) && unused > 0; ++i) {
    options.booleans.assign(way.begin(), way.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    options.booleans.back() = !options.booleans.back();
    const std::optional<ir::Graph> other = try_way(step, options);
    if (!other || unused_variables(*other) >= unused) continue;
    unused = unused_variables(*other);
    way = ir::booleans_of(*other);
  }
  return way;
}

// The plan is one graph's: the ranks' examples may go different ways, all begin with the chief's.
std::vector<bool> way_of_job(JoinedJob& job, const Captured& step, const capture::Options& options,
                             const ir::Graph& own) {
  std::vector<bool> way = ir::booleans_of(own);
  if (job.is_chief() && step.trains()) way = widest_way(step, options, own);
  if (job.size() == 1) return way;
  std::string text;
  for (const bool each : way) text += each ? '1' : '0';
  way.clear();
  for (const char each : job.of_chief("way of the step", text)) way.push_back(each == '1');
  return way;
}

// Where numbers follow from data the ranks' graphs are equal if their examples have the same ones.
void check_numbers(JoinedJob& job, const ir::Graph& graph) {
  if (job.size() == 1) return;
  std::string own;
  for (const ir::Op& op : graph.ops) {
    if (!ir::is_number_guard(op)) continue;
    own += own.empty() ? "" : ", ";
    own += ir::to_string(std::get<ir::Affine>(op.arguments.at(1)));
  }
  const std::string chiefs = job.of_chief("numbers of the step", own);
  if (own == chiefs) return;
  fail(
      ErrorCode::kUsage,
      "step '{}': what follows from data (sums of sizes, and integers; B: samples) is [{}] in this "
      "rank's example and [{}] in rank 0's. Give all ranks the same example batch, and models that "
      "begin alike (torch.manual_seed).",
      graph.name, own, chiefs);
}

// As the chief has found on its example: all ranks divide a batch alike.
bool needs_several_samples(JoinedJob& job, const capture::CapturedStep& captured) {
  const std::string own = captured.needs_several_samples ? "several" : "one";
  return job.of_chief("samples that the step needs", own) == "several";
}

void check_trainable(const ir::Graph& graph) {
  for (const ir::Variable& each : graph.variables) {
    const DType dtype = graph.value(each.value).type.dtype;
    if (!each.gradient || is_floating(dtype)) continue;
    fail(ErrorCode::kUsage,
         "step '{}': '{}' has elements of {}, which no rule updates. Keep it in real numbers, and "
         "view it as complex in the step (torch.view_as_complex).",
         graph.name, each.name, name_of(dtype));
  }
}

// Where the cluster gives this rank a GPU. On a rank of a CPU a model stays where it is.
void move_to_own_device(const JoinedJob& job, TrainingStep& step) {
  if (job.device().is_cpu()) return;
  try {
    move_to(job.device(), step);
  } catch (const c10::OutOfMemoryError& error) {
    throw capture::refusal_of(step, job.device(), "while the model is moved there", error);
  }
}

// Where neither the cluster nor the model asks for one, and nobody has asked for CPUs.
void say_what_is_unused(const JoinedJob& job, const TrainingStep& step) {
  if (!job.is_chief() || job.options().cpu_only || !capture::device_of(step).is_cpu()) return;
  for (const cluster::Node& node : job.cluster().nodes) {
    if (!node.gpus.empty()) return;
  }
  const std::string unused = unused_line(static_cast<std::size_t>(torch::cuda::device_count()));
  if (!unused.empty()) job.say(unused);
}

}  // namespace

torch::Tensor as_input(float scale) { return torch::full({}, scale, torch::kFloat32); }

std::pair<std::int64_t, std::int64_t> Captured::rows_of_part(
    std::uint32_t index, std::uint32_t count,
    const std::function<std::pair<std::int64_t, std::int64_t>(std::uint32_t part)>& rows_of) const {
  if (!needs_several_samples) return rows_of(index);
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (std::uint32_t part = 0; part < count; ++part) parts.push_back(rows_of(part));
  join_single_rows(parts);
  return parts.at(index);
}

Captured capture_step(JoinedJob& job, NamedStep step, std::uint32_t index) {
  Captured result;
  result.named = std::move(step);
  result.scaling = scaling_of(result.named, job.options());
  result.step = as_captured(result.named, result.scaling);
  move_to_own_device(job, result.step);
  if (index == 0) say_what_is_unused(job, result.step);
  result.seed = job.options().seed + index;
  job.show(fmt::format("capturing {}", result.step.name));
  capture::Options options = options_of(job, result);
  capture::CapturedStep captured = capture_as(result, options);
  result.needs_several_samples = needs_several_samples(job, captured);
  options.first = false;
  options.booleans = way_of_job(job, result, options, captured.graph);
  if (options.booleans != ir::booleans_of(captured.graph)) captured = capture_as(result, options);
  check_numbers(job, captured.graph);
  if (result.trains()) {
    check_trainable(captured.graph);
    ir::declare_updates(captured.graph, *result.named.optimizer);
  }
  result.graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  result.bindings = capture::bind(*result.graph, result.step, capture::device_of(result.step),
                                  captured.tensors.constants);
  result.tensors = std::move(captured.tensors);
  result.bindings.of_user = result.tensors.of_user;
  result.single_sample_differs = captured.single_sample_differs;
  return result;
}

}  // namespace autodist::job
