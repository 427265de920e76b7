#include "autodist/exec/effects.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/ir/rows.h"

namespace autodist::exec {
namespace {

std::vector<Seconds> first_needs(const program::Program& program) {
  std::vector<Seconds> needed(program.variables.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::vector<program::SliceId>& slices = program.variables[i].slices;
    for (std::size_t j = 0; j < slices.size(); ++j) {
      const Seconds time = program.slice(slices[j]).needed;
      if (j == 0 || time < needed[i]) needed[i] = time;
    }
  }
  return needed;
}

std::string text_of(const std::exception_ptr& reason) {
  try {
    std::rethrow_exception(reason);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

// One that all replicas contribute to and get back. The stages of a placed graph know the loss only
// when some of them have contributed already.
std::optional<program::SliceId> slice_of_sums(const program::Program& program) {
  if (program.is_placed() || !program.synchronous()) return std::nullopt;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    if (program.slices[i].members.size() == program.batch_parts()) return program::SliceId(i);
  }
  return std::nullopt;
}

}  // namespace

Synchroniser::Synchroniser(const program::Program& program, program::Rank self,
                           const capture::Bindings& bindings, const RunnerConnections& connections,
                           const RunnerOptions& options, TraceRecorder& trace)
    : program_(program),
      self_(self),
      options_(options),
      trace_(trace),
      job_(program),
      protocol_(job_, self, options.first_step),
      plan_(program, job_),
      norms_(job_.norms.parts, signal_),
      scaler_(program::loss_scaling_of(program), options.first_step, signal_),
      needed_(first_needs(program)),
      whole_(program.variables.size()),
      calls_(program, self, options.first_step, options.wait_limit, signal_, call_peers()),
      notes_(program, self, signal_, calls_, poster()),
      buffers_(bindings.buffers) {
  sums_slice_ = slice_of_sums(program);
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    all_reduces_.emplace_back(program, program::CollectiveId(i), connections.collectives,
                              options.job_seed);
  }
  variables_ = std::make_unique<LocalVariables>(program, norms_, scaler_, options.user_rules,
                                                bindings, signal_);
  std::vector<torch::Tensor> dense;
  std::vector<const std::byte*> values;
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    dense.push_back(variables_->dense(ir::VariableId(i)));
    values.push_back(static_cast<const std::byte*>(dense.back().data_ptr()));
  }
  owner_ = std::make_unique<Owner>(program, job_, self, options.first_step, values, plan_, norms_,
                                   scaler_, options.user_rules, signal_);
  fetcher_ = std::make_unique<RowFetcher>(program, signal_);
  contributor_ = std::make_unique<Contributor>(program);
  if (program.is_placed()) {
    stages_ =
        std::make_unique<StageLink>(program, self, options.wait_limit, signal_,
                                    [this](program::Rank to, program::TransferId id,
                                           std::uint64_t step, const comm::Payload& payload) {
                                      post_note(to.value, {Topic::kTransfer, id}, step, payload);
                                    });
  }
  jobs_ = std::make_unique<JobQueue>([this](const std::exception_ptr& reason) { abort(reason); });
  if (program.ranks.size() > 1) start_exchange(connections);
  jobs_->start();  // now that there is an exchange to post to
}

Notes::Post Synchroniser::poster() {
  return [this](std::uint32_t to, Subject subject, std::uint64_t step, const std::string& note) {
    note_bytes_ += note.size();
    post_note(to, subject, step, comm::Payload::copy_of(note));
  };
}

CallPeers Synchroniser::call_peers() {
  CallPeers peers;
  peers.post = poster();
  peers.show = [this](comm::Position position) {
    if (exchange_) exchange_->set_position(position);
  };
  peers.where = [this](std::uint32_t rank) {
    return exchange_ ? exchange_->position_of(rank) : std::nullopt;
  };
  peers.say = options_.exchange.say;
  peers.abort = [this](const std::exception_ptr& reason) { abort(reason); };
  return peers;
}

void Synchroniser::start_exchange(const RunnerConnections& connections) {
  if (connections.transport == nullptr) {
    fail(ErrorCode::kEnvironment, "run: rank {} of {} has no transport.", self_,
         program_.ranks.size());
  }
  comm::Handlers handlers;
  handlers.message = [this](const comm::Frame& frame) { take_frame(frame); };
  if (trace_.enabled()) {
    handlers.delivered = [this](const comm::Delivery& delivery) { trace_delivery(delivery); };
  }
  comm::ExchangeOptions how = options_.exchange;
  how.name = [](comm::FrameKind kind, comm::MessageId id) {
    return exec::name_of(static_cast<Topic>(kind), id);
  };
  if (program_.window > Bytes{0}) {
    how.window = program_.window;
    how.nic_budget = program_.window * program::kWindowsPerCard;
  }
  exchange_ = std::make_unique<comm::Exchange>(*connections.transport, *connections.clock, how,
                                               std::move(handlers));
  exchange_->on_failure([this] { signal_.fail(exchange_->failure()); });
}

