#include "autodist/job/torch/step_run.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/exec/outputs.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/ir/names.h"
#include "autodist/job/same_batch.h"
#include "autodist/job/same_bits.h"
#include "autodist/job/torch/fetching.h"
#include "autodist/job/torch/step_notes.h"
#include "autodist/program/sums.h"

namespace autodist::job {
namespace {

// A trained variable by any of its names.
ir::VariableId trained(const ir::Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    if (!variable.gradient) continue;
    const auto& aliases = variable.aliases;
    if (variable.name == name || std::count(aliases.begin(), aliases.end(), name) != 0) {
      return ir::VariableId(i);
    }
    names.push_back(variable.name);
  }
  const std::string near = nearest(name, names);
  fail(ErrorCode::kUsage, "optimizer: the step trains no '{}'{}", name,
       near.empty() ? ". Name a variable that it trains."
                    : fmt::format("; did you mean '{}'?", near));
}

// Steps by which summaries lag where no version ties the ranks together: far enough that nobody
// waits for a rank that is slow for a while.
constexpr std::size_t kAsynchronousLag = 32;

// Steps at whose batches the ranks look, from where a job begins or goes on: who shuffles otherwise
// than the others does so from the first step on.
constexpr std::int64_t kComparedBatches = 2;

// Captures for numbers that follow from data: after so many a line says what they cost.
constexpr std::int64_t kSaidAtCaptures = 8;

std::uint64_t digest_of_batch(const Batch& batch) {
  std::vector<std::uint64_t> digests;
  for (const torch::Tensor& each : batch) digests.push_back(exec::digest_of_values(each));
  return digest_of(digests.data(), digests.size() * sizeof(std::uint64_t)).low;
}

// [begin, end) of so many rows.
using Rows = std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t rows)>;

// A batch as the program passes it, without the scale of a loss.
void check_batch(const Batch& batch, const ir::Graph& graph) {
  const std::size_t expected = graph.inputs.size() - (ir::scales_loss(graph) ? 1 : 0);
  if (batch.size() != expected) {
    fail(ErrorCode::kUsage,
         "batch: {} tensors, the step was captured with {}. Give as many, in the order of the "
         "example.",
         batch.size(), expected);
  }
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].defined()) {
      fail(ErrorCode::kUsage, "batch: input '{}' is an undefined tensor; values expected.",
           graph.inputs[i].name);
    }
    if (!graph.inputs[i].batched) continue;
    if (batch[i].dim() == 0 || (rows >= 0 && batch[i].size(0) != rows)) {
      fail(ErrorCode::kUsage,
           "batch: input '{}' has {} rows, the others {}. Give all as many, or say which are not "
           "split (batched).",
           graph.inputs[i].name, batch[i].dim() == 0 ? 0 : batch[i].size(0), rows);
    }
    rows = batch[i].size(0);
  }
}

// Those rows of a batch; what is not batched goes whole.
Batch part_of(const Batch& batch, const ir::Graph& graph, const Rows& which) {
  Batch part;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!graph.inputs[i].batched) {
      part.push_back(batch[i]);
      continue;
    }
    const auto [begin, end] = which(batch[i].size(0));
    part.push_back(batch[i].slice(0, begin, end));
  }
  return part;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_rows(const Batch& batch, const ir::Graph& graph) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (graph.inputs[i].batched) return batch[i].size(0) > 0;
  }
  return true;
}

// Names of the state of loss scaling in a checkpoint.
const std::string kScale = "loss_scaling.scale";
const std::string kGoodSteps = "loss_scaling.good_steps";
const std::string kSkipped = "loss_scaling.skipped";

}  // namespace

