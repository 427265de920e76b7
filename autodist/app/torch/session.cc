// The story, in code: capture, choose, rewrite, agree, run.

#include "autodist/app/torch/session.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <iostream>
#include <limits>
#include <optional>

#include "autodist/app/planning.h"
#include "autodist/app/torch/fetching.h"
#include "autodist/app/torch/joined_job.h"
#include "autodist/app/torch/session_state.h"
#include "autodist/app/torch/shape_cache.h"
#include "autodist/app/torch/step_notes.h"
#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/capture/export.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/ir/names.h"
#include "autodist/passes/pipeline.h"

namespace autodist {

namespace {

// Steps by which summaries lag where no version ties the ranks together: far enough that nobody
// waits for a rank that is slow for a while.
constexpr std::size_t kAsynchronousLag = 32;

// The rows of a batch that replica `index` of `count` takes; what is not batched goes whole.
Batch part_of(const Batch& batch, const ir::Graph& graph, std::uint32_t index,
              std::uint32_t count) {
  if (count == 1) return batch;
  if (batch.size() != graph.inputs.size()) {
    fail(ErrorCode::kUsage, "batch: {} tensors, the step was captured with {}", batch.size(),
         graph.inputs.size());
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
    const auto [begin, end] = ir::replica_rows(rows, index, count);
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

}  // namespace

struct AutoDist::Impl : app::JoinedJob {
  using JoinedJob::JoinedJob;
};

class Session::Impl {
 public:
  Impl(std::unique_ptr<AutoDist::Impl> job, TrainingStep step, const ir::Optimizer& optimizer)
      : job_(std::move(job)), step_(std::move(step)), optimizer_(optimizer) {
    if (job_options().accumulate < 1) {
      fail(ErrorCode::kUsage, "JobOptions: accumulate={}, 1 or more micro-batches expected",
           job_options().accumulate);
    }
    capture_and_plan();
    agree_and_start();
  }

  ~Impl() {
    // Without finish() the runner's destructor tells the peers that this rank leaves early.
    runner_.reset();
    collectives_.reset();
  }

  // Every rank captures its own step, to bind its own tensors; only the chief's measured costs and
  // the chief's choice count.
  void capture_and_plan() {
    capture::Options options;
    options.seed = job_options().seed;
    const bool measures = job_options().measure && is_chief() && job_->size() > 1;
    if (!measures) options.cost_repetitions = 0;
    capture::CapturedStep captured = capture::capture(step_, options);
    ir::declare_updates(captured.graph, optimizer_);
    graph_ = std::make_shared<const ir::Graph>(std::move(captured.graph));
    tensors_ = std::move(captured.tensors);
    const app::StrategyRequest request{
        job_options().builder.empty() ? app::kDefaultBuilder : job_options().builder,
        job_options().strategy_file, job_options().builders};
    std::string document;
    if (is_chief()) {
      std::vector<std::string> warnings;
      document =
          strategy::serialize(app::choose_strategy(request, *graph_, job_->cluster(), warnings));
      for (const std::string& warning : warnings) std::cerr << "autodist: " << warning << "\n";
    }
    document =
        comm::broadcast(job_->transport(), 0, document, "strategy", job_options().join_limit);
    strategy_ = strategy::deserialize(document, "the chief's strategy");
    passes::Options rewrite_options;
    rewrite_options.cpu_only = job_options().cpu_only;
    rewrite_options.micro_batches = job_options().accumulate;
    program_ = std::make_shared<const ir::Program>(passes::rewrite(
        graph_, strategy_, job_->cluster(), rewrite_options, app::source_of(request)));
  }

  void agree_and_start() {
    comm::Transport& transport = job_->transport();
    const Seconds limit = job_options().join_limit;
    comm::agree(transport, "program", ir::digest_of(*program_),
                fmt::format("graph '{}' {}, strategy {}", graph_->name,
                            to_string(ir::structural_digest(*graph_)).substr(0, 8), strategy_.id),
                limit);
    bindings_ = capture::bind(*graph_, step_, torch::kCPU, tensors_.constants);
    if (is_chief() && !job_options().initial_weights.empty()) {
      app::put_weights(job_options().initial_weights, step_);
    }
    exec::broadcast_initial(transport, *graph_, bindings_, limit);
    shapes_ = std::make_unique<app::ShapeCache>(step_, std::move(tensors_), program_,
                                                ir::Rank(job_->rank()), job_options().seed);
    if (!program_->collectives.empty()) {
      collectives_ = comm::make_gloo(transport, job_->own_address(), limit);
    }
  }

  // Made when it is first needed: a checkpoint is loaded before, while the transport is still free
  // for agreements.
  exec::Runner& runner() {
    if (runner_) return *runner_;
    exec::RunnerOptions options;
    options.job_seed = job_options().seed;
    options.first_step = static_cast<std::uint64_t>(first_step_);
    options.wait_limit = job_options().stall_limit;
    options.trace = job_options().trace;
    options.on_nonfinite = job_options().on_nonfinite;
    options.user_rules = &job_options().user_rules;
    runner_ = std::make_unique<exec::Runner>(
        program_, ir::Rank(job_->rank()), bindings_,
        exec::RunnerConnections{&job_->transport(), collectives_.get(), &job_->clock()}, options);
    if (!initial_state_.empty()) runner_->load_state(initial_state_);
    runner_->load_owed(initial_owed_);
    initial_state_.clear();
    initial_owed_.clear();
    return *runner_;
  }

  [[nodiscard]] std::int64_t step() const {
    return runner_ ? static_cast<std::int64_t>(runner_->steps_done()) : first_step_;
  }

  double run_local(const Batch& rows) {
    job_->check_children();
    const std::int64_t every = job_options().verify_every;
    if (every > 0 && step() % every == 0) shapes_->verify(runner(), rows);
    const std::int64_t captures = shapes_->captures();
    const exec::StepResult result = run_parts(rows);
    report_.captured = shapes_->captures() > captures;
    report_.step = step() - 1;
    report_.samples = result.samples;
    report_.loss = result.samples > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
    report_.waiting = result.waiting;
    report_.total = result.compute + result.waiting;
    return report_.loss;
  }

  // The micro-batches of a step as one result.
  exec::StepResult run_parts(const Batch& rows) {
    std::vector<Batch> parts;
    const auto count = static_cast<std::uint32_t>(job_options().accumulate);
    for (std::uint32_t i = 0; count > 1 && !rows.empty() && i < count; ++i) {
      Batch part = part_of(rows, *graph_, i, count);
      if (has_rows(part, *graph_)) parts.push_back(std::move(part));
    }
    if (parts.empty()) return shapes_->step(runner(), rows);
    exec::StepResult whole;
    double loss = 0;
    const bool mean = graph_->reduction == ir::Reduction::kMean;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const exec::StepResult part = shapes_->step(runner(), parts[i], i + 1 == parts.size());
      loss += part.loss * (mean ? static_cast<double>(part.samples) : 1);
      whole.samples += part.samples;
      whole.compute += part.compute;
      whole.waiting += part.waiting;
    }
    whole.loss = mean ? loss / static_cast<double>(whole.samples) : loss;
    return whole;
  }

  double run(const Batch& batch) {
    return run_local(part_of(batch, *graph_, replica(), program_->replica_count()));
  }

  StepSummary summarise(bool stop, bool save) {
    runner().tell(app::note_of(report_, graph_->reduction, stop, save));
    untold_.push_back(report_.step);
    // All ranks read a step's notes after the same number of steps, and none waits for what a rank
    // that may be behind has not done yet.
    const std::size_t lag = program_->synchronous() ? program_->staleness() : kAsynchronousLag;
    if (untold_.size() > 1 + lag) read_notes();
    return last_;
  }

  std::map<std::string, torch::Tensor> run_and_fetch(const Batch& batch,
                                                     const std::vector<std::string>& names) {
    const app::FetchNames sorted = app::sort_names(names, *graph_, step_);
    runner().watch(sorted.watched);
    run(batch);
    std::vector<exec::Watched> own = runner().take_watched();
    for (const NamedTensor& buffer : step_.buffers) {
      if (!contains(sorted.tensors, buffer.name)) continue;
      own.push_back({buffer.name, buffer.tensor.detach().clone(), false, false});
    }
    std::map<std::string, torch::Tensor> whole = app::join_parts(
        runner().share(app::pack_part(own, report_.samples, report_.loss)), graph_->reduction);
    if (!sorted.tensors.empty()) runner().synchronize();
    for (const NamedTensor& parameter : step_.parameters) {
      if (!contains(sorted.tensors, parameter.name)) continue;
      whole[parameter.name] = parameter.tensor.detach().clone();
    }
    if (!contains(names, ir::kLossName)) whole.erase(ir::kLossName);
    return whole;
  }

  std::vector<double> sum_over_ranks(const std::vector<double>& values) {
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

  [[nodiscard]] std::uint32_t replica() const {
    const auto& replica = program_->ranks[job_->rank()].replica;
    AD_CHECK(replica) << "a rank that only serves computes no part of a batch";
    return *replica;
  }

  std::vector<StepSummary> remaining_summaries() {
    std::vector<StepSummary> summaries;
    while (!untold_.empty()) {
      read_notes();
      summaries.push_back(last_);
    }
    return summaries;
  }

  StepSummary last_summary() {
    while (!untold_.empty()) read_notes();
    return last_;
  }

  std::vector<torch::Tensor> evaluate(const Batch& batch) {
    if (!step_.evaluate) {
      fail(ErrorCode::kUsage, "evaluate: the step '{}' has no evaluation function", step_.name);
    }
    runner().synchronize();
    return step_.evaluate(batch);
  }

  // The optimizer's state lies with the owners and the statistics with the replicas: the chief
  // gathers.
  void save(const std::string& directory) {
    if (saved_at_ == step()) {
      fail(ErrorCode::kUsage, "save: {}: step {} was saved already; once between two steps",
           directory, step());
    }
    saved_at_ = step();
    exec::Checkpoint checkpoint;
    for (const auto& [rank, buffers] : runner().gather_buffers()) {
      if (rank != 0 && !buffers.empty()) checkpoint.replicas[rank] = app::to_data(buffers);
    }
    for (const auto& [rank, owed] : runner().gather_owed()) {
      const std::vector<exec::TensorData> data = app::to_data(owed);
      std::vector<exec::TensorData>& all = checkpoint.replicas[rank];
      all.insert(all.end(), data.begin(), data.end());
    }
    if (is_chief()) write(checkpoint, directory);
    if (!program_->synchronous()) runner().end_gathering();
  }

  void write(exec::Checkpoint& checkpoint, const std::string& directory) {
    checkpoint.step = step();
    checkpoint.program_digest = to_string(ir::digest_of(*program_));
    checkpoint.optimizer = ir::to_string(optimizer_);
    checkpoint.model = app::model_tensors(step_);
    checkpoint.optimizer_state = app::to_data(runner().gather_state());
    exec::RealFileSystem files;
    exec::write_checkpoint(files, directory, checkpoint);
  }

  void export_torchscript(const std::string& path) {
    runner().synchronize();
    if (is_chief()) capture::export_torchscript(step_, path);
  }

  std::int64_t load(const std::string& directory) {
    if (runner_) {
      fail(ErrorCode::kUsage, "load: {}: the training is under way; load before the first step",
           directory);
    }
    comm::Transport& transport = job_->transport();
    const Seconds limit = job_options().join_limit;
    // One reader: every rank starts from the same checkpoint, also when a newer one appears
    // meanwhile.
    app::LoadedState state;
    if (is_chief()) state = app::load_at_chief(directory, step_, *program_);
    const exec::Safetensors optimizer = exec::read_safetensors(
        comm::broadcast(transport, 0, state.optimizer, "checkpoint", limit), directory);
    exec::broadcast_initial(transport, *graph_, bindings_, limit);
    initial_owed_ =
        app::put_replica(comm::broadcast(transport, 0, state.replicas, "replicas", limit),
                         job_->rank(), step_, directory);
    first_step_ = std::stoll(optimizer.metadata.at("step"));
    for (const exec::TensorData& each : optimizer.tensors) {
      initial_state_.push_back(exec::to_tensor(each));
    }
    return first_step_;
  }

  void finish() {
    runner().finish();
    // All ranks have said goodbye, and so are through with their collectives.
    collectives_.reset();
    job_->wait_for_children();
  }

  [[nodiscard]] const JobOptions& job_options() const { return job_->options(); }
  [[nodiscard]] bool is_chief() const { return job_->is_chief(); }

  std::unique_ptr<AutoDist::Impl> job_;
  TrainingStep step_;
  ir::Optimizer optimizer_;
  capture::Bindings tensors_;  // of the capture, until all have agreed
  std::shared_ptr<const ir::Graph> graph_;
  strategy::Strategy strategy_;
  std::shared_ptr<const ir::Program> program_;
  capture::Bindings bindings_;
  std::unique_ptr<comm::Collectives> collectives_;
  std::unique_ptr<exec::Runner> runner_;
  std::unique_ptr<app::ShapeCache> shapes_;
  StepReport report_;
  std::int64_t first_step_ = 0;
  std::vector<NamedTensor> initial_state_;  // of the update rules, from a checkpoint
  std::vector<NamedTensor> initial_owed_;   // by compression, likewise

 private:
  // A step's notes can be read once; what they said is kept.
  void read_notes() {
    const std::int64_t step = untold_.front();
    untold_.pop_front();
    last_ =
        app::summary_of(step, runner().told(static_cast<std::uint64_t>(step)), graph_->reduction);
  }

  std::optional<std::int64_t> saved_at_;  // the step
  std::deque<std::int64_t> untold_;       // steps whose notes were not read yet
  StepSummary last_;
};

Session AutoDist::distribute(TrainingStep step, const ir::Optimizer& optimizer) {
  AD_CHECK(impl_ != nullptr) << "distribute() was called before";
  return Session(std::make_unique<Session::Impl>(std::move(impl_), std::move(step), optimizer));
}

AutoDist::AutoDist(const std::string& cluster, JobOptions options)
    : impl_(std::make_unique<Impl>(cluster, std::move(options))) {
  rank_ = impl_->rank();
  size_ = impl_->size();
  launcher_ = impl_->launcher();
}
AutoDist::~AutoDist() = default;
AutoDist::AutoDist(AutoDist&&) noexcept = default;

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

double Session::run(const Batch& batch) { return impl_->run(batch); }
double Session::run_local(const Batch& rows) { return impl_->run_local(rows); }
const StepReport& Session::last() const { return impl_->report_; }
StepSummary Session::summarise(bool stop, bool save) { return impl_->summarise(stop, save); }
StepSummary Session::last_summary() { return impl_->last_summary(); }
std::map<std::string, torch::Tensor> Session::run_and_fetch(const Batch& batch,
                                                            const std::vector<std::string>& names) {
  return impl_->run_and_fetch(batch, names);
}
std::vector<double> Session::sum_over_ranks(const std::vector<double>& values) {
  return impl_->sum_over_ranks(values);
}
std::vector<StepSummary> Session::remaining_summaries() { return impl_->remaining_summaries(); }
std::uint32_t Session::replica() const { return impl_->replica(); }
std::uint32_t Session::replicas() const { return impl_->program_->replica_count(); }
void Session::synchronize() { impl_->runner().synchronize(); }
std::vector<torch::Tensor> Session::evaluate(const Batch& batch) { return impl_->evaluate(batch); }
void Session::save(const std::string& directory) { impl_->save(directory); }
void Session::export_torchscript(const std::string& path) { impl_->export_torchscript(path); }
std::int64_t Session::load(const std::string& directory) { return impl_->load(directory); }
std::int64_t Session::step() const { return impl_->step(); }
std::uint32_t Session::rank() const { return impl_->job_->rank(); }
std::uint32_t Session::size() const { return impl_->job_->size(); }
const ir::Graph& Session::graph() const { return *impl_->graph_; }
const ir::Program& Session::program() const { return *impl_->program_; }
const strategy::Strategy& Session::strategy() const { return impl_->strategy_; }
ir::Trace Session::take_trace() { return impl_->runner().take_trace(); }
void Session::finish() { impl_->finish(); }

}  // namespace autodist
