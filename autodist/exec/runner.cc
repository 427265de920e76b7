#include "autodist/exec/runner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/nonfinite.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/synchroniser.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/ir/history.h"
#include "autodist/ir/names.h"

namespace autodist::exec {
namespace {

void check_connections(const ir::Program& program, ir::Rank rank,
                       const RunnerConnections& connections) {
  AD_CHECK(connections.clock != nullptr) << "a runner needs a clock";
  for (const ir::Collective& collective : program.collectives) {
    if (collective.members.size() > 1 && connections.collectives == nullptr) {
      fail(ErrorCode::kEnvironment,
           "run: the plan has library all-reduces ({}), rank {} has no collective library.",
           collective.spec, rank);
    }
  }
}

void shift(ir::Trace& trace, Seconds by) {
  for (ir::TraceRow& row : trace.rows) {
    row.start += by;
    row.end += by;
  }
}

}  // namespace

ShapedStep::ShapedStep(std::shared_ptr<const ir::Program> program, ir::Rank rank,
                       capture::Bindings bindings, torch::Device device)
    : program_(std::move(program)),
      replay_(std::make_unique<Replay>(program_->graph, std::move(bindings), device)),
      loss_op_(ir::History(*program_->graph).maker(program_->graph->outputs.front())) {
  for (const ir::Stream& stream : role_of(*program_, rank).streams) {
    if (stream.kind != ir::StreamKind::kCompute) continue;
    compute_.insert(compute_.end(), stream.instructions.begin(), stream.instructions.end());
  }
}
ShapedStep::~ShapedStep() = default;
ShapedStep::ShapedStep(ShapedStep&&) noexcept = default;
ShapedStep& ShapedStep::operator=(ShapedStep&&) noexcept = default;

bool ShapedStep::accepts(const Batch& batch) const { return replay_->accepts(batch); }

class Runner::Impl {
 public:
  Impl(std::shared_ptr<const ir::Program> program, ir::Rank rank, capture::Bindings bindings,
       const RunnerConnections& connections, RunnerOptions options)
      : program_(std::move(program)),
        rank_(rank),
        options_(std::move(options)),
        trace_(*connections.clock, rank, options_.trace),
        clock_(*connections.clock),
        step_(options_.first_step),
        synchroniser_(*program_, rank, bindings, connections, options_, trace_) {
    accumulated_.resize(program_->variables.size());
    factors_.resize(program_->variables.size());
    if (program_->ranks[rank.value].replica) {
      own_shape_.emplace(program_, rank, std::move(bindings), options_.device);
    }
    for (const ir::Stream& stream : role_of(*program_, rank).streams) {
      if (stream.kind == ir::StreamKind::kCompute || stream.instructions.empty()) continue;
      streams_.emplace_back([this, &stream] { run_beside(stream); });
    }
  }

  ~Impl() {
    synchroniser_.signal().fail(
        std::make_exception_ptr(Error(ErrorCode::kPeersLost, "run: this rank is leaving.")));
    for (std::thread& stream : streams_) stream.join();
  }

  StepResult step(const Batch& rows, ShapedStep* shape, bool last = true) {
    rethrow_failure();
    AD_CHECK(own_shape_) << "rank " << rank_ << " only serves";
    try {
      return run_step(rows, shape == nullptr ? *own_shape_ : *shape, last);
    } catch (...) {
      synchroniser_.abort(std::current_exception());
      throw;
    }
  }

  [[nodiscard]] bool accepts(const Batch& rows) const {
    if (!own_shape_ || rows.empty()) return true;
    return own_shape_->replay_->samples_of(rows) == 0 || own_shape_->accepts(rows);
  }

  void settle() {
    if (!own_shape_) return;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      const ir::VariableId variable(i);
      if (is_trained(variable)) {
        synchroniser_.variables().wait_for_version(variable, step_, options_.wait_limit);
      }
    }
    rethrow_failure();
  }

  void synchronize() {
    settle();
    if (!own_shape_ || pulled_ == step_) return;
    if (program_->fetches_rows()) synchroniser_.pull_rows(step_);
    if (!program_->synchronous()) synchroniser_.pull(step_);
    pulled_ = step_;
  }

  void serve() {
    AD_CHECK(!own_shape_) << "rank " << rank_ << " computes; serve() is for ranks that do not";
    synchroniser_.notes().wait_for_the_end();
  }

  void finish() {
    synchronize();
    // Nobody leaves while another one still asks it for rows.
    if (own_shape_ && program_->fetches_rows()) synchroniser_.notes().meet(Topic::kFetched, step_);
    synchroniser_.finish(step_);
  }