exec::RankState state_of(std::vector<NamedTensor> saved, std::vector<NamedTensor> owed) {
  exec::RankState state;
  std::map<std::string, double> of_scaling;
  for (NamedTensor& each : saved) {
    if (each.name.rfind("loss_scaling.", 0) == 0) {
      of_scaling[each.name] = each.tensor.item<double>();
    } else {
      state.rules.push_back(std::move(each));
    }
  }
  if (!of_scaling.empty()) {
    state.scale = ir::LossScale{static_cast<float>(of_scaling.at(kScale)),
                                static_cast<std::int64_t>(of_scaling.at(kGoodSteps)),
                                static_cast<std::int64_t>(of_scaling.at(kSkipped))};
  }
  state.owed = std::move(owed);
  return state;
}

std::pair<std::int64_t, std::int64_t> part_rows(const Captured& captured,
                                                const program::Program& program, std::int64_t batch,
                                                std::uint32_t part) {
  return captured.rows_of_part(part, program.batch_parts(), [&](std::uint32_t each) {
    return program::part_rows(program, batch, each);
  });
}

std::uint32_t replica_of(const program::Program& program, program::Rank rank) {
  if (!program.computes(rank)) {
    fail(ErrorCode::kUsage,
         "rank {} only serves: it computes no part of a batch. Call finish() there.", rank);
  }
  return program.batch_part(rank);
}

bool all_compute(const program::Program& program) {
  return std::all_of(program.ranks.begin(), program.ranks.end(),
                     [](const program::RankInfo& rank) { return rank.replica.has_value(); });
}

exec::Calls::Scope begin_call(exec::Runner& runner, exec::Call call) {
  return runner.calls().begin(call, runner.steps_done());
}

exec::Calls::Scope enter_call(exec::Runner& runner, exec::Call call) {
  return runner.calls().enter(call, runner.steps_done());
}

StepRun::StepRun(JoinedJob& job, const Captured& captured, const StepPlan& plan, RunStart start,
                 const exec::RunnerConnections& connections)
    : job_(job),
      captured_(captured),
      plan_(plan),
      first_step_(start.step),
      shapes_(captured.step, captured.trains(), captured.tensors, captured.bindings.variables,
              captured.single_sample_differs, plan.program, program::Rank(job.rank())) {
  begin(std::move(start), connections);
}

StepRun::~StepRun() = default;

exec::Runner& StepRun::runner() const {
  if (!runner_) std::rethrow_exception(failure_);
  return *runner_;
}

exec::RunnerOptions StepRun::runner_options(RunStart& start) const {
  exec::RunnerOptions options = job_.runner_options(captured_.seed, start.generation);
  options.first_step = static_cast<std::uint64_t>(start.step);
  options.initial_values = std::move(start.values);
  return options;
}

void StepRun::begin(RunStart start, const exec::RunnerConnections& connections) {
  generation_ = start.generation;
  loss_series_ = series_of_losses();
  uncompared_.clear();
  if (!captured_.scaling) start.state.scale.reset();  // of a job before, which scaled its loss
  runner_ =
      std::make_shared<exec::Runner>(plan_.program, program::Rank(job_.rank()), captured_.bindings,
                                     connections, runner_options(start), std::move(start.state));
}

std::vector<NamedTensor> StepRun::state_of_scaling() {
  if (!captured_.scaling) return {};
  const ir::LossScale scale = runner().loss_scale();
  return {{kScale, torch::full({1}, scale.scale, torch::kFloat32)},
          {kGoodSteps, torch::full({1}, scale.good_steps, torch::kInt64)},
          {kSkipped, torch::full({1}, scale.skipped, torch::kInt64)}};
}

StepRun::State StepRun::state() { return {runner().gather_state(), state_of_scaling()}; }

// What a job that is started again finds its losses by; nothing where nobody starts it again, or
// the same steps need not have the same bits.
std::optional<std::uint64_t> StepRun::series_of_losses() const {
  const bool repeats = program().reproducible() && job_.device().is_cpu();
  if (job_.memory() == nullptr || !repeats) return std::nullopt;
  return digest_of(fmt::format("{} {} {}", job_.number(), captured_.name(),
                               to_string(program::sum_digest(program()))))
      .low;
}

