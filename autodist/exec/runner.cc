#include "autodist/exec/runner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/digest.h"
#include "autodist/base/error.h"
#include "autodist/capture/device_refusal.h"
#include "autodist/capture/op_call.h"
#include "autodist/capture/other_way.h"
#include "autodist/exec/compute_stream.h"
#include "autodist/exec/engine.h"
#include "autodist/exec/safetensors.h"
#include "autodist/exec/side_streams.h"
#include "autodist/exec/tensor_data.h"
#include "autodist/exec/tensor_memory.h"
#include "autodist/exec/tensor_watch.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/ir/optimizer.h"
#include "autodist/ir/own_ops.h"
#include "autodist/program/loads.h"

namespace autodist::exec {
namespace {

void check_connections(const program::Program& program, program::Rank rank,
                       const RunnerConnections& connections) {
  AD_CHECK(connections.clock != nullptr) << "a runner needs a clock";
  for (const program::Collective& collective : program.collectives) {
    if (collective.members.size() > 1 && connections.collectives == nullptr) {
      fail(ErrorCode::kEnvironment,
           "run: the plan has library all-reduces ({}), rank {} has no collective library. Give "
           "it one (RunnerConnections), or take AllReduce:algorithm=ring.",
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
    for (const torch::Tensor& each : *tensors) bytes += byte_count(each);
  }
  return bytes;
}

std::vector<ir::VariableId> trained_in(const ir::Graph& graph) {
  std::vector<ir::VariableId> trained;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    if (graph.variables[i].gradient) trained.emplace_back(i);
  }
  return trained;
}

}  // namespace

class Runner::Impl {
 public:
  Impl(std::shared_ptr<const program::Program> program, program::Rank rank,
       capture::Bindings bindings, const RunnerConnections& connections, RunnerOptions options,
       const RankState& start)
      : program_(std::move(program)),
        rank_(rank),
        options_(std::move(options)),
        trace_(*connections.clock, rank, options_.trace,
               static_cast<std::uint64_t>(options_.trace_steps), start.trace),
        clock_(*connections.clock),
        step_(options_.first_step),
        needs_all_(!program_->lag() || program_->is_placed()),
        trained_(trained_in(*program_->graph)),
        engine_(*program_, rank, bindings, connections, options_, trace_, start),
        device_(engine_.slices().staging.device()),
        model_bytes_(bytes_of(bindings)),
        stream_(engine_, clock_),
        streams_(engine_) {
    note_initial_values();
    if (program_->ranks[rank.value].replica) {
      own_shape_.emplace(program_, rank, std::move(bindings), device_);
    }
  }

  StepResult step(const Batch& rows, ShapedStep* shape, bool last) {
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
    engine_.signal().rethrow();
  }

  void settle(ir::VariableId variable) {
    if (!own_shape_ || needs_all_ || !program_->graph->variable(variable).gradient) return;
    TensorWatch& watch = engine_.slices().variables.watch();
    if (watch.is_noted(variable)) return;
    await_settled(variable);
    if (!keeps_whole_copies(program_->exchange(variable))) pull_rows();
    engine_.signal().rethrow();
    watch.note(variable);
  }