  std::map<std::uint32_t, std::vector<NamedTensor>> gather_buffers() {
    AD_CHECK(own_shape_) << "rank " << rank_ << " only serves";
    const ir::Graph& graph = *program_->graph;
    std::vector<NamedTensor> own;
    for (const ir::Buffer& buffer : graph.buffers) {
      if (buffer.mutated) own.push_back({buffer.name, own_shape_->replay_->tensor(buffer.value)});
    }
    return synchroniser_.gather_tensors(Topic::kGathering, step_, own);
  }

  // Times leave this rank as times of the chief's clock; there they count from the trace's start.
  ir::Trace gather_trace() {
    ir::Trace own = trace_.take();
    const Seconds to_chief = trace_.origin() + synchroniser_.chief_is_ahead();
    shift(own, to_chief);
    std::vector<ir::Trace> all;
    // The step after the last: at that step the buffers may have been gathered.
    const auto gathered = synchroniser_.notes().gather_at_chief(Topic::kGathering, step_ + 1,
                                                                ir::to_chrome_json(own));
    for (const auto& [rank, theirs] : gathered) {
      const std::string from = fmt::format("the trace of rank {}", rank);
      all.push_back(ir::read_chrome_json(theirs, from));
      shift(all.back(), Seconds{0} - trace_.origin());
    }
    return ir::merged(std::move(all));
  }

  void watch(std::vector<std::string> names) {
    watch_ = std::move(names);
    watched_.clear();
  }
  std::vector<Watched> take_watched() {
    watch_.clear();
    return std::exchange(watched_, {});
  }

  Synchroniser& synchroniser() { return synchroniser_; }
  TraceRecorder& trace() { return trace_; }
  [[nodiscard]] std::uint64_t steps_done() const { return step_; }

 private:
  // Executes the instructions of the compute stream.
  struct Interpreter {
    Impl& rank;
    ShapedStep& shape;
    const Batch& rows;
    std::int64_t samples;
    bool last;  // of the step's micro-batches
    Seconds waiting;

    void operator()(const ir::Fetch& fetch) {
      if (samples == 0) return;
      std::vector<torch::Tensor> numbers;
      for (const ir::ValueId each : fetch.rows) {
        numbers.push_back(shape.replay_->tensor(each));
      }
      rank.synchroniser_.fetch(fetch.variable, numbers, rank.step_);
    }
    void operator()(const ir::KeepFactors& keep) {
      if (samples == 0) return;
      rank.factors_[keep.variable.value] = {shape.replay_->tensor(keep.left),
                                            shape.replay_->tensor(keep.right)};
    }
    void operator()(const ir::Gate& gate) { waiting += rank.pass(gate.variable); }
    void operator()(const ir::Compute& compute) {
      if (samples == 0) return;
      rank.compute(*shape.replay_, compute.op);
      if (!rank.found_.empty()) rank.keep_values(*shape.replay_, compute.op);
      if (compute.op == shape.loss_op_) rank.check_loss(shape, rows);
    }
    void operator()(const ir::Contribute& contribute) {
      TraceRecorder& trace = rank.trace_;
      const Seconds start = trace.enabled() ? trace.now() : Seconds{};
      torch::Tensor gradient;
      if (samples != 0) {
        gradient = shape.replay_->take_gradient(contribute.variable);
        if (rank.synchroniser_.scaler().is_on()) {
          gradient = rank.unscaled(gradient);
        } else {
          rank.check_gradient(*shape.replay_, contribute.variable, gradient);
        }
        gradient = rank.accumulated(contribute.variable, gradient, samples, last);
        if (last && !rank.found_.empty()) rank.keep_gradient(contribute.variable, gradient);
      }
      if (!last) return;
      if (rank.program_->travels_as_factors(contribute.variable)) {
        return rank.contribute_factors(contribute.variable, samples);
      }
      rank.synchroniser_.contribute(contribute.variable, gradient, rank.step_,
                                    rank.samples_before_ + samples);
      if (trace.enabled()) {
        trace.add(ir::Activity::kContribute, ir::StreamKind::kCompute, rank.step_,
                  rank.program_->graph->variable(contribute.variable).name, Bytes{}, start);
      }
    }
    void operator()(const ir::Release& release) {
      if (last) rank.synchroniser_.variables().release(release.variable);
    }
    void operator()(const ir::AllReduce& reduce) {
      if (last) rank.synchroniser_.all_reduce(reduce.collective, rank.step_);
    }
    void operator()(const ir::Update& update) {
      if (last) rank.synchroniser_.update(update.variable, rank.step_);
    }
    // Whoever updates waits for its norm; the stream need not.
    void operator()(const ir::Norm& /*norm*/) {}
    // The one of loss scaling: whoever updates waits for all ranks' flags.
    void operator()(const ir::Barrier& /*barrier*/) {
      if (last) rank.synchroniser_.raise_flag(rank.step_, rank.overflow_);
    }
  };

