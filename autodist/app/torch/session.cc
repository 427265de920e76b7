// The story, in code: capture, choose, rewrite, agree, run.

#include "autodist/app/torch/session.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <mutex>
#include <thread>

#include "autodist/app/job.h"
#include "autodist/app/launch.h"
#include "autodist/app/planning.h"
#include "autodist/app/torch/session_state.h"
#include "autodist/app/torch/shape_cache.h"
#include "autodist/base/check.h"
#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/capture/capture.h"
#include "autodist/cluster/address.h"
#include "autodist/cluster/cluster.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/comm/in_process.h"
#include "autodist/comm/rendezvous.h"
#include "autodist/exec/checkpoint.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/start.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/passes/pipeline.h"

namespace autodist {

Sgd::Sgd(double lr, double momentum, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kSgd);
  rule.options["lr"] = lr;
  rule.options["momentum"] = momentum;
  rule.options["weight_decay"] = weight_decay;
}

Adam::Adam(double lr, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kAdam);
  rule.options["lr"] = lr;
  rule.options["weight_decay"] = weight_decay;
}

AdamW::AdamW(double lr, double weight_decay) {
  rule = ir::default_rule(ir::Rule::kAdamW);
  rule.options["lr"] = lr;
  rule.options["weight_decay"] = weight_decay;
}

namespace {

// A summary travels as plain numbers, one note per rank and step.
struct Note {
  double loss_times_samples = 0;
  double samples = 0;
  double stop = 0;
  double save = 0;

  [[nodiscard]] std::string pack() const {
    return {reinterpret_cast<const char*>(this), sizeof *this};
  }
  static Note unpack(const std::string& bytes) {
    Note note;
    AD_CHECK(bytes.size() == sizeof note) << "a note of " << bytes.size() << " bytes";
    std::memcpy(&note, bytes.data(), sizeof note);
    return note;
  }
};

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

// Every rank's lines, whole, on standard error.
app::LocalRanks::Output prefixed_lines() {
  auto mutex = std::make_shared<std::mutex>();
  return [mutex](std::uint32_t rank, const std::string& line) {
    const std::lock_guard<std::mutex> lock(*mutex);
    std::cerr << "[rank " << rank << "] " << line << "\n";
  };
}

bool is_here(const std::string& address) { return cluster::is_loopback(address); }

}  // namespace

// What the ranks share before a step is known: places, processes, the transport.
class AutoDist::Impl {
 public:
  Impl(const std::string& specification, JobOptions options)
      : options_(std::move(options)),
        cluster_(cluster::read_cluster(specification)),
        size_(static_cast<std::uint32_t>(cluster::ranks_of(cluster_, options_.cpu_only).size())) {
    share_cores();
    if (const auto place = app::job_from_environment(app::process_environment())) {
      check_size(*place, specification);
      place_ = *place;
      if (size_ > 1) join_started(*place);
    } else {
      place_.size = size_;
      if (size_ > 1) start_and_join(specification);
    }
    if (!transport_) {
      alone_ = std::make_unique<comm::InProcessHub>(1);
      transport_ = alone_->connect(0);
    }
  }

  JobOptions options_;
  cluster::Cluster cluster_;
  std::uint32_t size_;
  app::JobPlace place_;
  SteadyClock clock_;
  std::unique_ptr<app::LocalRanks> children_;
  std::unique_ptr<comm::InProcessHub> alone_;
  std::unique_ptr<comm::Transport> transport_;

 private:
  // Ranks of one machine share its cores; more threads than cores only wait for each other.
  void share_cores() const {
    if (app::process_environment()("OMP_NUM_THREADS")) return;
    const std::uint32_t here = cluster_.nodes.size() == 1 ? size_ : 1;
    const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / here));
    torch::set_num_threads(threads);
    // Debian's OpenBLAS has threads of its own, which libtorch's setting does not reach.
    using SetThreads = void (*)(int);
    const auto set_blas_threads =
        reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
    if (set_blas_threads != nullptr) set_blas_threads(threads);
  }

  void check_size(const app::JobPlace& place, const std::string& specification) const {
    if (place.size != size_) {
      fail(ErrorCode::kUsage, "environment: AUTODIST_SIZE={}, but {} has {} ranks", place.size,
           specification, size_);
    }
  }

  comm::RendezvousOptions rendezvous() const {
    comm::RendezvousOptions options;
    options.rank = place_.rank;
    options.size = place_.size;
    options.chief_address = place_.chief_address;
    options.chief_port = place_.chief_port;
    options.own_address = place_.own_address;
    options.job_key = place_.key;
    options.build = AUTODIST_VERSION;
    options.limit = options_.join_limit;
    return options;
  }

  void join_started(const app::JobPlace& place) {
    if (place.rank != 0) {
      transport_ = comm::join(rendezvous(), nullptr);
      return;
    }
    comm::ChiefListener listener(place.chief_address, place.chief_port);
    transport_ = comm::join(rendezvous(), &listener);
  }

  void start_and_join(const std::string& specification) {
    for (const cluster::Node& node : cluster_.nodes) {
      if (cluster_.nodes.size() == 1 || is_here(node.address)) continue;
      fail(ErrorCode::kUsage,
           "{}: node {} is another machine. Start the program on every node yourself, with "
           "AUTODIST_RANK, AUTODIST_SIZE, AUTODIST_CHIEF and AUTODIST_KEY_FILE set.",
           specification, node.address);
    }
    comm::ChiefListener listener(place_.chief_address, 0);
    place_.chief_port = listener.port();
    place_.key = app::make_job_key();
    children_ =
        std::make_unique<app::LocalRanks>(app::own_command_line(), 1, size_ - 1, place_,
                                          options_.output ? options_.output : prefixed_lines());
    transport_ = comm::join(rendezvous(), &listener);
  }
};