  void open_to_changes() {
    synchronize();
    if (!own_shape_) return;
    TensorWatch& watch = engine_.slices().variables.watch();
    for (const ir::VariableId id : trained_) {
      // What has been written into one that was noted before is for the next step to find.
      if (!watch.is_noted(id)) watch.note(id);
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
        fail(ErrorCode::kUsage, "optimizer: the rule {} of '{}' has no option '{}'. Leave it out.",
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
    return own_shape_ && pulled_ != step_ && program_->ranks.size() > 1 && needs_all_;
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

  std::string take_written() {
    TensorWatch& watch = engine_.slices().variables.watch();
    std::vector<ir::VariableId> noted;
    std::copy_if(trained_.begin(), trained_.end(), std::back_inserter(noted),
                 [&](ir::VariableId id) { return watch.is_noted(id); });
    std::string digests;
    for (const auto& [variable, digest] : take_changes()) {
      written_.insert(variable);
      digests += fmt::format("{}:{:x} ", variable, digest);
    }
    for (const ir::VariableId id : noted) watch.note(id);
    return digests.empty() ? "" : to_string(digest_of(digests));
  }

  RankState hand_over(const program::Transition& transition) {
    RankState state = engine_.gathering().hand_over(transition, step_);
    pulled_ = pulled_rows_ = step_;  // this rank's copies are as the transition wants them
    await_copies();
    state.trace = {trace_.take(), trace_.origin()};
    return state;
  }

  void serve(const std::function<void()>& meanwhile) {
    AD_CHECK(!own_shape_) << "rank " << rank_ << " computes; serve() is for ranks that do not";
    engine_.small_collectives().wait_for_the_end(meanwhile);
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
    } else if (rank_ == program::Rank(kChief) && pulled_ != step_) {
      // Where pulled_ is this step, all have met here already, and the copies are the newest.
      settle();
      if (!program_->keeps_whole_copies()) pull_rows();
      engine_.gathering().pull_alone(step_);
      pulled_ = step_;
      await_copies();
    }
    return *all_finished_;
  }

  void finish() {
    const bool all = all_finish();
    const Calls::Scope end = calls().enter(Call::kFinish, step_);
    // A rank stays until no other one asks it for rows any more.
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

  // Rows travel in times of the chief's clock, and the chief counts them from its trace's start.
  program::Trace gather_trace() {
    program::Trace own = trace_.take();
    const Seconds to_chief = trace_.origin() + engine_.link().chief_is_ahead();
    shift(own, to_chief);
    std::vector<program::Trace> all;
    // As of the step after the last: buffers may have been gathered as of the last.
    const auto gathered = engine_.small_collectives().gather_at_chief(Topic::kGathering, step_ + 1,
                                                                      program::to_chrome_json(own));
    for (const auto& [rank, theirs] : gathered) {
      const std::string from = fmt::format("the trace of rank {}", rank);
      all.push_back(program::read_chrome_json(theirs, from));
      shift(all.back(), Seconds{0} - trace_.origin());
    }
    program::Trace whole = program::merged(std::move(all));
    whole.graph = program_->graph->name;
    return whole;
  }

  WatchedValues& watched() { return stream_.watched(); }

  Engine& engine() { return engine_; }
  [[nodiscard]] std::uint64_t steps_done() const { return step_; }
  [[nodiscard]] std::uint64_t next_seed() const { return seed(micro_batch_); }

 private:
  // Until the variable is the newest, for what the caller does with it from now on.
  void await_settled(ir::VariableId variable) {
    engine_.driver().await_settled(variable, step_);
    stream_.await_copy(variable, WaitSite::kSettledVariable);
  }

  // What was pulled is on its way to the device.
  void await_copies() {
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      stream_.await_copy(ir::VariableId(i), WaitSite::kSettledAll);
    }
  }

  // Into this rank's copies of all variables that are asked for; each must have its newest version.
  void pull_rows() {
    if (pulled_rows_ == step_) return;
    for (std::size_t i = 0; i < program_->variables.size(); ++i) {
      const ir::VariableId variable(i);
      if (keeps_whole_copies(program_->exchange(variable))) continue;
      await_settled(variable);
    }
    engine_.signal().rethrow();
    engine_.gathering().pull_rows(step_);
    pulled_rows_ = step_;
    TensorWatch& watch = engine_.slices().variables.watch();
    for (std::size_t i = 0; i < program_->variables.size(); ++i) watch.accept(ir::VariableId(i));
  }

  void note_initial_values() {
    if (options_.initial_values.empty()) return;
    TensorWatch& watch = engine_.slices().variables.watch();
    for (const ir::VariableId id : trained_) watch.note(id, options_.initial_values.at(id.value));
    // Every rank has begun with these values, and the first step takes what was written since: no
    // owner has newer ones to pull over that.
    pulled_ = pulled_rows_ = step_;
    asks_all_ = needs_all_;
  }

  // State is made for the declared options. An accumulator that the new options do not use rests as
  // it is, if those before it stay; before the first step it must not exist, as in torch.
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

  // The digests of variables into which somebody has written since the step before, or since this
  // was called: the job goes on from that.
  std::map<ir::VariableId, std::uint64_t> take_changes() {
    LocalVariables& variables = engine_.slices().variables;
    std::vector<ir::VariableId> noted;
    for (const ir::VariableId id : trained_) {  // all of them, before any is taken
      variables.watch().check_trained(id, program_->graph->variable(id).name);
      if (!variables.watch().is_noted(id)) {
        variables.check_untouched(id);
        continue;
      }
      variables.watch().check_kind(id, program_->graph->variable(id).name);
      noted.push_back(id);
    }
    std::map<ir::VariableId, std::uint64_t> changes;
    for (const ir::VariableId id : noted) {
      if (const auto digest = variables.watch().take_change(id)) changes[id] = *digest;
    }
    const bool together = std::exchange(asks_all_, false);
    if (together) engine_.news().agree_on_changes(changes, step_);
    if (changes.empty()) return {};
    engine_.news().change(changes);
    std::vector<ir::VariableId> changed;
    for (const auto& [variable, digest] : changes) changed.push_back(variable);
    engine_.driver().reload(changed, step_);
    // Owners apply contributions to asynchronous variables as they come, so all meet first: then
    // every contribution goes to the new values.
    if (together) engine_.small_collectives().meet(Topic::kChanged, step_);
    return changes;
  }

  template <typename Run>
  StepResult guarded(Run run) {
    engine_.signal().rethrow();
    AD_CHECK(own_shape_) << "rank " << rank_ << " only serves";
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
      engine_.gathering().await_state_shortly();  // the last step's, which was in order
      engine_.abort(std::current_exception());
      throw;
    }
  }

  [[nodiscard]] std::string who() const {
    return fmt::format("step {}: {} of rank {}", step_, device_.str(), rank_);
  }

  [[noreturn]] void refuse(const c10::OutOfMemoryError& error) {
    throw capture::DeviceRefusal(
        ErrorCode::kInfeasible,
        capture::no_memory(
            who(), stream_.place(), error,
            {{"Parameters, buffers and constants", model_bytes_},
             {"states of the optimizer", engine_.slices().variables.device_state_bytes()}},
            "Take smaller batches, more micro-batches, or place the model in stages."));
  }
  [[noreturn]] void refuse(const c10::NotImplementedError& error) const {
    throw capture::DeviceRefusal(ErrorCode::kUsage,
                                 capture::no_kernel(who(), stream_.place(), error));
  }

  void begin_step() {
    calls().begin_step(step_);
    std::set<ir::VariableId> written = std::exchange(written_, {});
    for (const auto& [variable, digest] : take_changes()) written.insert(variable);
    stream_.begin_step(step_, std::move(written));
    streams_.start(step_);
  }

  void end_step() {
    engine_.news().end_step(step_++);
    calls().end_step();
  }

  StepResult run_step(const Batch& rows, ShapedStep& shape, bool last) {
    const capture::BelowAutograd below_autograd;
    const Seconds start = clock_.now();
    const ComputeStream::MicroBatch micro{shape.replay_.get(), &rows,
                                          rows.empty() ? 0 : shape.replay_->samples_of(rows),
                                          samples_before_, seed(micro_batch_)};
    stream_.begin(micro);
    if (micro_batch_ == 0 && !std::exchange(under_way_, true)) begin_step();
    StepResult result;
    try {
      result = stream_.run(shape, {micro}, last, start);
    } catch (const capture::OtherWay& other) {
      stream_.abandon(micro);
      result.other_way = capture::way_of(micro.replay->graph(), micro.samples, other);
      return result;
    }
    if (last) {
      under_way_ = false;
      end_step();
      micro_batch_ = 0;
      samples_before_ = 0;
    } else {
      ++micro_batch_;
      samples_before_ += result.samples;
    }
    return result;
  }

  StepResult run_stage(const std::vector<Batch>& batches) {
    const capture::BelowAutograd below_autograd;
    const Seconds start = clock_.now();
    std::vector<ComputeStream::MicroBatch> micros;
    std::int64_t before = 0;
    for (const Batch& rows : batches) {
      const auto index = static_cast<std::uint32_t>(micros.size());
      Replay* replay =
          index == 0 ? own_shape_->replay_.get() : own_shape_->more_replays_[index - 1].get();
      micros.push_back({replay, &rows, replay->samples_of(rows), before, seed(index)});
      stream_.begin(micros.back());
      before += micros.back().samples;
    }
    const Batch none;
    if (micros.empty()) micros.push_back({own_shape_->replay_.get(), &none, 0, 0, 0});
    begin_step();
    StepResult result = stream_.run(*own_shape_, micros, /*last=*/true, start);
    end_step();
    return result;
  }

  // The stages of a replica draw from one generator.
  [[nodiscard]] std::uint64_t seed(std::uint32_t micro_batch) const {
    const std::uint32_t whose = program_->is_placed() ? program_->batch_part(rank_) : rank_.value;
    return step_seed(options_.job_seed, whose, step_, micro_batch);
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
  // The steps as of which this rank's copies were last made the newest: of all variables, and of
  // those that are asked for.
  std::optional<std::uint64_t> pulled_;
  std::optional<std::uint64_t> pulled_rows_;
  // Whether all computing ranks must take part where one variable is to be the newest.
  const bool needs_all_;
  const std::vector<ir::VariableId> trained_;
  bool asks_all_ = false;             // and the next step compares what they have changed
  std::set<ir::VariableId> written_;  // take_written(), until the next step
  bool under_way_ = false;            // step_ has begun
  Engine engine_;
  const torch::Device device_;  // of the model
  const Bytes model_bytes_;
  ComputeStream stream_;
  std::optional<ShapedStep> own_shape_;  // nothing for a rank that only serves
  SideStreams streams_;                  // ends first
};

Runner::Runner(std::shared_ptr<const program::Program> program, program::Rank rank,
               capture::Bindings bindings, const RunnerConnections& connections,
               RunnerOptions options, RankState start) {
  check_connections(*program, rank, connections);
  start_large_tensors_over();
  try {
    impl_ = std::make_unique<Impl>(std::move(program), rank, std::move(bindings), connections,
                                   std::move(options), start);
  } catch (const c10::OutOfMemoryError& error) {
    throw capture::DeviceRefusal(
        ErrorCode::kInfeasible,
        fmt::format("run: the device of rank {} has no memory for the states of the optimizer: {} "
                    "Take an optimizer with fewer, or place the model in stages.",
                    rank, capture::first_line(error)));
  }
}

Runner::~Runner() = default;

StepResult Runner::step(const Batch& own_rows, ShapedStep* shape) {
  return impl_->step(own_rows, shape, /*last=*/true);
}
StepResult Runner::accumulate(const Batch& own_rows, ShapedStep* shape) {
  return impl_->step(own_rows, shape, /*last=*/false);
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
void Runner::reload(const std::vector<ir::VariableId>& variables) {
  impl_->settle();
  impl_->engine().driver().reload(variables, impl_->steps_done());
}
void Runner::add_to_next_sums(std::vector<double> numbers) {
  impl_->engine().news().add_to_next_sums(std::move(numbers));
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
void Runner::serve(const std::function<void()>& meanwhile) { impl_->serve(meanwhile); }
void Runner::finish() { impl_->finish(); }
void Runner::leave(const std::string& reason) { impl_->engine().leave(reason); }
std::uint64_t Runner::steps_done() const { return impl_->steps_done(); }
std::uint64_t Runner::next_seed() const { return impl_->next_seed(); }

std::string Runner::take_written() { return impl_->take_written(); }
RankState Runner::hand_over(const program::Transition& transition) {
  return impl_->hand_over(transition);
}

LaterTensors Runner::gather_state() {
  impl_->synchronize();
  return impl_->engine().gathering().gather_state(impl_->steps_done());
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

program::Trace Runner::take_trace() { return impl_->engine().rank().trace.take(); }
program::Trace Runner::gather_trace() { return impl_->gather_trace(); }
comm::ExchangeCounters Runner::counters() const { return impl_->engine().link().counters(); }

}  // namespace autodist::exec
