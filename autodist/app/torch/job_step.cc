#include "autodist/app/torch/job_step.h"

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>
#include <utility>

#include "autodist/app/link_tuning.h"
#include "autodist/app/planning.h"
#include "autodist/app/torch/fetching.h"
#include "autodist/app/torch/job_search.h"
#include "autodist/app/torch/step_notes.h"
#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/capture/capture.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/link_probe.h"
#include "autodist/exec/outputs.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/names.h"
#include "autodist/passes/pipeline.h"

namespace autodist::app {
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
       near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

// Steps by which summaries lag where no version ties the ranks together: far enough that nobody
// waits for a rank that is slow for a while.
constexpr std::size_t kAsynchronousLag = 32;

// While the step is captured, between ops.
constexpr Seconds kBetweenOps{0.1};

// [begin, end) of so many rows.
using Rows = std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t rows)>;

// Those rows of a batch; what is not batched goes whole.
Batch part_of(const Batch& batch, const ir::Graph& graph, const Rows& which) {
  if (batch.size() != graph.inputs.size()) {
    const std::size_t ours = ir::scales_loss(graph) ? 1 : 0;
    fail(ErrorCode::kUsage, "batch: {} tensors, the step was captured with {}", batch.size() - ours,
         graph.inputs.size() - ours);
  }
  Batch part;
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!graph.inputs[i].batched) {
      part.push_back(batch[i]);
      continue;
    }
    if (batch[i].dim() == 0 || (rows >= 0 && batch[i].size(0) != rows)) {
      fail(ErrorCode::kUsage, "batch: input '{}' has {} rows, the others {}", graph.inputs[i].name,
           batch[i].dim() == 0 ? 0 : batch[i].size(0), rows);
    }
    rows = batch[i].size(0);
    const auto [begin, end] = which(rows);
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

torch::Tensor as_input(float scale) { return torch::full({}, scale, torch::kFloat32); }

std::optional<ir::LossScaling> scaling_of(const NamedStep& step, const JobOptions& options) {
  if (!step.optimizer || options.loss_scaling.empty()) return std::nullopt;
  return ir::parse_loss_scaling(options.loss_scaling);
}

// Names of the state of loss scaling in a checkpoint.
const std::string kScale = "loss_scaling.scale";
const std::string kGoodSteps = "loss_scaling.good_steps";
const std::string kSkipped = "loss_scaling.skipped";

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
  return step;
}

}  // namespace

JobStep::JobStep(JoinedJob& job, NamedStep step, std::uint32_t index)
    : job_(job),
      named_(std::move(step)),
      scaling_(scaling_of(named_, job.options())),
      captured_(as_captured(named_, scaling_)),
      index_(index) {
  const std::uint64_t seed = job_options().seed + index_;
  capture::Options options;
  options.seed = seed;
  options.scaled_loss = scaling_.has_value();
  // Every rank captures its own step, to bind its own tensors; only the chief's measured costs and
  // the chief's choice count.
  job_.show(fmt::format("capturing {}", captured_.name));
  options.look_around = [this, before = Seconds{0}]() mutable {
    const Seconds now = job_.clock().now();
    if (now - before < kBetweenOps) return;
    before = now;
    job_.look_around();
  };
  const bool measures = job_options().measure && job_.is_chief() && job_.size() > 1;
  if (!measures) options.cost_repetitions = 0;
  capture::CapturedStep captured = trains() ? capture::capture(captured_, options)
                                            : capture::capture_evaluation(captured_, options);
  if (trains()) ir::declare_updates(captured.graph, *named_.optimizer);
  graph_ = std::make_shared<const ir::Graph>(std::move(captured.graph));
  bindings_ = capture::bind(*graph_, captured_, torch::kCPU, captured.tensors.constants);
  job_.show(fmt::format("captured {}: {} ops, {} variables; choosing a strategy", graph_->name,
                        graph_->ops.size(), graph_->variables.size()));
  choose_strategy();
  job_.show("");
  const std::string what = name().empty() ? "program" : fmt::format("program of '{}'", name());
  comm::agree(job_.transport(), what, program::digest_of(*program_),
              fmt::format("graph '{}' {}, strategy {}", graph_->name,
                          to_string(ir::structural_digest(*graph_)).substr(0, 8), strategy_.id),
              job_options().join_limit);
  shapes_ = std::make_unique<ShapeCache>(captured_, trains(), std::move(captured.tensors), program_,
                                         program::Rank(job_.rank()), seed);
}

JobStep::~JobStep() = default;

std::string JobStep::optimizer() const {
  return trains() ? ir::to_string(*named_.optimizer) : "none";
}

