#include "autodist/exec/synchroniser.h"

#include <algorithm>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/capture/torch_types.h"
#include "autodist/exec/factors.h"
#include "autodist/exec/slice_notes.h"
#include "autodist/ir/rows.h"

namespace autodist::exec {
namespace {

std::vector<Seconds> first_needs(const ir::Program& program) {
  std::vector<Seconds> needed(program.variables.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::vector<ir::SliceId>& slices = program.variables[i].slices;
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
std::optional<ir::SliceId> slice_of_sums(const ir::Program& program) {
  if (program.is_placed() || !program.synchronous()) return std::nullopt;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    if (program.slices[i].members.size() == program.batch_parts()) return ir::SliceId(i);
  }
  return std::nullopt;
}

}  // namespace

Synchroniser::Synchroniser(const ir::Program& program, ir::Rank self,
                           const capture::Bindings& bindings, const RunnerConnections& connections,
                           const RunnerOptions& options, TraceRecorder& trace)
    : program_(program),
      self_(self),
      options_(options),
      trace_(trace),
      plan_(program),
      norms_(plan_.parts),
      scaler_(ir::loss_scaling_of(program), options.first_step),
      needed_(first_needs(program)),
      whole_(program.variables.size()),
      calls_(program, self, options.first_step, options.wait_limit, signal_, call_peers()),
      notes_(program, self, signal_, calls_, poster()),
      buffers_(bindings.buffers) {
  for (const ir::Slice& slice : program.slices) ways_.push_back(way_of(program, slice, self));
  sums_slice_ = slice_of_sums(program);
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    all_reduces_.emplace_back(program, ir::CollectiveId(i), connections.collectives,
                              options.job_seed);
  }
  variables_ = std::make_unique<LocalVariables>(
      program, plan_, norms_, scaler_, options.user_rules, bindings, options.first_step, signal_,
      [this](ir::VariableId variable) {
        jobs_->push(variables_->version(variable), needed_[variable.value], [this, variable] {
          const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
          const std::uint64_t step = variables_->version(variable);
          variables_->install(variable);
          if (trace_.enabled()) {
            trace_.add(ir::Activity::kInstall, ir::StreamKind::kTransfer, step,
                       program_.graph->variable(variable).name,
                       ir::bytes_of(*program_.graph, variable), start);
          }
        });
      });
  std::vector<torch::Tensor> dense;
  std::vector<const std::byte*> values;
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    dense.push_back(variables_->dense(ir::VariableId(i)));
    values.push_back(static_cast<const std::byte*>(dense.back().data_ptr()));
  }
  owner_ = std::make_unique<Owner>(
      program, self, options.first_step, values, plan_, norms_, scaler_, options.user_rules,
      OwnerSink{
          [this](ir::SliceId slice, std::uint64_t step, std::int64_t samples,
                 const comm::Payload& payload,
                 const std::string& rider) { send_result(slice, step, samples, payload, rider); },
          [this](ir::SliceId slice, ir::Rank to, std::uint64_t step, std::int64_t samples,
                 const comm::Payload& payload) { send_answer(slice, to, step, samples, payload); },
          [this](ir::SliceId slice, ir::Rank to, std::uint64_t step, const comm::Payload& rows) {
            if (to == self_) return fetcher_->take(slice, step, rows);
            post_note(to.value, note_number(kRowsBlock, slice), step, rows);
          },
          [this](ir::SliceId slice, std::uint64_t step, bool lamb,
                 const std::vector<SquaredSums>& sums) { send_sums(slice, step, lamb, sums); }});
  fetcher_ = std::make_unique<RowFetcher>(
      program, signal_,
      [this](ir::SliceId slice, std::uint64_t step, const comm::Payload& numbers) {
        ask_for_rows(slice, step, numbers);
      });
  contributor_ = std::make_unique<Contributor>(
      program, [this](ir::SliceId id, std::uint64_t step, std::int64_t samples,
                      comm::Payload payload) { send_contribution(id, step, samples, payload); });
  if (program.is_placed()) {
    stages_ = std::make_unique<StageLink>(
        program, self, options.wait_limit, signal_,
        [this](ir::Rank to, ir::TransferId id, std::uint64_t step, const comm::Payload& payload) {
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
    take_contribution(ir::SliceId(frame.header.slice), frame.header.step,
                      ir::Rank(frame.header.from), frame.header.samples, frame.payload,
                      frame.rider);
  };
  handlers.result = [this](const comm::Frame& frame) {
    take_result(ir::SliceId(frame.header.slice), frame.header.step, frame.header.samples,
                frame.payload, frame.rider);
  };
  handlers.norm = [this](const comm::Frame& frame) { take_norm_frame(frame); };
  handlers.note = [this](const comm::Frame& frame) { take_note_frame(frame); };
  if (trace_.enabled()) {
    handlers.delivered = [this](const comm::Delivery& delivery) { trace_delivery(delivery); };
  }
  comm::ExchangeOptions how = options_.exchange;
  if (program_.window > Bytes{0}) {
    how.window = program_.window;
    how.nic_budget = program_.window * ir::kWindowsPerCard;
  }
  exchange_ = std::make_unique<comm::Exchange>(*connections.transport, *connections.clock, how,
                                               std::move(handlers));
  exchange_->on_failure([this] { signal_.fail(exchange_->failure()); });
}

std::string Synchroniser::name_of(ir::SliceId slice) const {
  return program_.shard(program_.slice(slice).pieces.front().shard).name;
}

void Synchroniser::trace_delivery(const comm::Delivery& delivery) {
  const bool result = delivery.kind == comm::FrameKind::kResult;
  if (!result && delivery.kind != comm::FrameKind::kContribute) return;
  const ir::SliceWay way{ir::SliceId(delivery.slice), ir::Rank(delivery.to), result};
  const Bytes bytes(static_cast<std::int64_t>(delivery.bytes));
  const std::string name = name_of(way.slice);
  trace_.add_between(ir::Activity::kQueue, delivery.step, name, bytes, delivery.posted,
                     delivery.left, way);
  trace_.add_between(ir::Activity::kWire, delivery.step, name, bytes, delivery.left,
                     delivery.acknowledged, way);
}

Seconds Synchroniser::chief_is_ahead() const {
  if (self_ == ir::Rank(0) || !exchange_) return Seconds{0};
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

void Synchroniser::contribute(ir::VariableId variable, const torch::Tensor& gradient,
                              std::uint64_t step, std::int64_t samples) {
  const ir::VariablePlan& plan = program_.plan(variable);
  if (!plan.slices.empty()) {
    contributor_->contribute(variable, gradient, step, samples);
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
    if (!plan.collective) whole.averaged = step + 1;
  }
  signal_.notify();
  if (!plan.collective) report_whole_norm(variable, step);
}

void Synchroniser::send_contribution(ir::SliceId id, std::uint64_t step, std::int64_t samples,
                                     const comm::Payload& payload) {
  const ir::Slice& slice = program_.slice(id);
  const std::string rider = rider_of(id);
  for (const ir::Rank to : ways_[id.value].contributes) {
    if (to == self_) {
      take_contribution(id, step, self_, samples, payload, rider);
    } else {
      exchange_->post(to.value, {comm::FrameKind::kContribute, step, id.value, samples,
                                 slice.needed, payload, rider});
    }
  }
}

void Synchroniser::take_contribution(ir::SliceId slice, std::uint64_t step, ir::Rank from,
                                     std::int64_t samples, comm::Payload payload,
                                     std::string rider) {
  if (owner_->add(slice, step, from, samples, std::move(payload), std::move(rider))) {
    push_merge(slice, step);
  }
}

void Synchroniser::push_merge(ir::SliceId slice, std::uint64_t step) {
  jobs_->push(step, program_.slice(slice).needed, [this, slice, step] { merge(slice, step); });
}

void Synchroniser::merge(ir::SliceId slice, std::uint64_t step) {
  const Seconds start = trace_.enabled() ? trace_.now() : Seconds{};
  const bool next_is_complete = owner_->merge(slice);
  if (trace_.enabled()) {
    trace_.add(ir::Activity::kMerge, ir::StreamKind::kTransfer, step, name_of(slice),
               bytes_of(program_.slice(slice)), start, ir::SliceWay{slice, self_, false});
  }
  if (next_is_complete) push_merge(slice, step + 1);
}

void Synchroniser::contribute_factors(ir::VariableId variable, const torch::Tensor& left,
                                      const torch::Tensor& right, std::uint64_t step,
                                      std::int64_t samples) {
  const ir::SliceId id = program_.plan(variable).slices.front();
  const torch::ScalarType type = scalar_type_of(program_.slice(id).dtype);
  send_contribution(id, step, samples,
                    samples == 0 ? comm::Payload{} : pack_factors(left, right, type));
}

// What was combined here: the result, or on the way to the owner a part of it.
void Synchroniser::send_result(ir::SliceId id, std::uint64_t step, std::int64_t samples,
                               const comm::Payload& payload, const std::string& rider) {
  const ir::Slice& slice = program_.slice(id);
  if (const auto& onward = ways_[id.value].onward) {
    exchange_->post(onward->value, {comm::FrameKind::kContribute, step, id.value, samples,
                                    slice.needed, samples == 0 ? comm::Payload{} : payload, rider});
    return;
  }
  take_result(id, step, samples, payload, rider);
}

void Synchroniser::take_result(ir::SliceId id, std::uint64_t step, std::int64_t samples,
                               const comm::Payload& payload, const std::string& rider) {
  const ir::Way& way = ways_[id.value];
  for (const ir::Rank to : way.returns) {
    exchange_->post(to.value, {comm::FrameKind::kResult, step, id.value, samples,
                               program_.slice(id).needed, payload, rider});
  }
  if (!way.installs) return;
  Rider said = decode_rider(rider);
  if (id == sums_slice_) job_sums_.put(step, std::move(said.sums));
  variables_->take_result(id, step, samples, payload, std::move(said.news));
}

void Synchroniser::send_answer(ir::SliceId id, ir::Rank to, std::uint64_t step,
                               std::int64_t samples, const comm::Payload& payload) {
  if (to == self_) {
    variables_->take_result(id, step, samples, payload);
    return;
  }
  exchange_->post(to.value, {comm::FrameKind::kResult, step, id.value, samples,
                             program_.slice(id).needed, payload});
}

comm::SliceNumber Synchroniser::note_number(std::size_t block, ir::SliceId slice) const {
  return static_cast<comm::SliceNumber>(static_cast<std::size_t>(Topic::kStates) +
                                        block * program_.slices.size() + slice.value);
}

comm::SliceNumber Synchroniser::transfer_number(ir::TransferId transfer) const {
  return note_number(kSliceBlocks, ir::SliceId(0)) + static_cast<comm::SliceNumber>(transfer.value);
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
      send_parameters(to, step, [](const ir::Slice& slice) { return !slice.synchronous; });
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kRowsWanted)) {
    jobs_->push(step, Seconds{}, [this, step, to = frame.header.from] {
      send_parameters(to, step, fetched_in_step);
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kStagesWanted)) {
    jobs_->push(step, Seconds{}, [this, step, to = frame.header.from] {
      send_parameters(to, step, elsewhere_than(ir::Rank(to)));
    });
  } else if (topic == static_cast<comm::SliceNumber>(Topic::kSums)) {
    take_sums_note(frame.header.from, step, frame.payload.to_string());
  } else if (stages_ && topic >= transfer_number(ir::TransferId(0))) {
    const ir::TransferId id(topic - transfer_number(ir::TransferId(0)));
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
  const ir::SliceId slice(slices == 0 ? 0 : number % slices);
  const std::size_t block = slices == 0 ? 0 : number / slices;
  if (block == kAskBlock) {
    jobs_->push(step, Seconds{},
                [this, slice, step, from = ir::Rank(frame.header.from), numbers = frame.payload] {
                  owner_->fetch(slice, from, step, numbers);
                });
  } else if (block == kRowsBlock) {
    fetcher_->take(slice, step, frame.payload);
  } else {
    {
      const Signal::Lock lock = signal_.lock();
      gathered_[{frame.header.from, frame.header.slice}] = frame.payload;
    }
    signal_.notify();
  }
}

void Synchroniser::ask_for_rows(ir::SliceId slice, std::uint64_t step,
                                const comm::Payload& numbers) {
  const ir::Rank owner = program_.slice(slice).owner;
  if (owner != self_) return post_note(owner.value, note_number(kAskBlock, slice), step, numbers);
  jobs_->push(step, Seconds{},
              [this, slice, step, numbers] { owner_->fetch(slice, self_, step, numbers); });
}

void Synchroniser::fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
                         std::uint64_t step) {
  fetcher_->fetch(variable, numbers, step);
}

void Synchroniser::await_rows(ir::VariableId variable) {
  fetcher_->install(variable, variables_->tensor(variable), options_.wait_limit);
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
