#include "autodist/job/torch/shape_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/bindings.h"
#include "autodist/capture/other_way.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/own_ops.h"
#include "autodist/passes/pipeline.h"

namespace autodist::job {
namespace {

// Each keeps a graph and its prepared calls, some megabytes for a large model. Sequences of more
// lengths than this are captured again and again; padding them to fewer is faster anyway.
constexpr std::size_t kMaxShapes = 64;

// How often what is found on some rows may contradict what was found before, as where it follows
// from variables, which may be newer then (staleness).
constexpr int kMaxTurns = 16;

// Another size in some dimension is another shape; another number of tensors, of dimensions or
// another element type is a mistake, for which the runner has the words.
bool is_another_shape(const Batch& rows, const Batch& example) {
  if (rows.size() != example.size()) return false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].dim() != example[i].dim() || rows[i].scalar_type() != example[i].scalar_type()) {
      return false;
    }
  }
  return true;
}

// A graph with numbers of data was recorded on one batch alone (capture.h). What else the host made
// of that, without an op, shows on the next ones; the first of a job is often the example.
int comparisons(const ir::Graph& graph, bool of_example) {
  if (!ir::has_number_guards(graph)) return 0;
  return of_example ? 3 : 2;
}

}  // namespace

ShapeCache::ShapeCache(const TrainingStep& step, bool trains, capture::Bindings tensors,
                       std::vector<torch::Tensor> variables, bool single_sample_differs,
                       std::shared_ptr<const program::Program> program, program::Rank rank)
    : step_(step),
      trains_(trains),
      variables_(std::move(variables)),
      single_samples_differ_(single_sample_differs),
      program_(std::move(program)),
      rank_(rank) {
  shapes_.push_back({program_->graph,
                     std::move(tensors),
                     {},
                     nullptr,
                     comparisons(*program_->graph, /*of_example=*/true),
                     0,
                     single_sample_differs});
}

exec::StepResult ShapeCache::step(exec::Runner& runner, const Batch& rows, bool last) {
  if (!runner.accepts(rows) && !is_another_shape(rows, step_.example)) {
    return last ? runner.step(rows) : runner.accumulate(rows);
  }
  const bool has_rows = !rows.empty() && capture::samples_of(*program_->graph, rows) > 0;
  Wanted known;  // a try finds one more guard that it passes
  while (true) {
    Shape& shape = find_or_capture(runner, rows, known);
    const bool compares = has_rows && shape.uncompared > 0 && shape.seen != runner.next_seed();
    if (compares && !compare(runner, rows, shape, known)) continue;
    exec::ShapedStep* const code = shape.code ? &*shape.code : nullptr;
    exec::StepResult result = last ? runner.step(rows, code) : runner.accumulate(rows, code);
    if (!result.other_way) return result;
    extend(known, shape, *result.other_way);
  }
}

void ShapeCache::verify(exec::Runner& runner, const Batch& rows) {
  if (rows.empty() || (rows.front().dim() > 0 && rows.front().size(0) == 0)) return;
  if (!runner.accepts(rows) && !is_another_shape(rows, step_.example)) return;
  Wanted known;
  while (!compare(runner, rows, find_or_capture(runner, rows, known), known)) continue;
}

bool ShapeCache::compare(exec::Runner& runner, const Batch& rows, Shape& shape,
                         Wanted& known) const {
  runner.settle();  // the step itself reads the variables, which must stand still
  const std::uint64_t seed = runner.next_seed();
  try {
    capture::verify_replay(step_, *shape.captured, shape.tensors, rows, seed);
  } catch (const capture::OtherWay& other) {
    const std::int64_t samples = capture::samples_of(*shape.captured, rows);
    extend(known, shape, capture::way_of(*shape.captured, samples, other));
    return false;
  }
  if (shape.seen != seed) shape.uncompared = std::max(shape.uncompared - 1, 0);
  shape.seen = seed;
  return true;
}