// Those that have become known. Says once where a start before this one had another one.
void StepRun::compare_losses() {
  while (!uncompared_.empty() && uncompared_.front()->known()) {
    const JobLoss loss{uncompared_.front(), runner_, graph().reduction == ir::Reduction::kMean, 0};
    const double value = loss.value();
    const auto before = job_.memory()->compare_loss(*loss_series_, loss.step(), value);
    const std::string line = before ? other_loss_line(loss.step(), *before, value) : "";
    if (!line.empty() && !std::exchange(said_other_loss_, true)) job_.say(line);
    uncompared_.pop_front();
  }
}

// Of the whole batch of the step that is next.
void StepRun::tell_batch(const Batch& batch) {
  runner().add_to_next_sums(batch_numbers(digest_of_batch(batch)));
}

// Those of steps whose sums have become known. The chief says once that they differ.
void StepRun::compare_batches() {
  while (!told_batches_.empty() && told_batches_.front()->known()) {
    const exec::StepSums& told = *told_batches_.front();
    const std::string line = other_batch_line(static_cast<std::int64_t>(told.step()), told.sums());
    if (!line.empty() && job_.is_chief() && !std::exchange(said_other_batch_, true)) job_.say(line);
    told_batches_.pop_front();
  }
}

RunStart StepRun::end_plan(const program::Transition& transition) {
  if (sums_) runner().await(*sums_);  // of the steps before, too; a JobLoss may be asked later
  compare_losses();
  compare_batches();
  while (!untold_.empty()) before_.push_back(read_note());
  RunStart start;
  start.step = step();
  start.generation = generation_ + 1;
  std::optional<ir::LossScale> scale;
  if (captured_.scaling) scale = runner().loss_scale();
  start.state = runner().hand_over(transition);
  start.state.scale = scale;
  bytes_before_ = bytes_sent();
  runner().finish();
  return start;
}

void StepRun::begin_plan(RunStart start,
                         const std::function<exec::RunnerConnections()>& connections) {
  runner_.reset();  // its memory is the next one's
  try {
    shapes_.adopt(plan_.program);
    begin(std::move(start), connections());
    if (!options_.empty()) set_options(options_);
  } catch (...) {
    runner_.reset();
    failure_ = std::current_exception();
    throw;
  }
}

JobLoss StepRun::job_number(std::size_t number) const {
  if (!sums_) fail(ErrorCode::kUsage, kNoStepYet);
  const std::size_t known = exec::numbers_of(graph()).size();
  if (number >= known) {
    fail(ErrorCode::kUsage,
         "job_number: {} of {}, the loss counted; the step returns no more. Ask for a lower one.",
         number, known);
  }
  return {sums_, runner_, number > 0 || graph().reduction == ir::Reduction::kMean, number};
}

void StepRun::set_options(const std::map<std::string, std::map<std::string, double>>& options) {
  std::map<ir::VariableId, std::map<std::string, double>> known;
  for (const auto& [name, values] : options) known[trained(graph(), name)] = values;
  for (std::size_t i = 0; i < graph().variables.size(); ++i) {
    const ir::VariableId id(i);
    if (graph().variables[i].gradient) runner().set_options(id, known[id]);
  }
  options_ = options;
}

ir::LossScale StepRun::loss_scale() {
  if (!captured_.scaling) {
    fail(ErrorCode::kUsage,
         "loss_scale: the job does not scale its loss. Begin it with loss_scaling=dynamic.");
  }
  return runner().loss_scale();
}

Batch StepRun::with_scale(Batch batch) {
  if (captured_.scaling && !batch.empty()) batch.push_back(as_input(runner().loss_scale().scale));
  return batch;
}

double StepRun::run_local(const Batch& rows) {
  if (!rows.empty()) check_batch(rows, graph());  // a rank that has none may pass no tensors
  return run_rows(with_scale(rows));
}

// Before the next step.
bool StepRun::verifies() const {
  if (!captured_.trains()) return false;
  if (verifies_next_ && !program().is_placed()) return true;
  const std::int64_t every = job_.options().verify_every;
  if (every > 0 && step() % every == 0) return true;
  return !program().is_placed() && step() - first_step_ < job_.options().verify_first;
}