  void rethrow_failure() {
    if (const std::exception_ptr failure = synchroniser_.signal().failure()) {
      std::rethrow_exception(failure);
    }
  }

  [[nodiscard]] bool is_trained(ir::VariableId variable) const {
    return program_->graph->variable(variable).gradient.has_value();
  }

  // Once per step, for its shapes' graph: looking a name up goes through all ops.
  void find_watched(const ir::Graph& graph) {
    found_.clear();
    for (const std::string& name : watch_) {
      if (const auto value = ir::find_watched(graph, name)) found_.emplace_back(name, *value);
    }
  }

  void keep_values(const Replay& replay, ir::OpId op) {
    for (const auto& [name, found] : found_) {
      if (found.gradient || found.after != op) continue;
      keep({name, replay.tensor(found.value).clone(), false, found.batched});
    }
  }

  void keep_gradient(ir::VariableId variable, const torch::Tensor& gradient) {
    for (const auto& [name, found] : found_) {
      if (found.gradient != variable) continue;
      keep({name, gradient.is_sparse() ? gradient.to_dense() : gradient.clone(), true, false});
    }
  }

  // Rows of several micro-batches stand one after the other; of the rest the last one's count.
  void keep(Watched value) {
    const auto before = std::find_if(watched_.begin(), watched_.end(),
                                     [&](const Watched& each) { return each.name == value.name; });
    if (before == watched_.end()) {
      watched_.push_back(std::move(value));
    } else {
      before->value = value.batched ? torch::cat({before->value, value.value}) : value.value;
    }
  }

  // As GradScaler.unscale_: divided by the scale, as its reciprocal in 32 bits; that a gradient is
  // not finite is remembered to the step's end. The tensor may be another variable's, too.
  torch::Tensor unscaled(const torch::Tensor& gradient) {
    overflow_ = overflow_ || !is_finite(gradient);
    const auto factor = static_cast<float>(1.0 / static_cast<double>(scale_));
    return factor == 1 ? gradient : gradient * static_cast<double>(factor);
  }

  // With what earlier micro-batches brought; of the last one, their mean over all samples (or their
  // sum, where the loss is one).
  torch::Tensor accumulated(ir::VariableId variable, const torch::Tensor& gradient,
                            std::int64_t samples, bool last) {
    if (last && samples_before_ == 0) return gradient;
    const bool add_up = program_->graph->reduction == ir::Reduction::kSum;
    torch::Tensor& sum = accumulated_[variable.value];
    const torch::Tensor part = add_up ? gradient.clone() : gradient * static_cast<double>(samples);
    sum = sum.defined() ? sum + part : part;
    if (!last) return sum;
    const torch::Tensor all = std::exchange(sum, {});
    return add_up ? all : all / static_cast<double>(samples_before_ + samples);
  }

  void contribute_factors(ir::VariableId variable, std::int64_t samples) {
    AD_CHECK(samples_before_ == 0)
        << "factors of several micro-batches are no factors of their sum";
    auto [left, right] = std::exchange(factors_[variable.value], {});
    if (samples != 0 && synchroniser_.scaler().is_on()) left = unscaled(left);
    synchroniser_.contribute_factors(variable, left, right, step_, samples);
  }

  StepResult run_step(const Batch& rows, ShapedStep& shape, bool last) {
    const capture::BelowAutograd below_autograd;
    Replay& replay = *shape.replay_;
    StepResult result;
    const Seconds start = clock_.now();
    result.samples = rows.empty() ? 0 : replay.samples_of(rows);
    if (result.samples != 0) replay.begin(rows, seed());
    find_watched(replay.graph());
    if (micro_batch_ == 0) {
      overflow_ = false;
      if (synchroniser_.scaler().is_on()) scale_ = synchroniser_.await_scale(step_).scale;
      start_streams();
    }
    Interpreter interpreter{*this, shape, rows, result.samples, last, Seconds{}};
    for (const ir::Instruction& instruction : shape.compute_) std::visit(interpreter, instruction);
    if (result.samples != 0) {
      result.loss = replay.output(0).item<double>();
      replay.end();
    }
    result.overflow = overflow_;
    if (last) {
      ++step_;
      micro_batch_ = 0;
      samples_before_ = 0;
    } else {
      ++micro_batch_;
      samples_before_ += result.samples;
    }
    result.waiting = interpreter.waiting;
    result.compute = clock_.now() - start - result.waiting;
    return result;
  }

