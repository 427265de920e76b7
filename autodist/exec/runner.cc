#include "autodist/exec/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/op_call.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/engine.h"
#include "autodist/exec/hand_over.h"
#include "autodist/exec/large_tensors.h"
#include "autodist/exec/nonfinite.h"
#include "autodist/exec/outputs.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/side_streams.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/exec/watched_values.h"
#include "autodist/ir/own_ops.h"
#include "autodist/ir/rule_check.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

void check_connections(const program::Program& program, program::Rank rank,
                       const RunnerConnections& connections) {
  AD_CHECK(connections.clock != nullptr) << "a runner needs a clock";
  for (const program::Collective& collective : program.collectives) {
    if (collective.members.size() > 1 && connections.collectives == nullptr) {
      fail(ErrorCode::kEnvironment,
           "run: the plan has library all-reduces ({}), rank {} has no collective library.",
           collective.spec, rank);
    }
  }
}

void shift(program::Trace& trace, Seconds by) {
  for (program::TraceRow& row : trace.rows) {
    row.start += by;
    row.end += by;
  }
}

Bytes bytes_of(const capture::Bindings& bindings) {
  Bytes bytes;
  for (const auto* tensors : {&bindings.variables, &bindings.buffers, &bindings.constants}) {
    for (const torch::Tensor& each : *tensors) {
      bytes += Bytes(static_cast<std::int64_t>(each.nbytes()));
    }
  }
  return bytes;
}

// Shorter sleeps take longer to start and end than they last.
constexpr Seconds kShortestSleep{1e-3};

}  // namespace

class Runner::Impl {
 public:
  Impl(std::shared_ptr<const program::Program> program, program::Rank rank,
       capture::Bindings bindings, const RunnerConnections& connections, RunnerOptions options)
      : program_(std::move(program)),
        rank_(rank),
        options_(std::move(options)),
        trace_(*connections.clock, rank, options_.trace,
               static_cast<std::uint64_t>(options_.trace_steps), options_.earlier),
        clock_(*connections.clock),
        step_(options_.first_step),
        needs_all_(!program_->lag() || program_->is_placed()),
        engine_(*program_, rank, bindings, connections, options_, trace_),
        device_(engine_.slices().staging.device()),
        model_bytes_(bytes_of(bindings)),
        hand_over_(*program_, rank, options_, engine_),
        streams_(*program_, rank, options_.first_step, engine_) {
    note_initial_values();
    if (program_->ranks[rank.value].replica) {
      own_shape_.emplace(program_, rank, std::move(bindings), device_);
    }
  }

  StepResult step(const Batch& rows, ShapedStep* shape, bool last = true) {
    AD_CHECK(!program_->is_placed()) << "a step of a stage takes micro-batches";
    return guarded([&] { return run_step(rows, shape == nullptr ? *own_shape_ : *shape, last); });
  }
  StepResult step_of_stage(const std::vector<Batch>& micro_batches) {
    AD_CHECK(program_->is_placed() && micro_batches.size() <= program_->micro_batches)
        << micro_batches.size() << " micro-batches for " << program_->micro_batches;
    return guarded([&] { return run_stage(micro_batches); });
  }

  [[nodiscard]] bool accepts(const Batch& rows) const {
    if (!own_shape_ || rows.empty()) return true;
    return own_shape_->replay_->samples_of(rows) == 0 || own_shape_->accepts(rows);
  }