class Session::Impl {
 public:
  Impl(std::unique_ptr<AutoDist::Impl> job, TrainingStep step, const ir::Optimizer& optimizer)
      : job_(std::move(job)), step_(std::move(step)), optimizer_(optimizer) {
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
    options.seed = job_->options_.seed;
    const bool measures = job_->options_.measure && is_chief() && job_->size_ > 1;
    if (!measures) options.cost_repetitions = 0;
    capture::CapturedStep captured = capture::capture(step_, options);
    ir::declare_updates(captured.graph, optimizer_);
    graph_ = std::make_shared<const ir::Graph>(std::move(captured.graph));
    tensors_ = std::move(captured.tensors);
    const app::StrategyRequest request{
        job_->options_.builder.empty() ? app::kDefaultBuilder : job_->options_.builder,
        job_->options_.strategy_file};
    std::string document;
    if (is_chief()) {
      std::vector<std::string> warnings;
      document =
          strategy::serialize(app::choose_strategy(request, *graph_, job_->cluster_, warnings));
      for (const std::string& warning : warnings) std::cerr << "autodist: " << warning << "\n";
    }
    document =
        comm::broadcast(*job_->transport_, 0, document, "strategy", job_->options_.join_limit);
    strategy_ = strategy::deserialize(document, "the chief's strategy");
    passes::Options rewrite_options;
    rewrite_options.cpu_only = job_->options_.cpu_only;
    program_ = std::make_shared<const ir::Program>(passes::rewrite(
        graph_, strategy_, job_->cluster_, rewrite_options, app::source_of(request)));
  }

  void agree_and_start() {
    comm::Transport& transport = *job_->transport_;
    const Seconds limit = job_->options_.join_limit;
    comm::agree(transport, "program", ir::digest_of(*program_),
                fmt::format("graph '{}' {}, strategy {}", graph_->name,
                            to_string(ir::structural_digest(*graph_)).substr(0, 8), strategy_.id),
                limit);
    bindings_ = capture::bind(*graph_, step_, torch::kCPU, tensors_.constants);
    if (is_chief() && !job_->options_.initial_weights.empty()) {
      app::put_weights(job_->options_.initial_weights, step_);
    }
    exec::broadcast_initial(transport, *graph_, bindings_, limit);
    shapes_ = std::make_unique<app::ShapeCache>(step_, std::move(tensors_), program_,
                                                ir::Rank(job_->place_.rank), job_->options_.seed);
    if (!program_->collectives.empty()) {
      collectives_ = comm::make_gloo(transport, job_->place_.own_address, limit);
    }
  }

  // Made when it is first needed: a checkpoint is loaded before, while the transport is still free
  // for agreements.
  exec::Runner& runner() {
    if (runner_) return *runner_;
    exec::RunnerOptions options;
    options.job_seed = job_->options_.seed;
    options.first_step = static_cast<std::uint64_t>(first_step_);
    options.wait_limit = job_->options_.stall_limit;
    options.trace = job_->options_.trace;
    options.on_nonfinite = job_->options_.on_nonfinite;
    options.user_rules = &job_->options_.user_rules;
    runner_ = std::make_unique<exec::Runner>(
        program_, ir::Rank(job_->place_.rank), bindings_,
        exec::RunnerConnections{job_->transport_.get(), collectives_.get(), &job_->clock_},
        options);
    if (!initial_state_.empty()) runner_->load_state(initial_state_);
    initial_state_.clear();
    return *runner_;
  }

  [[nodiscard]] std::int64_t step() const {
    return runner_ ? static_cast<std::int64_t>(runner_->steps_done()) : first_step_;
  }

  double run_local(const Batch& rows) {
    check_children();
    const std::int64_t every = job_->options_.verify_every;
    if (every > 0 && step() % every == 0) shapes_->verify(runner(), rows);
    const std::int64_t captures = shapes_->captures();
    const exec::StepResult result = shapes_->step(runner(), rows);
    report_.captured = shapes_->captures() > captures;
    report_.step = step() - 1;
    report_.samples = result.samples;
    report_.loss = result.samples > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN();
    report_.waiting = result.waiting;
    report_.total = result.compute + result.waiting;
    return report_.loss;
  }