void ShapeCache::extend(Wanted& known, const Shape& left, const ir::Way& way) const {
  const std::size_t found = way.booleans.size() + way.numbers.size() - 1;
  const bool is_more = ir::begins_with(way, known.way) && !(way == known.way);
  const int turns = known.turns + (is_more ? 0 : 1);
  known = {way, capture::number_of_data(*left.captured, found), turns};
  if (turns <= kMaxTurns) return;
  fail(ErrorCode::kUsage,
       "step '{}': {}Graphs of the step go different ways on the same rows: something that they go "
       "by is made by the host, of the rows and without an op. Make that an input of the step, or "
       "compute it with tensors.",
       step_.name, known.number_of_data.empty() ? "" : known.number_of_data + " ");
}

ShapeCache::Shape& ShapeCache::find_or_capture(exec::Runner& runner, const Batch& rows,
                                               const Wanted& wanted) {
  const auto goes = [&](const Shape& shape) {
    const std::int64_t samples = capture::samples_of(*shape.captured, rows);
    return ir::begins_with(ir::way_of(*shape.captured, samples), wanted.way);
  };
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    const bool accepts = shape.code ? shape.code->accepts(rows) : runner.accepts(rows);
    const bool is_apart =
        shape.single_sample_differs && capture::samples_of(*shape.captured, rows) == 1;
    return accepts && !is_apart && (wanted.way == ir::Way() || goes(shape));
  });
  if (found != shapes_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found);
    if (found->code && found->made_for != program_) prepare(*found);
  } else {
    shapes_.push_front(capture_shape(runner, rows, wanted));
    if (shapes_.size() > kMaxShapes) drop_oldest();
  }
  Shape& shape = shapes_.front();
  if (shape.code) capture::take_new_storage(*shape.captured, shape.tensors);
  return shape;
}

void ShapeCache::drop_oldest() {
  const auto oldest = std::find_if(shapes_.rbegin(), shapes_.rend(),
                                   [](const Shape& shape) { return shape.code.has_value(); });
  shapes_.erase(std::prev(oldest.base()));
}

ShapeCache::Shape ShapeCache::capture_shape(exec::Runner& runner, const Batch& rows,
                                            const Wanted& wanted) {
  runner.settle();  // as in verify()
  TrainingStep step = step_;
  step.example = rows;
  capture::Options options;
  options.first = false;
  options.seed = runner.next_seed();  // numbers may follow from what is drawn
  options.cost_repetitions = 0;
  options.scaled_loss = ir::scales_loss(*program_->graph);
  options.booleans = wanted.way.booleans;
  const bool is_single = capture::samples_of(*program_->graph, rows) == 1;
  options.symbolic_batch = !(is_single && single_samples_differ_);
  const auto make = trains_ ? capture::capture : capture::capture_evaluation;
  capture::CapturedStep captured = make(step, options);
  single_samples_differ_ |= captured.single_sample_differs;
  if (is_single && captured.single_sample_differs) {
    options.symbolic_batch = false;
    captured = make(step, options);
  }
  ++captures_;
  if (!wanted.number_of_data.empty()) {
    ++captures_for_numbers_;
    number_of_data_ = wanted.number_of_data;
  }
  const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  Shape shape{graph,
              std::move(captured.tensors),
              {},
              nullptr,
              comparisons(*graph, /*of_example=*/false),
              options.seed,
              captured.single_sample_differs};
  prepare(shape);
  return shape;
}

// For the job's Program.
void ShapeCache::prepare(Shape& shape) const {
  auto program = std::make_shared<const program::Program>(
      passes::for_other_shapes(*program_, *shape.captured));
  const torch::Device device = capture::device_of(step_);
  capture::Bindings bindings =
      capture::bind(*program->graph, step_, device, shape.tensors.constants);
  bindings.variables = variables_;  // which may have other storage one day
  shape.code.emplace(std::move(program), rank_, std::move(bindings), device);
  shape.made_for = program_;
}

}  // namespace autodist::job