  void settle() {
    if (!own_shape_) return;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) await_settled(ir::VariableId(i));
    rethrow_failure();
  }

  void settle(ir::VariableId variable) {
    if (!own_shape_ || needs_all_ || !is_trained(variable)) return;
    TensorWatch& watch = engine_.slices().variables.watch();
    if (watch.is_noted(variable)) return;
    await_settled(variable);
    if (!keeps_whole_copies(program_->exchange(variable))) pull_rows();
    rethrow_failure();
    watch.note(variable);
  }

  void open_to_changes() {
    synchronize();
    if (!own_shape_) return;
    TensorWatch& watch = engine_.slices().variables.watch();
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      if (is_trained(ir::VariableId(i))) watch.note(ir::VariableId(i));
    }
    asks_all_ = needs_all_;
  }

  void set_options(ir::VariableId id, const std::map<std::string, double>& options) {
    const ir::Variable& variable = program_->graph->variable(id);
    ir::UpdateRule rule = variable.update;
    std::map<std::string, double> others;
    for (const auto& [option, value] : options) {
      const auto declared = rule.options.find(option);
      if (declared == rule.options.end()) {
        fail(ErrorCode::kUsage, "optimizer: the rule {} of '{}' has no option '{}'",
             ir::name_of(rule.rule), variable.name, option);
      }
      if (declared->second != value) others[option] = value;
      declared->second = value;
    }
    check_settable(variable, rule);
    engine_.news().set_options(id, others);
  }

  void await(const StepSums& sums) {
    if (!sums.known()) engine_.news().job_sums().await(sums, options_.wait_limit);
  }

  [[nodiscard]] bool meets_to_synchronize() const {
    return own_shape_ && pulled_ != step_ && program_->ranks.size() > 1 &&
           (!program_->lag() || program_->is_placed());
  }

  void synchronize() {
    settle();
    if (!own_shape_ || pulled_ == step_) return;
    std::optional<Calls::Scope> call;
    if (meets_to_synchronize()) call.emplace(calls().begin(Call::kSynchronize, step_));
    if (!program_->keeps_whole_copies()) pull_rows();
    if (!program_->lag()) engine_.gathering().pull(step_);
    if (program_->is_placed()) engine_.gathering().pull_stages(step_);
    pulled_ = step_;
    await_copies();
  }

  [[nodiscard]] bool has_changes() {
    const TensorWatch& watch = engine_.slices().variables.watch();
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      if (is_trained(ir::VariableId(i)) && watch.is_changed(ir::VariableId(i))) return true;
    }
    return false;
  }

  RankState hand_over(const program::Transition& transition) {
    RankState state = engine_.gathering().hand_over(transition, step_);
    pulled_ = pulled_rows_ = step_;  // this rank's copies are as the transition wants them
    await_copies();
    state.trace = {trace_.take(), trace_.origin()};
    return state;
  }

  void serve() {
    AD_CHECK(!own_shape_) << "rank " << rank_ << " computes; serve() is for ranks that do not";
    engine_.small_collectives().wait_for_the_end();
  }

  void come_to_finish() {
    if (own_shape_ && !std::exchange(came_to_finish_, true)) calls().come_to_finish(step_);
  }

  bool all_finish() {
    if (!own_shape_ || all_finished_) return all_finished_.value_or(true);
    come_to_finish();
    all_finished_ = calls().all_finish(step_);
    const Calls::Scope end = calls().enter(Call::kFinish, step_);
    if (*all_finished_) {
      synchronize();
    } else if (rank_ == program::Rank(kChief)) {
      settle();
      engine_.gathering().pull_alone(step_);
      pulled_ = step_;
      await_copies();
    }
    return *all_finished_;
  }

  void finish() {
    const bool all = all_finish();
    const Calls::Scope end = calls().enter(Call::kFinish, step_);
    // Nobody leaves while another one still asks it for rows.
    if (all && own_shape_ && !program_->keeps_whole_copies()) {
      engine_.small_collectives().meet(Topic::kFetched, step_);
    }
    engine_.finish(step_);
    engine_.slices().variables.await_device();
  }

  Calls& calls() { return engine_.calls(); }

  std::map<std::uint32_t, std::vector<NamedTensor>> gather_buffers() {
    AD_CHECK(own_shape_) << "rank " << rank_ << " only serves";
    const ir::Graph& graph = *program_->graph;
    std::vector<NamedTensor> own;
    for (const ir::Buffer& buffer : graph.buffers) {
      if (buffer.mutated) own.push_back({buffer.name, own_shape_->replay_->tensor(buffer.value)});
    }
    return engine_.gathering().gather_tensors(Topic::kGathering, step_, own);
  }

  // Times leave this rank as times of the chief's clock; there they count from the trace's start.
  program::Trace gather_trace() {
    program::Trace own = trace_.take();
    const Seconds to_chief = trace_.origin() + engine_.link().chief_is_ahead();
    shift(own, to_chief);
    std::vector<program::Trace> all;
    // The step after the last: at that step the buffers may have been gathered.
    const auto gathered = engine_.small_collectives().gather_at_chief(Topic::kGathering, step_ + 1,
                                                                      program::to_chrome_json(own));
    for (const auto& [rank, theirs] : gathered) {
      const std::string from = fmt::format("the trace of rank {}", rank);
      all.push_back(program::read_chrome_json(theirs, from));
      shift(all.back(), Seconds{0} - trace_.origin());
    }
    return program::merged(std::move(all));
  }

  WatchedValues& watched() { return watched_; }

  Engine& engine() { return engine_; }
  TraceRecorder& trace() { return trace_; }
  [[nodiscard]] std::uint64_t steps_done() const { return step_; }

 private:
  // A micro-batch of a step; a graph that is not placed has one at a time under way.
  struct Micro {
    Replay* replay;
    const Batch* rows;
    std::int64_t samples;
    std::int64_t samples_before;  // of the step's earlier ones
  };

  // Executes the instructions of the compute stream.
  struct Interpreter {
    Impl& rank;
    ShapedStep& shape;
    std::vector<Micro> micros;
    bool last;  // `micros` ends with the step's last micro-batch
    Seconds waiting;
    std::vector<ir::VariableId> updates{};  // that are still to do

    // Nothing for a micro-batch without rows.
    const Micro* with_rows(std::uint32_t micro_batch) const {
      if (micro_batch >= micros.size() || micros[micro_batch].samples == 0) return nullptr;
      return &micros[micro_batch];
    }

    void operator()(const program::Fetch& fetch) {
      // What was changed since the step before is whole here, and the owner may not have it yet.
      if (rank.changed_.count(fetch.variable) != 0) return;
      // All of a variable is asked for whatever samples there are.
      if (!fetch.rows.empty() && with_rows(0) == nullptr) return;
      std::vector<torch::Tensor> numbers;
      for (const ir::ValueId each : fetch.rows) {
        numbers.push_back(on_host(shape.replay_->tensor(each), rank.engine_.slices().staging,
                                  [this] { rank.rethrow_failure(); }));
      }
      rank.engine_.driver().fetch(fetch.variable, numbers, rank.step_);
    }
    void operator()(const program::KeepFactors& keep) {
      if (with_rows(0) == nullptr) return;
      rank.hand_over_.keep_factors(keep.variable, shape.replay_->tensor(keep.left),
                                   shape.replay_->tensor(keep.right));
    }
    void operator()(const program::Gate& gate) { waiting += rank.pass(gate.variable); }
    void operator()(const program::Compute& compute) {
      const Micro* micro = with_rows(compute.micro_batch);
      if (micro == nullptr) return;
      rank.at_ = {micro->replay, compute.op};
      try {
        rank.compute(*micro->replay, compute.op, micro->samples);
      } catch (const capture::OtherBoolean&) {
        if (!rank.options_.passes_guards) throw;
      }
      if (rank.watched_.any()) rank.watched_.keep_values(*micro->replay, compute.op);
      if (compute.op == shape.loss_op_ && rank.device_.is_cpu()) rank.check_loss(shape, *micro);
    }
    void run_all(const std::vector<ir::OpId>& ops) {
      const Micro* micro = with_rows(0);
      if (micro == nullptr) return;
      rank.at_ = {micro->replay, ops.front()};
      micro->replay->run(ops);
    }
    void operator()(const program::Send& send) {
      const program::StageTransfer& transfer = rank.program_->transfer(send.transfer);
      const Micro* micro = with_rows(transfer.micro_batch);
      if (micro == nullptr) return;
      rank.let_device_finish();
      rank.hand_over_.send(send.transfer, transfer.value ? micro->replay->take_sent(*transfer.value)
                                                         : micro->replay->generator_state());
    }
    void operator()(const program::Receive& receive) {
      const program::StageTransfer& transfer = rank.program_->transfer(receive.transfer);
      const Micro* micro = with_rows(transfer.micro_batch);
      if (micro == nullptr) return;
      rank.let_device_finish();
      TraceRecorder& trace = rank.trace_;
      const Seconds start = rank.clock_.now();
      const Seconds traced = trace.enabled() ? trace.now() : Seconds{};
      torch::Tensor value =
          rank.engine_.stages().receive(receive.transfer, rank.step_, micro->samples);
      waiting += rank.clock_.now() - start;
      if (trace.enabled()) {
        trace.add(program::Activity::kGate, program::StreamKind::kCompute, rank.step_,
                  program::name_of(transfer), Bytes{}, traced);
      }
      if (transfer.value) {
        micro->replay->put(*transfer.value, std::move(value));
      } else {
        micro->replay->set_generator_state(value);
      }
    }
    void operator()(const program::Contribute& contribute) {
      const std::uint32_t index = contribute.micro_batch;
      if (index >= micros.size()) return;
      const Micro& micro = micros[index];
      const bool hand_over = last && index + 1 == micros.size();
      if (hand_over && !rank.program_->is_placed()) rank.add_sums(micros);
      TraceRecorder& trace = rank.trace_;
      const Seconds start = trace.enabled() ? trace.now() : Seconds{};
      torch::Tensor gradient = rank.hand_over_.add(
          *micro.replay, contribute.variable, {micro.samples, micro.samples_before, hand_over});
      if (!hand_over) return;
      if (gradient.defined()) rank.watched_.keep_gradient(contribute.variable, gradient);
      rank.let_device_finish();
      rank.hand_over_.contribute(contribute.variable, std::move(gradient),
                                 micro.samples_before + micro.samples);
      if (trace.enabled()) {
        trace.add(program::Activity::kContribute, program::StreamKind::kCompute, rank.step_,
                  rank.program_->graph->variable(contribute.variable).name, Bytes{}, start);
      }
    }
    void operator()(const program::Release& release) {
      if (!last) return;
      rank.engine_.slices().variables.read_until(release.variable,
                                                 Queue::current(rank.device_).record());
      rank.engine_.driver().release(release.variable);
    }
    void operator()(const program::AllReduce& reduce) {
      if (last) rank.engine_.whole().all_reduce(reduce.collective, rank.step_);
    }
    // The host waits until it knows that the gradient is finite: of a device behind all ops, so
    // that there is something to compute meanwhile.
    void operator()(const program::Update& update) {
      if (!last) return;
      if (rank.device_.is_cpu()) {
        rank.engine_.whole().update({update.variable}, rank.step_);
      } else {
        updates.push_back(update.variable);
      }
    }
    void contribute_own() {
      rank.hand_over_.contribute_own([this] { rank.rethrow_failure(); });
    }
    void finish_updates() {
      rank.at_ = {};
      if (rank.device_.is_cpu()) return;
      contribute_own();
      if (updates.empty() || rank.hand_over_.held_back()) return;  // then no gradient comes
      if (rank.trace_.enabled()) {
        for (const ir::VariableId each : updates) rank.engine_.whole().update({each}, rank.step_);
      } else {
        rank.engine_.whole().update(updates, rank.step_);
      }
      // No gate stands before its readers.
      for (const ir::VariableId each : updates) rank.await_copy(each, WaitSite::kNewVersion);
    }
    // Whoever updates waits for its norm; the stream need not.
    void operator()(const program::Norm& /*norm*/) {}
    // Whoever updates waits for all ranks' flags; the stream need not.
    void operator()(const program::AgreeFinite& /*agree*/) {
      if (!last) return;
      contribute_own();
      rank.hand_over_.raise_flag();
    }
    void operator()(const program::StepBarrier& /*barrier*/) {
      AD_CHECK(false) << "a step's barrier, which only the simulator performs";
    }
  };

  // Until the variable is the newest, for what the caller does with it from now on.
  void await_settled(ir::VariableId variable) {
    engine_.driver().await_settled(variable, step_);
    await_copy(variable, WaitSite::kSettled);
  }

  // What was pulled is on its way to the device.
  void await_copies() {
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      await_copy(ir::VariableId(i), WaitSite::kSettled);
    }
  }

  // For what this thread hands to the device from now on.
  void await_copy(ir::VariableId variable, WaitSite site) {
    engine_.slices().variables.await_copy(variable, Queue::current(device_), site);
  }

  // Into this rank's copies of all variables that are asked for; each must have its newest version.
  void pull_rows() {
    if (pulled_rows_ == step_) return;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      const ir::VariableId variable(i);
      if (keeps_whole_copies(program_->exchange(variable))) continue;
      await_settled(variable);
    }
    rethrow_failure();
    engine_.gathering().pull_rows(step_);
    pulled_rows_ = step_;
    TensorWatch& watch = engine_.slices().variables.watch();
    for (std::size_t i = 0; i < program_->variables.size(); ++i) watch.accept(ir::VariableId(i));
  }

  void note_initial_values() {
    TensorWatch& watch = engine_.slices().variables.watch();
    for (std::size_t i = 0; i < options_.initial_values.size(); ++i) {
      if (is_trained(ir::VariableId(i))) {
        watch.note(ir::VariableId(i), options_.initial_values[i]);
      }
    }
    asks_all_ = needs_all_ && !options_.initial_values.empty();
  }

  // State is made for the declared options. One that takes part no more rests as it is, if it is
  // behind the others; before the first step, torch would not have made it.
  void check_settable(const ir::Variable& variable, const ir::UpdateRule& rule) const {
    const std::vector<std::string> made = state_names(variable.update, options_.user_rules);
    const std::vector<std::string> needed = state_names(rule, options_.user_rules);
    const bool rests = step_ > 0 && needed.size() < made.size() &&
                       std::equal(needed.begin(), needed.end(), made.begin());
    if (needed != made && !rests) {
      fail(ErrorCode::kUsage,
           "optimizer: '{}' was distributed with the states [{}], and the options that are now set "
           "for it train it with [{}]. Distribute a step with an optimizer that has them.",
           variable.name, fmt::join(made, ", "), fmt::join(needed, ", "));
    }
    ir::check_trains(variable, rule);
  }

  // What somebody has written into variables since the step before; the step goes on from it.
  void take_changes() {
    LocalVariables& variables = engine_.slices().variables;
    std::map<ir::VariableId, std::uint64_t> changes;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      const ir::VariableId id(i);
      if (!is_trained(id)) continue;
      const std::string& name = program_->graph->variable(id).name;
      if (variables.watch().is_noted(id)) {
        if (const auto digest = variables.watch().take_change(id, name)) changes[id] = *digest;
      } else {
        variables.check_untouched(id);
      }
    }
    const bool together = std::exchange(asks_all_, false);
    if (together) engine_.news().agree_on_changes(changes, step_);
    changed_.clear();
    if (changes.empty()) return;
    engine_.news().change(changes);
    for (const auto& [variable, digest] : changes) changed_.insert(variable);
    engine_.driver().reload({changed_.begin(), changed_.end()}, step_);
    // An owner applies what comes of asynchronous variables at once: to the new values.
    if (together) engine_.small_collectives().meet(Topic::kChanged, step_);
  }

  void add_losses(const std::vector<Micro>& micros) {
    for (const Micro& micro : micros) {
      if (micro.samples != 0) hand_over_.add_numbers(*micro.replay, micro.samples);
    }
  }

  // The sums over this rank's samples, with its last micro-batches: once their losses are known,
  // before the step's first contribution.
  void add_sums(const std::vector<Micro>& micros) {
    if (std::exchange(added_sums_, true)) return;
    add_losses(micros);
    hand_over_.send_numbers();
  }

  void rethrow_failure() {
    if (const std::exception_ptr failure = engine_.signal().failure()) {
      std::rethrow_exception(failure);
    }
  }

  [[nodiscard]] bool is_trained(ir::VariableId variable) const {
    return program_->graph->variable(variable).gradient.has_value();
  }

  template <typename Run>
  StepResult guarded(Run run) {
    rethrow_failure();
    AD_CHECK(own_shape_) << "rank " << rank_ << " only serves";
    at_ = {};
    try {
      try {
        return run();
      } catch (const c10::OutOfMemoryError& error) {
        if (!device_.is_cpu()) refuse(error);
        throw;
      } catch (const c10::NotImplementedError& error) {
        if (!device_.is_cpu()) refuse(error);
        throw;
      }
    } catch (...) {
      engine_.abort(std::current_exception());
      throw;
    }
  }

  [[nodiscard]] std::string place_of_op() const {
    if (at_.replay == nullptr) return "outside of its ops";
    const ir::Graph& graph = at_.replay->graph();
    const ir::Op& op = graph.op(at_.op);
    return fmt::format("at op {} ({} in '{}')", at_.op, op.name, graph.scopes[op.scope.value]);
  }
  [[noreturn]] void refuse(const c10::OutOfMemoryError& error) {
    fail(ErrorCode::kInfeasible,
         "step {}: {} of rank {} has no memory left {}: {} Parameters, buffers and constants hold "
         "{}, states of the optimizer {}; the rest is what the step keeps for its gradients, and "
         "other programs'. Take smaller batches, more micro-batches, or place the model in stages.",
         step_, device_.str(), rank_, place_of_op(), capture::first_line(error),
         to_string(model_bytes_), to_string(engine_.slices().variables.device_state_bytes()));
  }
  [[noreturn]] void refuse(const c10::NotImplementedError& error) const {
    fail(ErrorCode::kUsage,
         "step {}: {} of rank {} has no kernel for what the step asks for {}: {} Replace the op in "
         "the model, or take --devices cpu.",
         step_, device_.str(), rank_, place_of_op(), capture::first_line(error));
  }

  void begin_step() {
    calls().begin_step(step_);
    added_sums_ = false;
    take_changes();
    open_sums_ = engine_.news().open_sums(step_);
    const bool scales = engine_.slices().scaler.is_on();
    hand_over_.begin_step(step_, scales ? engine_.driver().await_scale(step_).scale : 1);
    streams_.start(step_);
  }

  // The losses of the micro-batches as one; their samples and the step's times.
  StepResult run_stream(ShapedStep& shape, std::vector<Micro> micros, bool last, Seconds start) {
    Interpreter interpreter{*this, shape, std::move(micros), last, Seconds{}};
    const bool in_runs = shape.replay_->writes_again();
    for (std::size_t i = 0; i < shape.compute_.size(); ++i) {
      const auto run = in_runs ? shape.runs_.find(i) : shape.runs_.end();
      if (run == shape.runs_.end()) {
        std::visit(interpreter, shape.compute_[i]);
      } else {
        interpreter.run_all(run->second);
        i += run->second.size() - 1;
      }
    }
    interpreter.finish_updates();
    let_device_finish();
    if (last) {
      add_sums(interpreter.micros);
    } else {
      add_losses(interpreter.micros);
    }
    if (!device_.is_cpu()) await_gradients(shape, interpreter.micros);
    StepResult result;
    const bool mean = program_->graph->reduction == ir::Reduction::kMean;
    const bool one = interpreter.micros.size() == 1;
    std::vector<double> losses = losses_of(interpreter.micros);
    for (const Micro& micro : interpreter.micros) {
      if (micro.samples == 0) continue;
      result.samples += micro.samples;
      const double loss = losses.back();
      losses.pop_back();
      result.loss += loss * (mean && !one ? static_cast<double>(micro.samples) : 1);
      add_outputs(micro.replay->graph(), take_outputs(*micro.replay), micro.samples,
                  result.samples - micro.samples, result.outputs);
      micro.replay->end();
      result.unrecorded = micro.replay->take_unrecorded();
    }
    if (mean && !one) result.loss /= static_cast<double>(result.samples);
    result.sums = open_sums_;
    result.overflow = hand_over_.overflow();
    result.waiting = interpreter.waiting;
    result.compute = clock_.now() - start - result.waiting;
    return result;
  }

  // From the last micro-batch with rows to the first. Those of a device have come to the host with
  // the step's numbers: asking for them again would wait for its updates.
  [[nodiscard]] std::vector<double> losses_of(const std::vector<Micro>& micros) const {
    std::vector<double> losses;
    const std::vector<double>& there = hand_over_.losses();
    for (auto micro = micros.rbegin(); micro != micros.rend(); ++micro) {
      if (micro->samples == 0) continue;
      losses.push_back(device_.is_cpu() ? micro->replay->output(0).item<double>()
                                        : there[there.size() - 1 - losses.size()]);
    }
    return losses;
  }

  // What the threads share belongs to one step, so it ends when the host has all gradients.
  void await_gradients(ShapedStep& shape, const std::vector<Micro>& micros) {
    hand_over_.await();
    rethrow_failure();
    if (!hand_over_.held_back()) return;
    for (const Micro& micro : micros) {
      if (micro.samples != 0) check_loss(shape, micro);
    }
    AD_CHECK(false) << "step " << step_
                    << ": the host got a loss that is not finite; the device's is";
  }

  StepResult run_step(const Batch& rows, ShapedStep& shape, bool last) {
    const capture::BelowAutograd below_autograd;
    const Seconds start = clock_.now();
    const std::int64_t samples = rows.empty() ? 0 : shape.replay_->samples_of(rows);
    watched_.find(shape.replay_->graph());
    if (samples != 0) shape.replay_->begin(rows, seed(micro_batch_), op_by_op());
    if (micro_batch_ == 0 && !std::exchange(under_way_, true)) begin_step();
    StepResult result;
    try {
      result =
          run_stream(shape, {{shape.replay_.get(), &rows, samples, samples_before_}}, last, start);
    } catch (const capture::OtherBoolean& other) {
      return leave_way(shape, other.guard);
    }
    if (last) {
      under_way_ = false;
      engine_.news().end_step(step_++);
      calls().end_step();
      micro_batch_ = 0;
      samples_before_ = 0;
    } else {
      ++micro_batch_;
      samples_before_ += result.samples;
    }
    return result;
  }

  // Before its first contribution: guards are in the forward pass, and nothing has left the rank.
  StepResult leave_way(ShapedStep& shape, std::size_t guard) {
    shape.replay_->abandon();
    watched_.abandon();
    StepResult result;
    result.other_way = ir::booleans_of(shape.replay_->graph());
    result.other_way.resize(guard + 1);
    result.other_way.back() = !result.other_way.back();
    return result;
  }

  StepResult run_stage(const std::vector<Batch>& batches) {
    const capture::BelowAutograd below_autograd;
    const Seconds start = clock_.now();
    std::vector<Micro> micros;
    std::int64_t before = 0;
    for (const Batch& rows : batches) {
      const auto index = static_cast<std::uint32_t>(micros.size());
      Replay* replay =
          index == 0 ? own_shape_->replay_.get() : own_shape_->more_replays_[index - 1].get();
      micros.push_back({replay, &rows, replay->samples_of(rows), before});
      replay->begin(rows, seed(index));
      before += micros.back().samples;
    }
    const Batch none;
    if (micros.empty()) micros.push_back({own_shape_->replay_.get(), &none, 0, 0});
    begin_step();
    const StepResult result = run_stream(*own_shape_, std::move(micros), /*last=*/true, start);
    engine_.news().end_step(step_++);
    calls().end_step();
    return result;
  }

  // Blocks until a version is there that this step may use; the time that took.
  Seconds pass(ir::VariableId variable) {
    const Seconds start = clock_.now();
    const Seconds traced = trace_.enabled() ? trace_.now() : Seconds{};
    const bool was_open = engine_.driver().hold(variable, step_);
    await_copy(variable, WaitSite::kNewVersion);
    const bool fetched = !keeps_whole_copies(program_->exchange(variable));
    if (fetched) engine_.slices().variables.watch().accept(variable);
    if (was_open && !fetched) return Seconds{};
    const Seconds waited = clock_.now() - start;
    if (trace_.enabled()) {
      trace_.add(program::Activity::kGate, program::StreamKind::kCompute, step_,
                 program_->graph->variable(variable).name, Bytes{}, traced);
    }
    return waited;
  }

  void compute(Replay& replay, ir::OpId op, std::int64_t samples) {
    if (options_.device_time) {
      device_debt_ += options_.device_time(replay.graph().op(op), samples);
      if (device_debt_ > kShortestSleep) let_device_finish();
    }
    if (!trace_.enabled()) {
      replay.run(op);
      return;
    }
    const Seconds start = trace_.now();
    replay.run(op);
    trace_.add(program::Activity::kCompute, program::StreamKind::kCompute, step_,
               replay.graph().op(op).name, Bytes{}, start);
  }

  // Somebody looks at every op, or the host computes it.
  [[nodiscard]] bool op_by_op() const {
    return device_.is_cpu() || trace_.enabled() || watched_.any();
  }

  void let_device_finish() {
    if (device_debt_ == Seconds{}) return;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::exchange(device_debt_, Seconds{}).value));
  }

  // The stages of a replica draw from one generator.
  [[nodiscard]] std::uint64_t seed(std::uint32_t micro_batch) const {
    const std::uint32_t whose = program_->is_placed() ? program_->batch_part(rank_) : rank_.value;
    return step_seed(options_.job_seed, whose, step_, micro_batch);
  }

  // Before anything of this step leaves the rank.
  void check_loss(ShapedStep& shape, const Micro& micro) {
    if (options_.on_nonfinite == OnNonFinite::kIgnore || engine_.slices().scaler.is_on()) return;
    const auto loss = micro.replay->output(0).item<double>();
    if (std::isfinite(loss)) return;
    micro.replay->end();
    const std::string word = std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf";
    // A stage has not got what the others computed before.
    const std::string culprit =
        program_->is_placed()
            ? "the last of its stages computes it"
            : first_nonfinite(*micro.replay, *micro.rows, seed(micro_batch_), *shape.loss_op_);
    fail(ErrorCode::kUsage, "step {}: the loss of rank {} is {}: {}. The training diverges.", step_,
         rank_, word, culprit);
  }

  std::shared_ptr<const program::Program> program_;
  const program::Rank rank_;
  const RunnerOptions options_;
  TraceRecorder trace_;
  const Clock& clock_;
  std::uint64_t step_;
  std::uint32_t micro_batch_ = 0;    // of this step
  std::int64_t samples_before_ = 0;  // of its micro-batches so far
  bool came_to_finish_ = false;
  std::optional<bool> all_finished_;
  std::optional<std::uint64_t> pulled_;       // the step at which this rank last did
  std::optional<std::uint64_t> pulled_rows_;  // the same for fetched rows
  // Whether all computing ranks must take part where one variable is to be the newest.
  const bool needs_all_;
  bool asks_all_ = false;  // and the next step compares what they have changed
  // Of the step that is under way.
  bool under_way_ = false;
  std::shared_ptr<const StepSums> open_sums_;
  std::set<ir::VariableId> changed_;  // by the user before this step
  bool added_sums_ = false;
  WatchedValues watched_;
  Seconds device_debt_;  // time of the imitated device that was not slept yet
  Engine engine_;
  const torch::Device device_;  // of the model
  const Bytes model_bytes_;
  // The op that this step ran last.
  struct {
    const Replay* replay = nullptr;
    ir::OpId op{};
  } at_;
  HandOver hand_over_;
  std::optional<ShapedStep> own_shape_;  // nothing for a rank that only serves
  SideStreams streams_;                  // ends first
};