  double run(const Batch& batch) {
    const auto& replica = program_->ranks[job_->place_.rank].replica;
    AD_CHECK(replica) << "a rank that only serves runs no steps";
    return run_local(part_of(batch, *graph_, *replica, program_->replica_count()));
  }

  StepSummary summarise(bool stop, bool save) {
    Note note;
    if (report_.samples > 0) {
      note.samples = static_cast<double>(report_.samples);
      note.loss_times_samples =
          report_.loss * (graph_->reduction == ir::Reduction::kMean ? note.samples : 1);
    }
    note.stop = stop ? 1 : 0;
    note.save = save ? 1 : 0;
    const StepSummary before = last_summary();
    runner().tell(note.pack());
    pending_ = report_.step;
    return before;
  }

  // A step's notes can be read once; what they said is kept.
  StepSummary last_summary() {
    if (pending_ >= 0) last_ = summary_of(pending_);
    pending_ = -1;
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
    exec::Checkpoint checkpoint;
    for (const auto& [rank, buffers] : runner().gather_buffers()) {
      if (rank != 0 && !buffers.empty()) checkpoint.replicas[rank] = app::to_data(buffers);
    }
    if (!is_chief()) return;
    checkpoint.step = step();
    checkpoint.program_digest = to_string(ir::digest_of(*program_));
    checkpoint.optimizer = ir::to_string(optimizer_);
    checkpoint.model = app::model_tensors(step_);
    checkpoint.optimizer_state = app::to_data(runner().gather_state());
    exec::RealFileSystem files;
    exec::write_checkpoint(files, directory, checkpoint);
  }

  std::int64_t load(const std::string& directory) {
    if (runner_) {
      fail(ErrorCode::kUsage, "load: {}: the training is under way; load before the first step",
           directory);
    }
    comm::Transport& transport = *job_->transport_;
    const Seconds limit = job_->options_.join_limit;
    // One reader: every rank starts from the same checkpoint, also when a newer one appears
    // meanwhile.
    app::LoadedState state;
    if (is_chief()) state = app::load_at_chief(directory, step_, *program_);
    const exec::Safetensors optimizer = exec::read_safetensors(
        comm::broadcast(transport, 0, state.optimizer, "checkpoint", limit), directory);
    exec::broadcast_initial(transport, *graph_, bindings_, limit);
    app::put_replica(comm::broadcast(transport, 0, state.replicas, "replicas", limit),
                     job_->place_.rank, step_, directory);
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
    if (job_->children_) job_->children_->wait(job_->options_.join_limit);
  }

  [[nodiscard]] bool is_chief() const { return job_->place_.rank == 0; }

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

 private:
  // A child that died is named at once, without waiting for its heartbeats.
  void check_children() {
    if (!job_->children_) return;
    if (const auto failure = job_->children_->failure())
      throw Error(ErrorCode::kPeersLost, *failure);
  }

  StepSummary summary_of(std::int64_t step) {
    StepSummary summary;
    summary.step = step;
    double loss = 0;
    double samples = 0;
    for (const std::string& bytes : runner().told(static_cast<std::uint64_t>(step))) {
      const Note note = Note::unpack(bytes);
      loss += note.loss_times_samples;
      samples += note.samples;
      summary.stop = summary.stop || note.stop > 0;
      summary.save = summary.save || note.save > 0;
    }
    summary.samples = static_cast<std::int64_t>(samples);
    const bool mean = graph_->reduction == ir::Reduction::kMean;
    summary.loss = mean && samples > 0 ? loss / samples : loss;
    return summary;
  }

  std::int64_t pending_ = -1;  // the step whose notes were not read yet
  StepSummary last_;
};

Session AutoDist::distribute(TrainingStep step, const ir::Optimizer& optimizer) {
  AD_CHECK(impl_ != nullptr) << "distribute() was called before";
  return Session(std::make_unique<Session::Impl>(std::move(impl_), std::move(step), optimizer));
}

AutoDist::AutoDist(const std::string& cluster, JobOptions options)
    : impl_(std::make_unique<Impl>(cluster, std::move(options))) {
  rank_ = impl_->place_.rank;
  size_ = impl_->size_;
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
void Session::synchronize() { impl_->runner().synchronize(); }
std::vector<torch::Tensor> Session::evaluate(const Batch& batch) { return impl_->evaluate(batch); }
void Session::save(const std::string& directory) { impl_->save(directory); }
std::int64_t Session::load(const std::string& directory) { return impl_->load(directory); }
std::int64_t Session::step() const { return impl_->step(); }
std::uint32_t Session::rank() const { return impl_->job_->place_.rank; }
std::uint32_t Session::size() const { return impl_->job_->size_; }
const ir::Graph& Session::graph() const { return *impl_->graph_; }
const ir::Program& Session::program() const { return *impl_->program_; }
const strategy::Strategy& Session::strategy() const { return impl_->strategy_; }
ir::Trace Session::take_trace() { return impl_->runner().take_trace(); }
void Session::finish() { impl_->finish(); }

}  // namespace autodist
