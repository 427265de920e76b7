#include "autodist/exec/compute_stream.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/op_call.h"
#include "autodist/capture/other_way.h"
#include "autodist/exec/nonfinite.h"
#include "autodist/exec/outputs.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

// Shorter sleeps take longer to start and end than they last.
constexpr Seconds kShortestSleep{1e-3};

}  // namespace

struct ComputeStream::Interpreter {
  ComputeStream& stream;
  ShapedStep& shape;
  const std::vector<MicroBatch>& micros;
  bool last;  // `micros` ends with the step's last micro-batch
  Seconds waiting;
  std::vector<ir::VariableId> updates{};  // that are still to do

  // Nothing for a micro-batch without rows.
  const MicroBatch* with_rows(std::uint32_t micro_batch) const {
    if (micro_batch >= micros.size() || micros[micro_batch].samples == 0) return nullptr;
    return &micros[micro_batch];
  }

  void operator()(const program::Fetch& fetch) {
    // Values that were written here since the last step are whole at this rank, and the owner may
    // not have them yet.
    if (stream.changed_.count(fetch.variable) != 0) return;
    // Without rows only whole variables are asked for.
    if (!fetch.rows.empty() && with_rows(0) == nullptr) return;
    std::vector<torch::Tensor> numbers;
    for (const ir::ValueId each : fetch.rows) {
      numbers.push_back(on_host(shape.replay_->tensor(each), stream.engine_.slices().staging,
                                [this] { stream.engine_.signal().rethrow(); }));
    }
    stream.engine_.driver().fetch(fetch.variable, numbers, stream.step_);
  }
  void operator()(const program::KeepFactors& keep) {
    if (with_rows(0) == nullptr) return;
    stream.hand_over_.keep_factors(keep.variable, shape.replay_->tensor(keep.left),
                                   shape.replay_->tensor(keep.right));
  }
  void operator()(const program::Gate& gate) { waiting += stream.pass(gate.variable); }
  void operator()(const program::Compute& compute) {
    const MicroBatch* micro = with_rows(compute.micro_batch);
    if (micro == nullptr) return;
    stream.at_ = {micro->replay, compute.op};
    try {
      stream.compute(*micro->replay, compute.op, micro->samples);
    } catch (const capture::OtherWay& other) {
      if (!stream.options_.passes_guards || !std::holds_alternative<bool>(other.found)) throw;
    }
    if (stream.watched_.any()) stream.watched_.keep_values(*micro->replay, compute.op);
    if (compute.op == shape.loss_op_ && stream.device_.is_cpu()) stream.check_loss(shape, *micro);
  }
  void run_all(const std::vector<ir::OpId>& ops) {
    const MicroBatch* micro = with_rows(0);
    if (micro == nullptr) return;
    stream.at_ = {micro->replay, ops.front()};
    micro->replay->run(ops);
  }
  void operator()(const program::Send& send) {
    const program::StageTransfer& transfer = stream.program_.transfer(send.transfer);
    const MicroBatch* micro = with_rows(transfer.micro_batch);
    if (micro == nullptr) return;
    stream.let_device_finish();
    stream.hand_over_.send(send.transfer, transfer.value ? micro->replay->take_sent(*transfer.value)
                                                         : micro->replay->generator_state());
  }
  void operator()(const program::Receive& receive) {
    const program::StageTransfer& transfer = stream.program_.transfer(receive.transfer);
    const MicroBatch* micro = with_rows(transfer.micro_batch);
    if (micro == nullptr) return;
    stream.let_device_finish();
    const Seconds start = stream.clock_.now();
    const Seconds traced = stream.trace_.start_of_row();
    torch::Tensor value =
        stream.engine_.stages().receive(receive.transfer, stream.step_, micro->samples);
    waiting += stream.clock_.now() - start;
    stream.trace_.add(program::Activity::kGate, program::StreamKind::kCompute, stream.step_,
                      program::name_of(transfer), Bytes{}, traced);
    if (transfer.value) {
      micro->replay->put(*transfer.value, std::move(value));
    } else {
      micro->replay->set_generator_state(value);
    }
  }
  void operator()(const program::Contribute& contribute) {
    const std::uint32_t index = contribute.micro_batch;
    if (index >= micros.size()) return;
    const MicroBatch& micro = micros[index];
    const bool hand_over = last && index + 1 == micros.size();
    if (hand_over && !stream.program_.is_placed()) stream.add_sums(micros);
    const Seconds start = stream.trace_.start_of_row();
    torch::Tensor gradient = stream.hand_over_.add(
        *micro.replay, contribute.variable, {micro.samples, micro.samples_before, hand_over});
    if (!hand_over) return;
    if (gradient.defined()) stream.watched_.keep_gradient(contribute.variable, gradient);
    stream.let_device_finish();
    stream.hand_over_.contribute(contribute.variable, std::move(gradient),
                                 micro.samples_before + micro.samples);
    stream.trace_.add(program::Activity::kContribute, program::StreamKind::kCompute, stream.step_,
                      stream.program_.graph->variable(contribute.variable).name, Bytes{}, start);
  }
  void operator()(const program::Release& release) {
    if (!last) return;
    stream.release(release.variable);
  }
  void operator()(const program::AllReduce& reduce) {
    if (last) stream.engine_.whole().all_reduce(reduce.collective, stream.step_);
  }
  // Waits at the host until the gradient is known to be finite. Updates on a device are kept until
  // all ops are handed over, so that the device computes meanwhile.
  void operator()(const program::Update& update) {
    if (!last) return;
    if (stream.device_.is_cpu()) {
      stream.engine_.whole().update({update.variable}, stream.step_);
    } else {
      updates.push_back(update.variable);
    }
  }
  void contribute_own() {
    stream.hand_over_.contribute_own([this] { stream.engine_.signal().rethrow(); });
  }
  void finish_updates() {
    stream.at_ = {};
    if (stream.device_.is_cpu()) return;
    contribute_own();
    if (updates.empty() || stream.hand_over_.held_back()) return;  // then no gradient comes
    if (stream.trace_.enabled()) {
      for (const ir::VariableId each : updates) stream.engine_.whole().update({each}, stream.step_);
    } else {
      stream.engine_.whole().update(updates, stream.step_);
    }
    // Ops that read the variable have no gate before them, which would wait for this.
    for (const ir::VariableId each : updates) stream.await_copy(each, WaitSite::kOwnUpdates);
  }
  // The update waits for its norm, so the stream need not.
  void operator()(const program::Norm& /*norm*/) {}
  // The update waits for all ranks' flags, so the stream need not.
  void operator()(const program::AgreeFinite& /*agree*/) {
    if (!last) return;
    contribute_own();
    stream.hand_over_.raise_flag();
  }
  void operator()(const program::StepBarrier& /*barrier*/) {
    AD_CHECK(false) << "a step's barrier, which only the simulator performs";
  }
};