std::string Synchroniser::name_of(program::SliceId slice) const {
  return program_.shard(program_.slice(slice).pieces.front().shard).name;
}

void Synchroniser::trace_delivery(const comm::Delivery& delivery) {
  const auto topic = static_cast<Topic>(delivery.kind);
  const bool result = topic == Topic::kResult;
  if (!result && topic != Topic::kContribution) return;
  const program::SliceWay way{program::SliceId(delivery.id), program::Rank(delivery.to), result};
  const Bytes bytes(static_cast<std::int64_t>(delivery.bytes));
  const std::string name = name_of(way.slice);
  trace_.add_between(program::Activity::kQueue, delivery.step, name, bytes, delivery.posted,
                     delivery.left, way);
  trace_.add_between(program::Activity::kWire, delivery.step, name, bytes, delivery.left,
                     delivery.acknowledged, way);
}

Seconds Synchroniser::chief_is_ahead() const {
  if (self_ == program::Rank(0) || !exchange_) return Seconds{0};
  const auto difference = exchange_->clock_of(0);
  return difference ? difference->ahead : Seconds{0};
}

Synchroniser::~Synchroniser() {
  jobs_->stop();
  exchange_.reset();
}

void Synchroniser::abort(std::exception_ptr reason) {
  if (calls_.has_ended() || is_job_end(reason)) return;
  signal_.fail(reason);
  if (exchange_ && !exchange_->failure()) exchange_->abort(text_of(reason));
}

void Synchroniser::leave(const std::string& reason) {
  signal_.fail(std::make_exception_ptr(Error(ErrorCode::kPeersLost, reason)));
  if (exchange_) exchange_->abort(reason);
}

void Synchroniser::contribute(ir::VariableId variable, const torch::Tensor& gradient,
                              std::uint64_t step, std::int64_t samples) {
  const program::VariablePlan& plan = program_.plan(variable);
  if (!plan.slices.empty()) {
    contributor_->take(variable, gradient, samples);
    std::vector<program::SliceId> complete;
    {
      const MutexLock lock(signal_);
      protocol_.gradient_complete(variable,
                                  [&](program::SliceId slice) { complete.push_back(slice); });
    }
    for (const program::SliceId slice : complete) {
      send_contribution(slice, step, samples, contributor_->payload(slice, samples));
    }
    if (complete.size() == plan.slices.size()) contributor_->drop(variable);
    return;
  }
  {
    const MutexLock lock(signal_);
    Whole& whole = whole_[variable.value];
    const bool rows = ir::trained_by_rows(program_.graph->variable(variable));
    whole.gradient = samples == 0 ? torch::Tensor()
                     : rows && gradient.is_sparse()
                         ? gradient.coalesce()
                         : row_major(gradient, variables_->tensor(variable).scalar_type());
    whole.samples = samples;
    const auto said = news_.find(variable);
    whole.news = said == news_.end() ? "" : encode_news(*program_.graph, {*said});
    whole.contributed = step + 1;
  }
  signal_.notify();
  if (!plan.collective) averaged(variable, step);
}

void Synchroniser::send_contribution(program::SliceId id, std::uint64_t step, std::int64_t samples,
                                     const comm::Payload& payload) {
  std::string rider = rider_of(id);
  if (job_.keeps_own(job_.slice(id), self_)) {
    owner_->keep(id, step, self_, samples, payload, rider);
  }
  tell(protocol::Contributed{id, step}, {samples, payload, std::move(rider), {}});
}

void Synchroniser::contribute_factors(ir::VariableId variable, const torch::Tensor& left,
                                      const torch::Tensor& right, std::uint64_t step,
                                      std::int64_t samples) {
  const program::SliceId id = program_.plan(variable).slices.front();
  const torch::ScalarType type = scalar_type_of(program_.slice(id).dtype);
  send_contribution(id, step, samples,
                    samples == 0 ? comm::Payload{} : pack_factors(left, right, type));
}

void Synchroniser::post_note(std::uint32_t to, Subject subject, std::uint64_t step,
                             comm::Payload payload) {
  exchange_->post(to, {subject.kind(), step, subject.id, 0, Seconds{}, std::move(payload)});
}

