#include <algorithm>
#include <utility>

#include "autodist/exec/replay.h"
#include "autodist/exec/runner.h"
#include "autodist/ir/history.h"

namespace autodist::exec {
namespace {

// What one micro-batch of a stage's stream runs.
ReplayPart part_of(const program::Program& program,
                   const std::vector<program::Instruction>& stream) {
  ReplayPart part;
  for (const program::Instruction& instruction : stream) {
    if (const auto* compute = std::get_if<program::Compute>(&instruction)) {
      if (compute->micro_batch == 0) part.ops.push_back(compute->op);
    } else if (const auto* contribute = std::get_if<program::Contribute>(&instruction)) {
      if (contribute->micro_batch == 0) part.variables.push_back(contribute->variable);
    } else if (const auto* send = std::get_if<program::Send>(&instruction)) {
      const program::StageTransfer& transfer = program.transfer(send->transfer);
      if (transfer.micro_batch == 0 && transfer.value) part.sent.push_back(*transfer.value);
    }
  }
  return part;
}

// Of a step with one micro-batch at a time. Factors that are kept are read by others.
std::map<std::size_t, std::vector<ir::OpId>> runs_of(
    const std::vector<program::Instruction>& stream) {
  std::map<std::size_t, std::vector<ir::OpId>> runs;
  std::size_t first = 0;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (std::holds_alternative<program::KeepFactors>(stream[i])) return {};
    if (const auto* const compute = std::get_if<program::Compute>(&stream[i])) {
      runs[first].push_back(compute->op);
    } else {
      first = i + 1;
    }
  }
  return runs;
}

// Whether nobody but this rank has to do with any gradient.
bool is_alone(const program::Program& program, const std::vector<program::Instruction>& stream) {
  return !program.is_placed() &&
         std::all_of(stream.begin(), stream.end(), [&](const program::Instruction& each) {
           if (const auto* contribute = std::get_if<program::Contribute>(&each)) {
             const program::VariablePlan& plan = program.plan(contribute->variable);
             return plan.slices.empty() && !plan.collective;
           }
           return std::holds_alternative<program::Compute>(each) ||
                  std::holds_alternative<program::Release>(each) ||
                  std::holds_alternative<program::Update>(each) ||
                  std::holds_alternative<program::Norm>(each) ||
                  std::holds_alternative<program::AgreeFinite>(each);
         });
}

}  // namespace

ShapedStep::ShapedStep(std::shared_ptr<const program::Program> program, program::Rank rank,
                       capture::Bindings bindings, torch::Device device)
    : program_(std::move(program)),
      loss_op_(ir::History(*program_->graph).maker(program_->graph->outputs.front())) {
  for (const program::Stream& stream : role_of(*program_, rank).streams) {
    if (stream.kind != program::StreamKind::kCompute) continue;
    compute_.insert(compute_.end(), stream.instructions.begin(), stream.instructions.end());
  }
  // A device has all ops first then: they are one run, and one look tells of all gradients.
  if (!device.is_cpu() && is_alone(*program_, compute_)) {
    std::stable_partition(compute_.begin(), compute_.end(), [](const program::Instruction& each) {
      return std::holds_alternative<program::Compute>(each);
    });
  }
  runs_ = runs_of(compute_);
  std::optional<ReplayPart> part;
  if (program_->is_placed()) part = part_of(*program_, compute_);
  for (std::uint32_t i = 1; i < program_->micro_batches; ++i) {
    more_replays_.push_back(std::make_unique<Replay>(program_->graph, bindings, device, part));
  }
  replay_ = std::make_unique<Replay>(program_->graph, std::move(bindings), device, part);
}
ShapedStep::~ShapedStep() = default;
ShapedStep::ShapedStep(ShapedStep&&) noexcept = default;
ShapedStep& ShapedStep::operator=(ShapedStep&&) noexcept = default;

bool ShapedStep::accepts(const Batch& batch) const { return replay_->accepts(batch); }

}  // namespace autodist::exec