ComputeStream::ComputeStream(Engine& engine, const Clock& clock)
    : program_(engine.rank().program),
      rank_(engine.rank().self),
      options_(engine.rank().options),
      clock_(clock),
      engine_(engine),
      trace_(engine.rank().trace),
      device_(engine.slices().staging.device()),
      offers_core_(device_.is_cpu() && program_.ranks.size() > 1),
      holds_(program_.graph->variables.size()),
      hand_over_(engine) {}

void ComputeStream::begin_step(std::uint64_t step, std::set<ir::VariableId> changed) {
  step_ = step;
  changed_ = std::move(changed);
  added_sums_ = false;
  open_sums_ = engine_.news().job_sums().open(step);
  const bool scales = engine_.slices().scaler.is_on();
  hand_over_.begin_step(step, scales ? engine_.driver().await_scale(step).scale : 1);
}

void ComputeStream::begin(const MicroBatch& micro) {
  at_ = {};
  // Stages run op by op, and no value of theirs is watched.
  const bool is_stage = program_.is_placed();
  if (!is_stage) watched_.find(micro.replay->graph());
  if (micro.samples != 0) micro.replay->begin(*micro.rows, micro.seed, is_stage || op_by_op());
}

void ComputeStream::abandon(const MicroBatch& micro) {
  at_ = {};
  micro.replay->abandon();
  watched_.abandon();
  // What is newer may go in meanwhile (with staleness): whoever settles variables waits for it.
  for (std::size_t i = 0; i < holds_.size(); ++i) {
    if (holds_[i]) release(ir::VariableId(i));
  }
}

void ComputeStream::release(ir::VariableId variable) {
  engine_.slices().variables.read_until(variable, Queue::current(device_).record());
  engine_.driver().release(variable);
  holds_[variable.value] = false;
}

void ComputeStream::await_copy(ir::VariableId variable, WaitSite site) {
  engine_.slices().variables.await_copy(variable, Queue::current(device_), site);
}

