#include "autodist/exec/runner.h"

#include <thread>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/synchroniser.h"
#include "autodist/exec/trace_recorder.h"

namespace autodist::exec {
namespace {

std::shared_ptr<const ir::Graph> graph_of(const ir::Program& program) { return program.graph; }

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

}  // namespace

class Runner::Impl {
 public:
  Impl(std::shared_ptr<const ir::Program> program, ir::Rank rank, Bindings bindings,
       const RunnerConnections& connections, RunnerOptions options)
      : program_(std::move(program)),
        rank_(rank),
        options_(std::move(options)),
        trace_(*connections.clock, rank, options_.trace),
        clock_(*connections.clock),
        step_(options_.first_step),
        synchroniser_(*program_, rank, bindings, connections, options_, trace_) {
    if (program_->ranks[rank.value].replica) {
      replay_ = std::make_unique<Replay>(graph_of(*program_), std::move(bindings), options_.device);
    }
    for (const ir::Stream& stream : role_of(*program_, rank).streams) {
      if (stream.kind == ir::StreamKind::kCompute) {
        compute_.insert(compute_.end(), stream.instructions.begin(), stream.instructions.end());
      } else if (!stream.instructions.empty()) {
        streams_.emplace_back([this, &stream] { run_beside(stream); });
      }
    }
  }

  ~Impl() {
    synchroniser_.signal().fail(
        std::make_exception_ptr(Error(ErrorCode::kPeersLost, "run: this rank is leaving.")));
    for (std::thread& stream : streams_) stream.join();
  }

  StepResult step(const Batch& rows) {
    rethrow_failure();
    AD_CHECK(replay_) << "rank " << rank_ << " only serves";
    try {
      return run_step(rows);
    } catch (...) {
      synchroniser_.abort(std::current_exception());
      throw;
    }
  }

  void synchronize() {
    if (!replay_) return;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      const ir::VariableId variable(i);
      if (is_trained(variable)) {
        synchroniser_.variables().wait_for_version(variable, step_, options_.wait_limit);
      }
    }
    rethrow_failure();
  }

  void serve() {
    AD_CHECK(!replay_) << "rank " << rank_ << " computes; serve() is for ranks that do not";
    synchroniser_.wait_for_the_end();
  }

  void finish() {
    synchronize();
    synchroniser_.finish(step_);
  }

  Synchroniser& synchroniser() { return synchroniser_; }
  TraceRecorder& trace() { return trace_; }
  [[nodiscard]] std::uint64_t steps_done() const { return step_; }

 private:
  // Executes the instructions of the compute stream.
  struct Interpreter {
    Impl& rank;
    std::int64_t samples;
    Seconds waiting;

    void operator()(const ir::Gate& gate) { waiting += rank.pass(gate.variable); }
    void operator()(const ir::Compute& compute) {
      if (samples != 0) rank.compute(compute.op);
    }
    void operator()(const ir::Contribute& contribute) {
      rank.contribute(contribute.variable, samples);
    }
    void operator()(const ir::Release& release) {
      rank.synchroniser_.variables().release(release.variable);
    }
    void operator()(const ir::AllReduce& reduce) {
      rank.synchroniser_.all_reduce(reduce.collective, rank.step_);
    }
    void operator()(const ir::Update& update) {
      rank.synchroniser_.update(update.variable, rank.step_);
    }
    // Whoever updates waits for its norm; the stream need not.
    void operator()(const ir::Norm& /*norm*/) {}
    void operator()(const ir::Barrier& /*barrier*/) {}
  };

  void rethrow_failure() {
    if (const std::exception_ptr failure = synchroniser_.signal().failure()) {
      std::rethrow_exception(failure);
    }
  }

  [[nodiscard]] bool is_trained(ir::VariableId variable) const {
    return program_->graph->variable(variable).gradient.has_value();
  }

  StepResult run_step(const Batch& rows) {
    const capture::BelowAutograd below_autograd;
    StepResult result;
    const Seconds start = clock_.now();
    result.samples = rows.empty() ? 0 : replay_->samples_of(rows);
    if (result.samples != 0) replay_->begin(rows, step_seed(options_.job_seed, rank_.value, step_));
    start_streams();
    Interpreter interpreter{*this, result.samples, Seconds{}};
    for (const ir::Instruction& instruction : compute_) std::visit(interpreter, instruction);
    if (result.samples != 0) {
      result.loss = replay_->output(0).item<double>();
      replay_->end();
    }
    ++step_;
    result.waiting = interpreter.waiting;
    result.compute = clock_.now() - start - result.waiting;
    return result;
  }

  // Blocks until this step's version is there; the time that took.
  Seconds pass(ir::VariableId variable) {
    LocalVariables& variables = synchroniser_.variables();
    Seconds waited;
    // A variable that nobody updates keeps its first version.
    if (is_trained(variable) && variables.version(variable) < step_) {
      const Seconds start = clock_.now();
      const Seconds traced = trace_.enabled() ? trace_.now() : Seconds{};
      variables.wait_for_version(variable, step_, options_.wait_limit);
      waited = clock_.now() - start;
      if (trace_.enabled()) {
        trace_.add(ir::Activity::kGate, ir::StreamKind::kCompute, step_,
                   program_->graph->variable(variable).name, Bytes{}, traced);
      }
    }
    variables.hold(variable);
    return waited;
  }

  void compute(ir::OpId op) {
    if (!trace_.enabled()) {
      replay_->run(op);
      return;
    }
    const Seconds start = trace_.now();
    replay_->run(op);
    trace_.add(ir::Activity::kCompute, ir::StreamKind::kCompute, step_,
               program_->graph->op(op).name, Bytes{}, start);
  }

  void contribute(ir::VariableId variable, std::int64_t samples) {
    const torch::Tensor gradient =
        samples == 0 ? torch::Tensor() : replay_->take_gradient(variable);
    synchroniser_.contribute(variable, gradient, step_, samples);
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
  std::uint64_t steps_started_ = 0;  // guarded by the signal's lock
  Synchroniser synchroniser_;
  std::unique_ptr<Replay> replay_;
  std::vector<ir::Instruction> compute_;
  std::vector<std::thread> streams_;
};

Runner::Runner(std::shared_ptr<const ir::Program> program, ir::Rank rank, Bindings bindings,
               const RunnerConnections& connections, RunnerOptions options) {
  check_connections(*program, rank, connections);
  impl_ = std::make_unique<Impl>(std::move(program), rank, std::move(bindings), connections,
                                 std::move(options));
}

Runner::~Runner() = default;

StepResult Runner::step(const Batch& own_rows) { return impl_->step(own_rows); }
void Runner::synchronize() { impl_->synchronize(); }
void Runner::tell(const std::string& note) {
  AD_CHECK(impl_->steps_done() > 0) << "no step to tell of";
  impl_->synchroniser().tell(impl_->steps_done() - 1, note);
}
std::vector<std::string> Runner::told(std::uint64_t step) {
  return impl_->synchroniser().told(step);
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

ir::Trace Runner::take_trace() { return impl_->trace().take(); }
comm::ExchangeCounters Runner::counters() const { return impl_->synchroniser().counters(); }

}  // namespace autodist::exec