void Synchroniser::take_frame(const comm::Frame& frame) {
  const Topic topic = topic_of(frame.header);
  const std::uint64_t step = frame.header.step;
  const program::Rank from(frame.header.from);
  const program::SliceId slice(frame.header.id);
  const auto send_wanted = [&](auto wanted) {
    jobs_->push(step, Seconds{},
                [this, step, from, wanted] { send_parameters(from.value, step, wanted); });
  };
  switch (topic) {
    case Topic::kContribution:
      owner_->keep(slice, step, from, frame.header.samples, frame.payload, frame.rider);
      return tell(protocol::ContributionArrived{from, slice, step});
    case Topic::kResult:
      AD_CHECK(slice.value < program_.slices.size()) << "a result of no slice";
      return tell(protocol::ResultArrived{slice, step},
                  {frame.header.samples, frame.payload, frame.rider, {}});
    case Topic::kSums:
    case Topic::kLambSums:
      return take_sums(slice, topic == Topic::kLambSums, frame);
    case Topic::kWholeSum:
      return take_whole_sum(ir::VariableId(frame.header.id), frame);
    case Topic::kFlag:
      return take_flag(frame);
    case Topic::kAsk:
      owner_->keep_ask(slice, from, step, frame.payload);
      return tell(protocol::AskArrived{from, slice, step});
    case Topic::kRows:
      fetcher_->take(slice, step, frame.payload);
      return tell(protocol::RowsArrived{slice});
    case Topic::kTransfer:
      AD_CHECK(stages_ && frame.header.id < program_.transfers.size())
          << "transfer " << frame.header.id;
      return stages_->take(program::TransferId(frame.header.id), step, frame.payload);
    case Topic::kStepSums:
      return take_sums_note(from.value, step, frame.payload.to_string());
    case Topic::kStatesWanted:
      return jobs_->push(step, Seconds{}, [this, step] { send_states(step); });
    case Topic::kParametersWanted:
      return send_wanted([](const program::Slice& each) { return !each.synchronous; });
    case Topic::kRowsWanted:
      return send_wanted(fetched_in_step);
    case Topic::kStagesWanted:
      return send_wanted(elsewhere_than(from));
    case Topic::kStates:
    case Topic::kOwedGradients:
    case Topic::kOwedAverages:
    case Topic::kParameters: {
      {
        const MutexLock lock(signal_);
        gathered_[{from.value, Subject(topic, slice)}] = frame.payload;
      }
      return signal_.notify();
    }
    default:
      notes_.take(frame);
  }
}

void Synchroniser::fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
                         std::uint64_t step) {
  for (RowFetcher::Wanted& wanted : fetcher_->want(variable, numbers, step)) {
    if (program_.slice(wanted.slice).owner == self_) {
      owner_->keep_ask(wanted.slice, self_, step, wanted.numbers);
    }
    tell(protocol::RowsWanted{wanted.slice, step}, {0, std::move(wanted.numbers), {}, {}});
  }
}

void Synchroniser::await_version(ir::VariableId variable, std::uint64_t version) {
  const MutexLock lock(signal_);
  signal_.wait(
      options_.wait_limit,
      [&]() AD_REQUIRES(signal_) { return protocol_.version(variable) >= version; },
      [&]() AD_REQUIRES(signal_) { return describe_wait(variable); });
}

bool Synchroniser::hold(ir::VariableId variable, std::uint64_t step) {
  bool was_open = false;
  {
    const MutexLock lock(signal_);
    was_open = protocol_.is_open(variable, step);
    signal_.wait(
        options_.wait_limit,
        [&]() AD_REQUIRES(signal_) { return protocol_.is_open(variable, step); },
        [&]() AD_REQUIRES(signal_) { return describe_wait(variable); });
    protocol::Effects none;
    protocol_.on(protocol::Held{variable}, none);
  }
  fetcher_->install(variable, variables_->tensor(variable));
  return was_open;
}

std::string Synchroniser::describe_wait(ir::VariableId variable) const {
  const std::uint64_t version = protocol_.version(variable);
  std::string rows = fetcher_->missing_rows(variable);
  return fmt::format("step: variable '{}' still has version {}; {}.",
                     program_.graph->variable(variable).name, version,
                     rows.empty() ? variables_->missing_results(variable, version) : rows);
}

void Synchroniser::release(ir::VariableId variable) {
  tell(protocol::Released{variable});
  // An update in another stream may wait for it.
  if (program_.plan(variable).slices.empty()) signal_.notify();
}

void Synchroniser::reload(const std::vector<ir::VariableId>& variables, std::uint64_t step) {
  for (const ir::VariableId variable : variables) variables_->reload(variable);
  const auto done = std::make_shared<bool>(false);  // guarded by the signal's lock
  jobs_->push(step, Seconds{}, [this, variables, done] {
    for (const ir::VariableId variable : variables) {
      const torch::Tensor values = variables_->dense(variable);
      owner_->reload(variable, static_cast<const std::byte*>(values.data_ptr()));
    }
    {
      const MutexLock lock(signal_);
      *done = true;
    }
    signal_.notify();
  });
  const MutexLock lock(signal_);
  signal_.wait(
      options_.wait_limit, [&] { return *done; },
      [] { return std::string("run: the merging thread does not come to new values."); });
}

void Synchroniser::finish(std::uint64_t step) {
  if (!exchange_) return;
  notes_.leave(step);
  exchange_->finish(options_.wait_limit);
}

comm::ExchangeCounters Synchroniser::counters() const {
  if (!exchange_) return {};
  comm::ExchangeCounters counters = exchange_->counters();
  counters.payload_bytes_sent -= std::min(counters.payload_bytes_sent, note_bytes_.load());
  return counters;
}

}  // namespace autodist::exec