StepResult ComputeStream::run(ShapedStep& shape, const std::vector<MicroBatch>& micros, bool last,
                              Seconds start) {
  Interpreter interpreter{*this, shape, micros, last, Seconds{}};
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
    add_sums(micros);
  } else {
    add_losses(micros);
  }
  if (!device_.is_cpu()) await_gradients(shape, micros);
  StepResult result;
  const bool mean = program_.graph->reduction == ir::Reduction::kMean;
  const bool one = micros.size() == 1;
  const std::vector<double> losses = losses_of(micros);
  for (std::size_t i = 0; i < micros.size(); ++i) {
    const MicroBatch& micro = micros[i];
    if (micro.samples == 0) continue;
    result.samples += micro.samples;
    result.loss += losses[i] * (mean && !one ? static_cast<double>(micro.samples) : 1);
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

// By micro-batch; of one without rows 0. A device's losses have come to the host with the step's
// numbers, those of these micro-batches last: reading its tensors would wait for the updates, too.
std::vector<double> ComputeStream::losses_of(const std::vector<MicroBatch>& micros) const {
  std::vector<double> losses(micros.size());
  auto newest = hand_over_.losses().rbegin();
  for (std::size_t i = micros.size(); i-- > 0;) {
    if (micros[i].samples == 0) continue;
    losses[i] = device_.is_cpu() ? micros[i].replay->output(0).item<double>() : *newest++;
  }
  return losses;
}

// The step ends when the host has all gradients: what its threads share is of one step at a time.
void ComputeStream::await_gradients(const ShapedStep& shape,
                                    const std::vector<MicroBatch>& micros) {
  hand_over_.await();
  engine_.signal().rethrow();
  if (!hand_over_.held_back()) return;
  for (const MicroBatch& micro : micros) {
    if (micro.samples != 0) check_loss(shape, micro);
  }
  AD_CHECK(false) << "step " << step_
                  << ": the host got a loss that is not finite; the device's is";
}

// Blocks until a version is there that this step may use; the time that took.
Seconds ComputeStream::pass(ir::VariableId variable) {
  const Seconds start = clock_.now();
  const Seconds traced = trace_.start_of_row();
  const auto late = [this](bool gives_up) {
    return engine_.calls().whom_a_step_awaits(step_, /*says=*/!gives_up);
  };
  const bool was_open = engine_.driver().hold(variable, step_, late);
  holds_[variable.value] = true;
  await_copy(variable, WaitSite::kGate);
  const bool fetched = !keeps_whole_copies(program_.exchange(variable));
  if (fetched) engine_.slices().variables.watch().accept(variable);
  if (was_open && !fetched) return Seconds{};
  const Seconds waited = clock_.now() - start;
  trace_.add(program::Activity::kGate, program::StreamKind::kCompute, step_,
             program_.graph->variable(variable).name, Bytes{}, traced);
  return waited;
}

void ComputeStream::compute(Replay& replay, ir::OpId op, std::int64_t samples) {
  if (options_.device_time) {
    device_debt_ += options_.device_time(replay.graph().op(op), samples);
    if (device_debt_ > kShortestSleep) let_device_finish();
  }
  if (offers_core_) offer_core(offers_, clock_);
  const Seconds start = trace_.start_of_row();
  replay.run(op);
  trace_.add(program::Activity::kCompute, program::StreamKind::kCompute, step_,
             replay.graph().op(op).name, Bytes{}, start);
}

// Somebody looks at every op, or the host computes it.
bool ComputeStream::op_by_op() const {
  return device_.is_cpu() || trace_.enabled() || watched_.any();
}

void ComputeStream::let_device_finish() {
  if (device_debt_ == Seconds{}) return;
  std::this_thread::sleep_for(
      std::chrono::duration<double>(std::exchange(device_debt_, Seconds{}).value));
}

void ComputeStream::add_losses(const std::vector<MicroBatch>& micros) {
  for (const MicroBatch& micro : micros) {
    if (micro.samples != 0) hand_over_.add_numbers(*micro.replay, micro.samples);
  }
}

// The sums over this rank's samples, with its last micro-batches: once their losses are known,
// before the step's first contribution.
void ComputeStream::add_sums(const std::vector<MicroBatch>& micros) {
  if (std::exchange(added_sums_, true)) return;
  add_losses(micros);
  hand_over_.send_numbers();
}

// Before anything of this step leaves the rank.
void ComputeStream::check_loss(const ShapedStep& shape, const MicroBatch& micro) const {
  if (options_.on_nonfinite == OnNonFinite::kIgnore || engine_.slices().scaler.is_on()) return;
  const auto loss = micro.replay->output(0).item<double>();
  if (std::isfinite(loss)) return;
  micro.replay->end();
  const std::string word = std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf";
  // A stage cannot look for the op: it has not what earlier stages computed.
  const std::string culprit = program_.is_placed() ? "the last of its stages computes it"
                                                   : first_nonfinite(*micro.replay, *micro.rows,
                                                                     micro.seed, *shape.loss_op_);
  fail(ErrorCode::kUsage, "step {}: the loss of rank {} is {}: {}. {}", step_, rank_, word, culprit,
       kDiverges);
}

std::string ComputeStream::place() const {
  if (at_.replay == nullptr) return "outside of its ops";
  return fmt::format("at {}", at_.replay->describe(at_.op));
}

}  // namespace autodist::exec