  // Blocks until a version is there that this step may use; the time that took.
  Seconds pass(ir::VariableId variable) {
    LocalVariables& variables = synchroniser_.variables();
    const std::uint64_t staleness = program_->staleness(variable);
    const std::uint64_t oldest = step_ - std::min(step_, staleness);
    Seconds waited;
    // A variable that nobody updates keeps its first version.
    const bool fetched = program_->rows(variable) == ir::RowTransfer::kFetch;
    if (is_trained(variable) && (fetched || variables.version(variable) < oldest)) {
      const Seconds start = clock_.now();
      const Seconds traced = trace_.enabled() ? trace_.now() : Seconds{};
      variables.wait_for_version(variable, oldest, options_.wait_limit);
      if (fetched) synchroniser_.await_rows(variable);
      waited = clock_.now() - start;
      if (trace_.enabled()) {
        trace_.add(ir::Activity::kGate, ir::StreamKind::kCompute, step_,
                   program_->graph->variable(variable).name, Bytes{}, traced);
      }
    }
    variables.hold(variable, options_.wait_limit);
    return waited;
  }

  void compute(Replay& replay, ir::OpId op) {
    if (!trace_.enabled()) {
      replay.run(op);
      return;
    }
    const Seconds start = trace_.now();
    replay.run(op);
    trace_.add(ir::Activity::kCompute, ir::StreamKind::kCompute, step_, replay.graph().op(op).name,
               Bytes{}, start);
  }

  [[nodiscard]] std::uint64_t seed() const {
    return step_seed(options_.job_seed, rank_.value, step_, micro_batch_);
  }

  // Both before anything of this step leaves the rank: the loss when it is known, every gradient
  // when it is complete.
  void check_loss(ShapedStep& shape, const Batch& rows) {
    if (options_.on_nonfinite == OnNonFinite::kIgnore || synchroniser_.scaler().is_on()) return;
    const auto loss = shape.replay_->output(0).item<double>();
    if (std::isfinite(loss)) return;
    shape.replay_->end();
    fail(ErrorCode::kUsage, "step {}: the loss of rank {} is {}: {}. The training diverges.", step_,
         rank_,
         std::isnan(loss) ? "nan"
         : loss > 0       ? "inf"
                          : "-inf",
         first_nonfinite(*shape.replay_, rows, seed(), *shape.loss_op_));
  }

  void check_gradient(const Replay& replay, ir::VariableId id,
                      const torch::Tensor& gradient) const {
    if (options_.on_nonfinite == OnNonFinite::kIgnore || is_finite(gradient)) return;
    const ir::Variable& variable = replay.graph().variable(id);
    fail(
        ErrorCode::kUsage,
        "step {}: the gradient of '{}' at rank {} is not finite (its last op is {}); the loss was. "
        "The training diverges.",
        step_, variable.name, rank_, replay.graph().op(*variable.gradient_complete).name);
  }

  void start_streams() {
    if (streams_.empty()) return;
    {
      const Signal::Lock lock = synchroniser_.signal().lock();
      steps_started_ = step_ + 1;
    }
    synchroniser_.signal().notify();
  }

  // A further stream of the Program, on a thread of its own: one pass per step.
  void run_beside(const ir::Stream& stream) {
    const capture::BelowAutograd below_autograd;
    try {
      for (std::uint64_t step = options_.first_step;; ++step) {
        wait_for_start(step);
        for (const ir::Instruction& instruction : stream.instructions) {
          if (const auto* reduce = std::get_if<ir::AllReduce>(&instruction)) {
            synchroniser_.all_reduce(reduce->collective, step);
          } else if (const auto* update = std::get_if<ir::Update>(&instruction)) {
            synchroniser_.update(update->variable, step);
          }
        }
      }
    } catch (...) {
      // The failure that ended the wait, or the first one.
      if (!synchroniser_.signal().failure()) synchroniser_.abort(std::current_exception());
    }
  }

  void wait_for_start(std::uint64_t step) {
    constexpr Seconds kYears{1e8};  // the user decides when the next step begins
    Signal::Lock lock = synchroniser_.signal().lock();
    synchroniser_.signal().wait(
        lock, kYears, [&] { return steps_started_ > step; },
        [] { return std::string("run: no further step."); });
  }