void JobStep::choose_strategy() {
  const std::string& own = named_.builder.empty() ? job_options().builder : named_.builder;
  StrategyRequest request{own.empty() ? kDefaultBuilder : own,
                          named_.builder.empty() ? job_options().strategy_file : "",
                          job_options().builders, !name().empty()};
  pass_options_.cpu_only = job_options().cpu_only;
  pass_options_.micro_batches = job_options().accumulate;
  pass_options_.loss_scaling = scaling_;
  pass_options_.encrypted = job_.encrypts();
  // Ranks of one machine have no link to be careful with.
  std::optional<comm::LinkFigures> links;
  if (job_options().tune_links && job_.cluster().nodes.size() > 1 && job_.size() > 1) {
    links = comm::probe_links(job_.transport(), job_.clock(), ProcessCpuClock(),
                              job_options().join_limit);
  }
  if (request.builder == kSearch && request.file.empty() && job_.size() > 1) {
    const TrialStep what{graph_, &captured_, &bindings_, pass_options_,
                         job_options().seed + index_};
    strategy_ = search_together(job_, what, links, name().empty(), trials_);
  } else {
    if (request.builder == kSearch) request.builder = kDefaultBuilder;  // nobody to talk to
    strategy_ = build_together(request, links);
  }
  chosen_by_ = source_of(request);
  program_ = std::make_shared<const program::Program>(
      passes::rewrite(graph_, strategy_, job_.cluster(), pass_options_, chosen_by_));
  if (program_->is_placed()) check_placed();
}

// A builder's or a file's, by the chief.
strategy::Strategy JobStep::build_together(const StrategyRequest& request,
                                           const std::optional<comm::LinkFigures>& links) {
  std::string document;
  if (job_.is_chief()) {
    std::vector<std::string> warnings;
    strategy::Strategy chosen = app::choose_strategy(request, *graph_, job_.cluster(), warnings);
    if (links) put_tuning(*links, chosen);
    document = strategy::serialize(chosen);
    for (const std::string& warning : warnings) std::cerr << "autodist: " << warning << "\n";
  }
  document = comm::broadcast(job_.transport(), 0, document, "strategy", job_options().join_limit);
  return strategy::deserialize(document, "the chief's strategy");
}

// What needs the whole graph, or all variables, at every rank.
void JobStep::check_placed() const {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::kUsage, "{}: a placed graph, and {}", job_options().strategy_file, what);
  };
  if (job_options().verify_every > 0)
    refuse("verify_every; its steps cannot be compared at a rank");
  if (!name().empty()) refuse("a job of several steps; one expected");
  if (!trains()) refuse("a step that trains nothing");
}

void JobStep::resume(std::int64_t step, std::vector<NamedTensor> state,
                     std::vector<NamedTensor> owed) {
  first_step_ = step;
  for (NamedTensor& each : state) {
    if (each.name.rfind("loss_scaling.", 0) == 0) {
      initial_scale_[each.name] = each.tensor.item<double>();
    } else {
      initial_state_.push_back(std::move(each));
    }
  }
  initial_owed_ = std::move(owed);
}

void JobStep::start(comm::Transport& transport, comm::Collectives* collectives) {
  exec::RunnerOptions options;
  options.job_seed = job_options().seed + index_;
  options.first_step = static_cast<std::uint64_t>(first_step_);
  options.wait_limit = job_options().stall_limit;
  options.exchange.generation = generation();
  job_.set_pulse(options.exchange);
  options.exchange.first_contact = job_options().join_limit;
  options.trace = job_options().trace;
  options.trace_steps = job_options().trace_steps;
  options.on_nonfinite = job_options().on_nonfinite;
  options.user_rules = &job_options().user_rules;
  options.device_time = job_options().device_time;
  options.initial_values = std::move(initial_values_);
  runner_ = std::make_shared<exec::Runner>(
      program_, program::Rank(job_.rank()), bindings_,
      exec::RunnerConnections{&transport, collectives, &job_.clock()}, options);
  if (scaling_ && !initial_scale_.empty()) {
    runner_->set_loss_scale({static_cast<float>(initial_scale_.at(kScale)),
                             static_cast<std::int64_t>(initial_scale_.at(kGoodSteps)),
                             static_cast<std::int64_t>(initial_scale_.at(kSkipped))});
  }
  if (!initial_state_.empty()) runner_->load_state(initial_state_);
  runner_->load_owed(initial_owed_);
  initial_state_.clear();
  initial_owed_.clear();
}