void StepRun::say_captures() {
  job_.say(fmt::format(
      "rank {}: {} captures in {} steps, as a number was new: {} Each takes as long as some steps.",
      job_.rank(), shapes_.captures_for_numbers(), step() - first_step_, shapes_.number_of_data()));
}

double StepRun::run_rows(const Batch& rows) {
  job_.check_children();
  capture::take_new_storage(graph(), captured_.bindings);
  const std::int64_t captures = shapes_.captures();
  if (verifies()) {
    const std::vector<Batch> parts = micro_batches(rows);
    if (!parts.empty()) shapes_.verify(runner(), parts.front());
  }
  verifies_next_ = false;
  const exec::StepResult result = run_parts(rows);
  if (!result.unrecorded.empty()) {
    job_.say(
        fmt::format("rank {}: steps are not recorded as graphs of the device, and go op by op: {}",
                    job_.rank(), result.unrecorded));
  }
  sums_ = result.sums;
  if (loss_series_) {
    uncompared_.push_back(sums_);
    compare_losses();
  }
  report_.captured = shapes_.captures() > captures;
  if (shapes_.captures_for_numbers() >= kSaidAtCaptures && !std::exchange(said_captures_, true)) {
    say_captures();
  }
  report_.step = step() - 1;
  report_.plan = plan_.name;
  report_.samples = result.samples;
  report_.overflow = result.overflow;
  report_.loss = result.samples > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
  report_.waiting = result.waiting;
  report_.total = result.compute + result.waiting;
  outputs_ = result.samples > 0 ? result.outputs : exec::no_outputs(graph());
  return report_.loss;
}

std::vector<Batch> StepRun::micro_batches(const Batch& rows) const {
  std::vector<Batch> parts;
  const auto count = static_cast<std::uint32_t>(job_.options().accumulate);
  for (std::uint32_t i = 0; !rows.empty() && i < count; ++i) {
    const Rows which = [&](std::int64_t all) {
      return captured_.rows_of_part(
          i, count, [&](std::uint32_t part) { return program::replica_rows(all, part, count); });
    };
    Batch part = count == 1 ? rows : part_of(rows, graph(), which);
    if (has_rows(part, graph())) parts.push_back(std::move(part));
  }
  return parts;
}

// The micro-batches of a step as one result.
exec::StepResult StepRun::run_parts(const Batch& rows) {
  const std::vector<Batch> parts = micro_batches(rows);
  if (program().is_placed()) return runner().step_of_stage(parts);
  if (parts.empty() || job_.options().accumulate == 1) return shapes_.step(runner(), rows);
  exec::StepResult whole;
  double loss = 0;
  const bool mean = graph().reduction == ir::Reduction::kMean;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const exec::StepResult part = shapes_.step(runner(), parts[i], i + 1 == parts.size());
    loss += part.loss * (mean ? static_cast<double>(part.samples) : 1);
    exec::add_outputs(graph(), part.outputs, part.samples, whole.samples, whole.outputs);
    whole.samples += part.samples;
    whole.compute += part.compute;
    whole.waiting += part.waiting;
    whole.overflow = part.overflow;  // of all so far
    whole.sums = part.sums;
    if (!part.unrecorded.empty()) whole.unrecorded = part.unrecorded;
  }
  whole.loss = mean ? loss / static_cast<double>(whole.samples) : loss;
  return whole;
}

double StepRun::run(const Batch& batch) {
  check_batch(batch, graph());
  const Batch whole = with_scale(batch);
  const std::uint32_t part = replica_of(program(), program::Rank(job_.rank()));
  if (program().batch_parts() == 1) return run_rows(whole);
  const Batch rows = part_of(
      whole, graph(), [&](std::int64_t all) { return part_rows(captured_, program(), all, part); });
  const bool compared = step() - first_step_ < kComparedBatches;
  if (compared) tell_batch(batch);
  const double loss = run_rows(rows);
  if (compared) told_batches_.push_back(sums_);
  compare_batches();
  return loss;
}

