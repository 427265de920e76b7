#include "autodist/job/torch/shape_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/capture/bindings.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/own_ops.h"
#include "autodist/passes/pipeline.h"

namespace autodist::job {
namespace {

bool begins_with(const std::vector<bool>& way, const std::vector<bool>& first) {
  return way.size() >= first.size() && std::equal(first.begin(), first.end(), way.begin());
}

// Each keeps a graph and its prepared calls, some megabytes for a large model. Sequences of more
// lengths than this are captured again and again; padding them to fewer is faster anyway.
constexpr std::size_t kMaxShapes = 64;

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

}  // namespace

ShapeCache::ShapeCache(const TrainingStep& step, bool trains, capture::Bindings tensors,
                       std::shared_ptr<const program::Program> program, program::Rank rank,
                       std::uint64_t seed)
    : step_(step), trains_(trains), program_(std::move(program)), rank_(rank), seed_(seed) {
  shapes_.push_back(
      {program_->graph, ir::booleans_of(*program_->graph), std::move(tensors), {}, nullptr});
}

exec::StepResult ShapeCache::step(exec::Runner& runner, const Batch& rows, bool last) {
  if (!runner.accepts(rows) && !is_another_shape(rows, step_.example)) {
    return last ? runner.step(rows) : runner.accumulate(rows);
  }
  std::vector<bool> way;  // as far as it is known: every try finds one more guard that it passes
  while (true) {
    Shape& shape = find_or_capture(runner, rows, way);
    exec::ShapedStep* const code = shape.code ? &*shape.code : nullptr;
    exec::StepResult result = last ? runner.step(rows, code) : runner.accumulate(rows, code);
    if (result.other_way.empty()) return result;
    way = std::move(result.other_way);
  }
}

void ShapeCache::verify(exec::Runner& runner, const Batch& rows) {
  if (rows.empty() || (rows.front().dim() > 0 && rows.front().size(0) == 0)) return;
  if (!runner.accepts(rows) && !is_another_shape(rows, step_.example)) return;
  runner.settle();  // the step itself reads the variables, which must stand still
  const Shape& shape = find_or_capture(runner, rows, {});
  capture::verify_replay(step_, *shape.captured, shape.tensors, rows, seed_);
}

ShapeCache::Shape& ShapeCache::find_or_capture(exec::Runner& runner, const Batch& rows,
                                               const std::vector<bool>& way) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    const bool accepts = shape.code ? shape.code->accepts(rows) : runner.accepts(rows);
    return accepts && begins_with(shape.way, way);
  });
  if (found != shapes_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found);
    if (found->code && found->made_for != program_) prepare(*found);
  } else {
    shapes_.push_front(capture_shape(runner, rows, way));
    if (shapes_.size() > kMaxShapes) drop_oldest();
  }
  return shapes_.front();
}

void ShapeCache::drop_oldest() {
  const auto oldest = std::find_if(shapes_.rbegin(), shapes_.rend(),
                                   [](const Shape& shape) { return shape.code.has_value(); });
  shapes_.erase(std::prev(oldest.base()));
}

ShapeCache::Shape ShapeCache::capture_shape(exec::Runner& runner, const Batch& rows,
                                            const std::vector<bool>& way) {
  runner.settle();  // as in verify()
  TrainingStep step = step_;
  step.example = rows;
  capture::Options options;
  options.seed = seed_;
  options.cost_repetitions = 0;
  options.scaled_loss = ir::scales_loss(*program_->graph);
  options.booleans = way;
  capture::CapturedStep captured =
      trains_ ? capture::capture(step, options) : capture::capture_evaluation(step, options);
  ++captures_;
  const auto graph = std::make_shared<const ir::Graph>(std::move(captured.graph));
  Shape shape{graph, ir::booleans_of(*graph), std::move(captured.tensors), {}, nullptr};
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
  shape.code.emplace(std::move(program), rank_, std::move(bindings), device);
  shape.made_for = program_;
}

}  // namespace autodist::job