std::vector<NamedTensor> JobStep::state() {
  std::vector<NamedTensor> state = runner_->gather_state();
  if (scaling_) {
    const ir::LossScale scale = runner_->loss_scale();
    state.push_back({kScale, torch::full({1}, scale.scale, torch::kFloat32)});
    state.push_back({kGoodSteps, torch::full({1}, scale.good_steps, torch::kInt64)});
    state.push_back({kSkipped, torch::full({1}, scale.skipped, torch::kInt64)});
  }
  return state;
}

void JobStep::note_values() {
  initial_values_.clear();
  for (const torch::Tensor& tensor : bindings_.variables) {
    initial_values_.push_back(exec::digest_of_values(tensor));
  }
}

JobLoss JobStep::job_number(std::size_t number) const {
  if (!sums_) fail(ErrorCode::kUsage, "job_loss: no step was run yet");
  const std::size_t known = exec::numbers_of(*graph_).size();
  if (number >= known) {
    fail(ErrorCode::kUsage, "job_number: {} of {}, the loss counted; the step returns no more",
         number, known);
  }
  return {sums_, runner_, number > 0 || graph_->reduction == ir::Reduction::kMean, number};
}

void JobStep::set_options(const std::map<std::string, std::map<std::string, double>>& options) {
  std::map<ir::VariableId, std::map<std::string, double>> known;
  for (const auto& [name, values] : options) known[trained(*graph_, name)] = values;
  for (std::size_t i = 0; i < graph_->variables.size(); ++i) {
    const ir::VariableId id(i);
    if (graph_->variables[i].gradient) runner_->set_options(id, known[id]);
  }
}

ir::LossScale JobStep::loss_scale() {
  if (!scaling_) fail(ErrorCode::kUsage, "loss_scale: the job does not scale its loss");
  return runner_->loss_scale();
}

Batch JobStep::with_scale(Batch batch) {
  if (scaling_ && !batch.empty()) batch.push_back(as_input(runner_->loss_scale().scale));
  return batch;
}

std::uint64_t JobStep::bytes_sent() const {
  return runner_ ? runner_->counters().payload_bytes_sent : 0;
}

std::int64_t JobStep::step() const {
  return runner_ ? static_cast<std::int64_t>(runner_->steps_done()) : first_step_;
}

std::uint32_t JobStep::replica() const {
  const program::Rank rank(job_.rank());
  AD_CHECK(program_->computes(rank)) << "a rank that only serves computes no part of a batch";
  return program_->batch_part(rank);
}

std::pair<std::int64_t, std::int64_t> JobStep::rows_of(std::int64_t batch) const {
  return program::part_rows(*program_, batch, replica());
}

double JobStep::run_local(const Batch& rows) { return run_rows(with_scale(rows)); }

// Before the next step.
bool JobStep::verifies() const {
  if (!trains()) return false;
  const std::int64_t every = job_options().verify_every;
  if (every > 0 && step() % every == 0) return true;
  return !program_->is_placed() && step() - first_step_ < job_options().verify_first;
}

double JobStep::run_rows(const Batch& rows) {
  job_.check_children();
  const std::int64_t captures = shapes_->captures();
  if (verifies()) shapes_->verify(*runner_, rows);
  const exec::StepResult result = run_parts(rows);
  sums_ = result.sums;
  report_.captured = shapes_->captures() > captures;
  report_.step = step() - 1;
  report_.samples = result.samples;
  report_.overflow = result.overflow;
  report_.loss = result.samples > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
  report_.waiting = result.waiting;
  report_.total = result.compute + result.waiting;
  outputs_ = result.samples > 0 ? result.outputs : exec::no_outputs(*graph_);
  return report_.loss;
}

std::vector<Batch> JobStep::micro_batches(const Batch& rows) const {
  std::vector<Batch> parts;
  const auto count = static_cast<std::uint32_t>(job_options().accumulate);
  for (std::uint32_t i = 0; !rows.empty() && i < count; ++i) {
    const Rows which = [&](std::int64_t all) { return program::replica_rows(all, i, count); };
    Batch part = count == 1 ? rows : part_of(rows, *graph_, which);
    if (has_rows(part, *graph_)) parts.push_back(std::move(part));
  }
  return parts;
}