StepSummary StepRun::summarise(bool stop, bool save) {
  const auto call = begin_call(runner(), exec::Call::kSummarise);
  StepReport told = report_;
  // The stages of a replica have the same samples and the same loss: one of them tells.
  if (program().stage(program::Rank(job_.rank())) != 0) told.samples = 0;
  runner().tell(note_of(told, graph().reduction, stop, save));
  untold_.push_back(report_.step);
  // All ranks read a step's notes after the same number of steps, and none waits for what a rank
  // that may be behind has not done yet.
  const std::size_t lag = program().lag().value_or(kAsynchronousLag);
  // Under a plan with less lag than the one before: of several the last.
  while (before_.size() + untold_.size() > 1 + lag) read_notes();
  return summary_;
}

std::map<std::string, torch::Tensor> StepRun::run_and_fetch(const Batch& batch,
                                                            const std::vector<std::string>& names) {
  if (program().is_placed()) {
    fail(ErrorCode::kUsage,
         "run: values of a placed graph are at its stages; they cannot be asked for. Take a plan "
         "without a placement.");
  }
  const FetchNames sorted = sort_names(names, graph(), captured_.named.step);
  runner().watch(sorted.watched);
  run(batch);
  const auto call = begin_call(runner(), exec::Call::kRunAndFetch);
  std::vector<exec::Watched> own = runner().take_watched();
  for (const NamedTensor& buffer : captured_.named.step.buffers) {
    if (!contains(sorted.tensors, buffer.name)) continue;
    own.push_back({buffer.name, buffer.tensor.detach().clone(), false, false});
  }
  std::map<std::string, torch::Tensor> whole =
      join_parts(runner().share(pack_part(own, report_.samples, report_.loss)), graph().reduction);
  if (!sorted.tensors.empty()) runner().synchronize();
  for (const NamedTensor& parameter : captured_.named.step.parameters) {
    if (!contains(sorted.tensors, parameter.name)) continue;
    whole[parameter.name] = parameter.tensor.detach().clone();
  }
  if (!contains(names, ir::kLossName)) whole.erase(ir::kLossName);
  return whole;
}

std::vector<double> StepRun::sum_over_ranks(const std::vector<double>& values) {
  const auto call = begin_call(runner(), exec::Call::kSumOverRanks);
  std::vector<double> sums;
  const std::string own(reinterpret_cast<const char*>(values.data()),  // NOLINT: as they are
                        values.size() * sizeof(double));
  for (const std::string& each : runner().share(own)) {
    std::vector<double> theirs(each.size() / sizeof(double));
    std::memcpy(theirs.data(), each.data(), theirs.size() * sizeof(double));
    sums.resize(std::max(sums.size(), theirs.size()));
    for (std::size_t i = 0; i < theirs.size(); ++i) sums[i] += theirs[i];
  }
  return sums;
}

std::vector<StepSummary> StepRun::remaining_summaries() {
  std::vector<StepSummary> summaries;
  while (!before_.empty() || !untold_.empty()) {
    read_notes();
    summaries.push_back(summary_);
  }
  return summaries;
}

StepSummary StepRun::last_summary() {
  while (!before_.empty() || !untold_.empty()) read_notes();
  return summary_;
}

// Of the oldest step whose summary nobody has got.
void StepRun::read_notes() {
  if (before_.empty()) {
    summary_ = read_note();
  } else {
    summary_ = before_.front();
    before_.pop_front();
  }
}

// A step's notes can be read once.
StepSummary StepRun::read_note() {
  const auto call = enter_call(runner(), exec::Call::kSummarise);
  const std::int64_t step = untold_.front();
  untold_.pop_front();
  return summary_of(step, runner().told(static_cast<std::uint64_t>(step)), graph().reduction);
}

}  // namespace autodist::job