Runner::Runner(std::shared_ptr<const program::Program> program, program::Rank rank,
               capture::Bindings bindings, const RunnerConnections& connections,
               RunnerOptions options) {
  check_connections(*program, rank, connections);
  start_large_tensors_over();
  try {
    impl_ = std::make_unique<Impl>(std::move(program), rank, std::move(bindings), connections,
                                   std::move(options));
  } catch (const c10::OutOfMemoryError& error) {
    fail(ErrorCode::kInfeasible,
         "run: the device of rank {} has no memory for the states of the optimizer: {} Take an "
         "optimizer with fewer, or place the model in stages.",
         rank, capture::first_line(error));
  }
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
StepResult Runner::step_of_stage(const std::vector<Batch>& micro_batches) {
  return impl_->step_of_stage(micro_batches);
}
bool Runner::accepts(const Batch& own_rows) const { return impl_->accepts(own_rows); }
void Runner::synchronize() { impl_->synchronize(); }
void Runner::settle() { impl_->settle(); }
void Runner::settle(ir::VariableId variable) { impl_->settle(variable); }
void Runner::forget_changes(const std::vector<ir::VariableId>& variables) {
  for (const ir::VariableId each : variables)
    impl_->engine().slices().variables.watch().forget(each);
}
void Runner::open_to_changes() { impl_->open_to_changes(); }
void Runner::set_options(ir::VariableId variable, const std::map<std::string, double>& options) {
  impl_->set_options(variable, options);
}
void Runner::await(const StepSums& sums) { impl_->await(sums); }
ir::LossScale Runner::loss_scale() {
  return impl_->engine().driver().await_scale(impl_->steps_done());
}
void Runner::set_loss_scale(const ir::LossScale& scale) {
  impl_->engine().slices().scaler.set_scale(scale);
}
void Runner::reload(const std::vector<ir::VariableId>& variables) {
  impl_->settle();
  impl_->engine().driver().reload(variables, impl_->steps_done());
}
void Runner::tell(const std::string& note) {
  AD_CHECK(impl_->steps_done() > 0) << "no step to tell of";
  impl_->engine().small_collectives().tell(impl_->steps_done() - 1, note);
}
std::vector<std::string> Runner::told(std::uint64_t step) {
  return impl_->engine().small_collectives().told(step);
}
void Runner::watch(std::vector<std::string> names) { impl_->watched().watch(std::move(names)); }
std::vector<Watched> Runner::take_watched() { return impl_->watched().take(); }
std::vector<std::string> Runner::share(const std::string& bytes) {
  return impl_->engine().small_collectives().share(impl_->steps_done(), bytes);
}
std::string Runner::of_chief(Subject subject, const std::string& bytes) {
  return impl_->engine().small_collectives().of_chief(subject, impl_->steps_done(), bytes);
}
std::map<std::uint32_t, std::string> Runner::of_all(Subject subject, const std::string& bytes) {
  return impl_->engine().small_collectives().exchange(subject, impl_->steps_done(), bytes);
}
Calls& Runner::calls() { return impl_->calls(); }
bool Runner::meets_to_synchronize() const { return impl_->meets_to_synchronize(); }
void Runner::come_to_finish() { impl_->come_to_finish(); }
bool Runner::all_finish() { return impl_->all_finish(); }
void Runner::serve() { impl_->serve(); }
void Runner::finish() { impl_->finish(); }
void Runner::leave(const std::string& reason) { impl_->engine().leave(reason); }
std::uint64_t Runner::steps_done() const { return impl_->steps_done(); }

bool Runner::has_changes() { return impl_->has_changes(); }
RankState Runner::hand_over(const program::Transition& transition) {
  return impl_->hand_over(transition);
}

std::vector<NamedTensor> Runner::gather_state() {
  impl_->synchronize();
  return impl_->engine().gathering().gather_state(impl_->steps_done());
}
void Runner::load_state(const std::vector<NamedTensor>& state) {
  impl_->engine().held().load_rules(state);
}

std::map<std::uint32_t, std::vector<NamedTensor>> Runner::gather_buffers() {
  impl_->synchronize();
  return impl_->gather_buffers();
}

std::map<std::uint32_t, std::vector<NamedTensor>> Runner::gather_owed() {
  impl_->synchronize();
  return impl_->engine().gathering().gather_owed(impl_->steps_done());
}
std::string Runner::outcome(const std::string& of_chief) {
  return impl_->engine().small_collectives().outcome(impl_->steps_done(), of_chief);
}
void Runner::load_owed(const std::vector<NamedTensor>& owed) {
  impl_->engine().held().load_owed(owed);
}

program::Trace Runner::take_trace() { return impl_->trace().take(); }
program::Trace Runner::gather_trace() { return impl_->gather_trace(); }
comm::ExchangeCounters Runner::counters() const { return impl_->engine().link().counters(); }

}  // namespace autodist::exec