// The micro-batches of a step as one result.
exec::StepResult JobStep::run_parts(const Batch& rows) {
  const std::vector<Batch> parts = micro_batches(rows);
  if (program_->is_placed()) return runner_->step_of_stage(parts);
  if (parts.empty() || job_options().accumulate == 1) return shapes_->step(*runner_, rows);
  exec::StepResult whole;
  double loss = 0;
  const bool mean = graph_->reduction == ir::Reduction::kMean;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const exec::StepResult part = shapes_->step(*runner_, parts[i], i + 1 == parts.size());
    loss += part.loss * (mean ? static_cast<double>(part.samples) : 1);
    exec::add_outputs(*graph_, part.outputs, part.samples, whole.samples, whole.outputs);
    whole.samples += part.samples;
    whole.compute += part.compute;
    whole.waiting += part.waiting;
    whole.overflow = part.overflow;  // of all so far
    whole.sums = part.sums;
  }
  whole.loss = mean ? loss / static_cast<double>(whole.samples) : loss;
  return whole;
}

double JobStep::run(const Batch& batch) {
  const Batch whole = with_scale(batch);
  const std::uint32_t part = replica();
  if (program_->batch_parts() == 1) return run_rows(whole);
  return run_rows(part_of(whole, *graph_, [&](std::int64_t rows) {
    return program::part_rows(*program_, rows, part);
  }));
}

exec::Calls::Scope JobStep::begin(exec::Call call) {
  return runner_->calls().begin(call, runner_->steps_done());
}

StepSummary JobStep::summarise(bool stop, bool save) {
  const auto call = begin(exec::Call::kSummarise);
  StepReport told = report_;
  // The stages of a replica have the same samples and the same loss: one of them tells.
  if (program_->stage(program::Rank(job_.rank())) != 0) told.samples = 0;
  runner_->tell(note_of(told, graph_->reduction, stop, save));
  untold_.push_back(report_.step);
  // All ranks read a step's notes after the same number of steps, and none waits for what a rank
  // that may be behind has not done yet.
  const std::size_t lag = program_->synchronous() ? program_->staleness() : kAsynchronousLag;
  if (untold_.size() > 1 + lag) read_notes();
  return summary_;
}

std::map<std::string, torch::Tensor> JobStep::run_and_fetch(const Batch& batch,
                                                            const std::vector<std::string>& names) {
  if (program_->is_placed()) {
    fail(ErrorCode::kUsage,
         "run: values of a placed graph are at its stages; they cannot be asked for");
  }
  const FetchNames sorted = sort_names(names, *graph_, named_.step);
  runner_->watch(sorted.watched);
  run(batch);
  const auto call = begin(exec::Call::kRunAndFetch);
  std::vector<exec::Watched> own = runner_->take_watched();
  for (const NamedTensor& buffer : named_.step.buffers) {
    if (!contains(sorted.tensors, buffer.name)) continue;
    own.push_back({buffer.name, buffer.tensor.detach().clone(), false, false});
  }
  std::map<std::string, torch::Tensor> whole =
      join_parts(runner_->share(pack_part(own, report_.samples, report_.loss)), graph_->reduction);
  if (!sorted.tensors.empty()) runner_->synchronize();
  for (const NamedTensor& parameter : named_.step.parameters) {
    if (!contains(sorted.tensors, parameter.name)) continue;
    whole[parameter.name] = parameter.tensor.detach().clone();
  }
  if (!contains(names, ir::kLossName)) whole.erase(ir::kLossName);
  return whole;
}

std::vector<double> JobStep::sum_over_ranks(const std::vector<double>& values) {
  const auto call = begin(exec::Call::kSumOverRanks);
  std::vector<double> sums;
  const std::string own(reinterpret_cast<const char*>(values.data()),  // NOLINT: as they are
                        values.size() * sizeof(double));
  for (const std::string& each : runner_->share(own)) {
    std::vector<double> theirs(each.size() / sizeof(double));
    std::memcpy(theirs.data(), each.data(), theirs.size() * sizeof(double));
    sums.resize(std::max(sums.size(), theirs.size()));
    for (std::size_t i = 0; i < theirs.size(); ++i) sums[i] += theirs[i];
  }
  return sums;
}

std::vector<StepSummary> JobStep::remaining_summaries() {
  std::vector<StepSummary> summaries;
  while (!untold_.empty()) {
    read_notes();
    summaries.push_back(summary_);
  }
  return summaries;
}

StepSummary JobStep::last_summary() {
  while (!untold_.empty()) read_notes();
  return summary_;
}

// A step's notes can be read once; what they said is kept.
void JobStep::read_notes() {
  const auto call = runner_->calls().enter(exec::Call::kSummarise, runner_->steps_done());
  const std::int64_t step = untold_.front();
  untold_.pop_front();
  summary_ = summary_of(step, runner_->told(static_cast<std::uint64_t>(step)), graph_->reduction);
}

}  // namespace autodist::app
