#include "autodist/exec/effects.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/slice_notes.h"
#include "autodist/ir/rows.h"
#include "autodist/program/loads.h"

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
  if (program.is_placed() || !program.lag()) return std::nullopt;
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
      norms_(job_.norms.parts),
      scaler_(program::loss_scaling_of(program), options.first_step),
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
    stages_ = std::make_unique<StageLink>(program, self, options.wait_limit, signal_,
                                          [this](program::Rank to, program::TransferId id,
                                                 std::uint64_t step, const comm::Payload& payload) {
                                            post_note(to.value, transfer_number(id), step, payload);
                                          });
  }
  jobs_ = std::make_unique<JobQueue>([this](const std::exception_ptr& reason) { abort(reason); });
  if (program.ranks.size() > 1) start_exchange(connections);
  jobs_->start();  // now that there is an exchange to post to
}

Notes::Post Synchroniser::poster() {
  return [this](std::uint32_t to, Topic topic, std::uint64_t step, const std::string& note) {
    note_bytes_ += note.size();
    post_note(to, static_cast<comm::SliceNumber>(topic), step, comm::Payload::copy_of(note));
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
  handlers.contribution = [this](const comm::Frame& frame) {
    const program::Rank from(frame.header.from);
    const program::SliceId slice(frame.header.slice);
    owner_->keep(slice, frame.header.step, from, frame.header.samples, frame.payload, frame.rider);
    tell(protocol::ContributionArrived{from, slice, frame.header.step});
  };
  handlers.result = [this](const comm::Frame& frame) {
    AD_CHECK(frame.header.slice < program_.slices.size()) << "a result of no slice";
    tell(protocol::ResultArrived{program::SliceId(frame.header.slice), frame.header.step},
         {frame.header.samples, frame.payload, frame.rider, {}});
  };
  handlers.norm = [this](const comm::Frame& frame) { take_norm_frame(frame); };
  handlers.note = [this](const comm::Frame& frame) { take_note_frame(frame); };
  if (trace_.enabled()) {
    handlers.delivered = [this](const comm::Delivery& delivery) { trace_delivery(delivery); };
  }
  comm::ExchangeOptions how = options_.exchange;
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
  const bool result = delivery.kind == comm::FrameKind::kResult;
  if (!result && delivery.kind != comm::FrameKind::kContribute) return;
  const program::SliceWay way{program::SliceId(delivery.slice), program::Rank(delivery.to), result};
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
      const Signal::Lock lock = signal_.lock();
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
    const Signal::Lock lock = signal_.lock();
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

comm::SliceNumber Synchroniser::note_number(std::size_t block, program::SliceId slice) const {
  return static_cast<comm::SliceNumber>(static_cast<std::size_t>(Topic::kStates) +
                                        block * program_.slices.size() + slice.value);
}

comm::SliceNumber Synchroniser::transfer_number(program::TransferId transfer) const {
  return note_number(kSliceBlocks, program::SliceId(0)) +
         static_cast<comm::SliceNumber>(transfer.value);
}

void Synchroniser::post_note(std::uint32_t to, comm::SliceNumber topic, std::uint64_t step,
                             comm::Payload payload) {
  exchange_->post(to, {comm::FrameKind::kNote, step, topic, 0, Seconds{}, std::move(payload)});
}

void Synchroniser::take_note_frame(const comm::Frame& frame) {
  const std::uint64_t step = frame.header.step;
  const comm::SliceNumber topic = frame.header.slice;
  if (topic == static_cast<comm::SliceNumber>(Topic::kStatesWanted)) {
    jobs_->push(step, Seconds{}, [this, step] { send_states(step); });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kParametersWanted)) {
    jobs_->push(step, Seconds{}, [this, step, to = frame.header.from] {
      send_parameters(to, step,
                      [](const program::Slice& slice) { return !lag_of(slice.exchange); });
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kRowsWanted)) {
    jobs_->push(step, Seconds{}, [this, step, to = frame.header.from] {
      send_parameters(to, step, fetched_in_step);
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kStagesWanted)) {
    jobs_->push(step, Seconds{}, [this, step, to = frame.header.from] {
      send_parameters(to, step, elsewhere_than(program::Rank(to)));
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kSums)) {
    take_sums_note(frame.header.from, step, frame.payload.to_string());
  } else if (stages_ && topic >= transfer_number(program::TransferId(0))) {
    const program::TransferId id(topic - transfer_number(program::TransferId(0)));
    AD_CHECK(id.value < program_.transfers.size()) << "a note on topic " << topic;
    stages_->take(id, step, frame.payload);
  } else if (topic >= static_cast<comm::SliceNumber>(Topic::kStates)) {
    take_slice_note(frame);
  } else {
    notes_.take(frame);
  }
}

void Synchroniser::take_slice_note(const comm::Frame& frame) {
  const std::uint64_t step = frame.header.step;
  const auto slices = static_cast<comm::SliceNumber>(program_.slices.size());
  const comm::SliceNumber number =
      frame.header.slice - static_cast<comm::SliceNumber>(Topic::kStates);
  const program::SliceId slice(slices == 0 ? 0 : number % slices);
  const std::size_t block = slices == 0 ? 0 : number / slices;
  if (block == kAskBlock) {
    const program::Rank from(frame.header.from);
    owner_->keep_ask(slice, from, step, frame.payload);
    tell(protocol::AskArrived{from, slice, step});
  } else if (block == kRowsBlock) {
    fetcher_->take(slice, step, frame.payload);
    tell(protocol::RowsArrived{slice});
  } else {
    {
      const Signal::Lock lock = signal_.lock();
      gathered_[{frame.header.from, frame.header.slice}] = frame.payload;
    }
    signal_.notify();
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
  Signal::Lock lock = signal_.lock();
  signal_.wait(
      lock, options_.wait_limit, [&] { return protocol_.version(variable) >= version; },
      [&] { return describe_wait(variable); });
}

bool Synchroniser::hold(ir::VariableId variable, std::uint64_t step) {
  bool was_open = false;
  {
    Signal::Lock lock = signal_.lock();
    was_open = protocol_.is_open(variable, step);
    signal_.wait(
        lock, options_.wait_limit, [&] { return protocol_.is_open(variable, step); },
        [&] { return describe_wait(variable); });
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
      const Signal::Lock lock = signal_.lock();
      *done = true;
    }
    signal_.notify();
  });
  Signal::Lock lock = signal_.lock();
  signal_.wait(
      lock, options_.wait_limit, [&] { return *done; },
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
