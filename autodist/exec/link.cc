#include "autodist/exec/link.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"

namespace autodist::exec {

Link::Link(const RankContext& rank)
    : program_(rank.program),
      self_(rank.self),
      options_(rank.options),
      signal_(rank.signal),
      trace_(rank.trace) {}

void Link::start(const RunnerConnections& connections,
                 std::function<void(const comm::Frame&)> take) {
  if (program_.ranks.size() == 1) return;
  if (connections.transport == nullptr) {
    fail(ErrorCode::kEnvironment,
         "run: rank {} of {} has no transport. Give it one (RunnerConnections).", self_,
         program_.ranks.size());
  }
  comm::Handlers handlers;
  handlers.message = [this, take = std::move(take)](const comm::Frame& frame) {
    { const MutexLock started(starting_); }
    take(frame);
  };
  if (trace_.enabled()) {
    handlers.delivered = [this](const comm::DeliveredMessage& delivery) {
      trace_delivery(delivery);
    };
  }
  comm::ExchangeOptions how = options_.exchange;
  how.name = [](comm::FrameKind kind, comm::MessageId id) {
    return name_of(static_cast<Topic>(kind), id);
  };
  if (program_.window > Bytes{0}) {
    how.window = program_.window;
    how.nic_budget = program_.window * program::kWindowsPerCard;
  }
  collectives_ = connections.collectives;
  const MutexLock starting(starting_);
  exchange_ = std::make_unique<comm::Exchange>(*connections.transport, *connections.clock, how,
                                               std::move(handlers));
  exchange_->on_failure([this] {
    signal_.fail(exchange_->failure());
    abort_collectives();
  });
}

// The threads end before the pointer goes: a message that is passed on still needs it.
void Link::stop() {
  if (exchange_) exchange_->abort(comm::kStoppedEarly);
  exchange_.reset();
}

void Link::post(program::Rank to, comm::Outgoing message) {
  exchange_->post(to.value, std::move(message));
}

void Link::post(program::Rank to, Subject subject, std::uint64_t step, comm::Payload payload,
                Seconds needed, std::string rider) {
  post(to, {subject.kind(), step, subject.id, 0, needed, std::move(payload), std::move(rider)});
}

void Link::post_note(program::Rank to, Subject subject, std::uint64_t step,
                     const std::string& note) {
  note_bytes_ += note.size();
  post(to, subject, step, comm::Payload::copy_of(note));
}

void Link::show(comm::Position position) {
  if (exchange_) exchange_->set_position(position);
}

std::optional<comm::Position> Link::position_of(program::Rank rank) const {
  return exchange_ ? exchange_->position_of(rank.value) : std::nullopt;
}

void Link::finish() {
  if (exchange_) exchange_->finish(options_.wait_limit);
}

void Link::abort(const std::string& reason) {
  if (exchange_ && !exchange_->failure()) exchange_->abort(reason);
  abort_collectives();
}

// The library hears of no silence: a thread of this rank would wait in it until its own limit.
void Link::abort_collectives() {
  if (collectives_ != nullptr) collectives_->abort();
}

void Link::leave(const std::string& reason) {
  if (exchange_) exchange_->abort(reason);
  abort_collectives();
}

void Link::trace_delivery(const comm::DeliveredMessage& delivery) {
  const auto topic = static_cast<Topic>(delivery.kind);
  const bool with_rows = topic == Topic::kResultAndRows;
  const bool result = topic == Topic::kResult || with_rows;
  if (!result && topic != Topic::kContribution) return;
  const std::uint64_t step = delivery.step - (with_rows ? 1 : 0);  // the rows are of the next one
  const program::SliceHop hop{program::SliceId(delivery.id), program::Rank(delivery.to), result};
  const Bytes bytes(static_cast<std::int64_t>(delivery.bytes));
  const std::string name = program_.shard(program_.slice(hop.slice).pieces.front().shard).name;
  trace_.add_between(program::Activity::kQueue, step, name, bytes, delivery.posted, delivery.left,
                     hop);
  trace_.add_between(program::Activity::kWire, step, name, bytes, delivery.left,
                     delivery.acknowledged, hop);
}

comm::ExchangeCounters Link::counters() const {
  if (!exchange_) return {};
  comm::ExchangeCounters counters = exchange_->counters();
  counters.payload_bytes_sent -= std::min(counters.payload_bytes_sent, note_bytes_.load());
  return counters;
}

Seconds Link::chief_is_ahead() const {
  if (self_ == program::Rank(kChief) || !exchange_) return Seconds{0};
  const auto difference = exchange_->clock_of(kChief);
  return difference ? difference->ahead : Seconds{0};
}

}  // namespace autodist::exec