  std::shared_ptr<const ir::Program> program_;
  const ir::Rank rank_;
  const RunnerOptions options_;
  TraceRecorder trace_;
  const Clock& clock_;
  std::uint64_t step_;
  std::uint32_t micro_batch_ = 0;    // of this step
  std::int64_t samples_before_ = 0;  // of its micro-batches so far
  // By variable, from KeepFactors to its Contribute.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> factors_;
  std::vector<torch::Tensor> accumulated_;  // by variable: of these, sums of samples * gradient
  std::optional<std::uint64_t> pulled_;     // the step at which this rank last did
  std::vector<std::string> watch_;          // names
  std::vector<std::pair<std::string, ir::WatchedValue>> found_;  // those that this step has
  std::vector<Watched> watched_;
  float scale_ = 1;                  // of this step's loss
  bool overflow_ = false;            // in one of its gradients
  std::uint64_t steps_started_ = 0;  // guarded by the signal's lock
  Synchroniser synchroniser_;
  std::optional<ShapedStep> own_shape_;  // nothing for a rank that only serves
  std::vector<std::thread> streams_;
};

Runner::Runner(std::shared_ptr<const ir::Program> program, ir::Rank rank,
               capture::Bindings bindings, const RunnerConnections& connections,
               RunnerOptions options) {
  check_connections(*program, rank, connections);
  impl_ = std::make_unique<Impl>(std::move(program), rank, std::move(bindings), connections,
                                 std::move(options));
}

Runner::~Runner() = default;

StepResult Runner::step(const Batch& own_rows) { return impl_->step(own_rows, nullptr); }
StepResult Runner::step(const Batch& own_rows, ShapedStep& shape) {
  return impl_->step(own_rows, &shape);
}
StepResult Runner::accumulate(const Batch& own_rows) {
  return impl_->step(own_rows, nullptr, /*last=*/false);
}
StepResult Runner::accumulate(const Batch& own_rows, ShapedStep& shape) {
  return impl_->step(own_rows, &shape, /*last=*/false);
}
bool Runner::accepts(const Batch& own_rows) const { return impl_->accepts(own_rows); }
void Runner::synchronize() { impl_->synchronize(); }
void Runner::settle() { impl_->settle(); }
ir::LossScale Runner::loss_scale() {
  return impl_->synchroniser().await_scale(impl_->steps_done());
}
void Runner::set_loss_scale(const ir::LossScale& scale) {
  impl_->synchroniser().scaler().set_scale(scale);
}
void Runner::reload(const std::vector<ir::VariableId>& variables) {
  impl_->settle();
  impl_->synchroniser().reload(variables, impl_->steps_done());
}
void Runner::tell(const std::string& note) {
  AD_CHECK(impl_->steps_done() > 0) << "no step to tell of";
  impl_->synchroniser().notes().tell(impl_->steps_done() - 1, note);
}
std::vector<std::string> Runner::told(std::uint64_t step) {
  return impl_->synchroniser().notes().told(step);
}
void Runner::watch(std::vector<std::string> names) { impl_->watch(std::move(names)); }
std::vector<Watched> Runner::take_watched() { return impl_->take_watched(); }
std::vector<std::string> Runner::share(const std::string& bytes) {
  return impl_->synchroniser().notes().share(impl_->steps_done(), bytes);
}
void Runner::serve() { impl_->serve(); }
void Runner::finish() { impl_->finish(); }
std::uint64_t Runner::steps_done() const { return impl_->steps_done(); }

std::vector<NamedTensor> Runner::gather_state() {
  impl_->synchronize();
  return impl_->synchroniser().gather_state(impl_->steps_done());
}
void Runner::load_state(const std::vector<NamedTensor>& state) {
  impl_->synchroniser().load_state(state);
}

std::map<std::uint32_t, std::vector<NamedTensor>> Runner::gather_buffers() {
  impl_->synchronize();
  return impl_->gather_buffers();
}

std::map<std::uint32_t, std::vector<NamedTensor>> Runner::gather_owed() {
  impl_->synchronize();
  return impl_->synchroniser().gather_owed(impl_->steps_done());
}
void Runner::end_gathering() {
  impl_->synchroniser().notes().meet(Topic::kSaved, impl_->steps_done());
}
void Runner::load_owed(const std::vector<NamedTensor>& owed) {
  impl_->synchroniser().load_owed(owed);
}

ir::Trace Runner::take_trace() { return impl_->trace().take(); }
ir::Trace Runner::gather_trace() { return impl_->gather_trace(); }
comm::ExchangeCounters Runner::counters() const { return impl_->synchroniser().counters(); }

}  // namespace autodist::exec
