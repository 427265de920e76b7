// Cards, windows and switches. What leaves next is NicScheduler's decision, as in comm/exchange.cc:
// the same code, with acknowledgements that come at simulated times.
//
// A rank handles its messages one after another, each for a time of its own and that of its bytes.
// Ranks of a node do so beside each other, but share the card, or the link between them, which
// carries the bytes of all in the time that they take one after another. Heads travel ahead of
// tails (cut-through), and the receiving side takes heads in the order in which they come, so a
// message alone needs size / rate + latency, and several senders share a receiver.

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/sim/effects.h"

namespace autodist::sim {
namespace {

constexpr int kSizeBits = 40;

}  // namespace

// A message for which its rank takes `own` seconds besides those of its `bytes`, which the link
// shares with those of other ranks. Returns when it begins.
double Engine::pass(double& rank, double& link, double own, double bytes) const {
  double begin = std::max(now_, rank);
  rank = begin + (own + bytes);
  link = std::max(now_, link) + bytes;
  if (link > rank) {
    begin += link - rank;
    rank = link;
  }
  return begin;
}

// What a message reaches of the rate of each link on its way.
double Engine::of_the_rate(const Message& message) const {
  return message.kind == MessageKind::kRing ? costs_.collectives.efficiency : 1;
}

std::uint32_t Engine::new_message(const Message& message) {
  if (unused_.empty()) {
    messages_.push_back(message);
    return static_cast<std::uint32_t>(messages_.size() - 1);
  }
  const std::uint32_t index = unused_.back();
  unused_.pop_back();
  messages_[index] = message;
  return index;
}

void Engine::post(const Message& message, double needed) {
  const std::uint32_t index = new_message(message);
  nics_[message.from].add(
      message.to, {comm::TransferId(index), Bytes(message.bytes), message.step, Seconds(needed)});
}

void Engine::pump(std::uint32_t r) {
  while (const auto departure = nics_[r].next()) {
    const std::uint32_t index = departure->transfer.id.value;
    messages_[index].released = now_;
    depart(index);
  }
}

void Engine::depart(std::uint32_t index) {
  Message& message = messages_[index];
  const EngineCost& engine = costs_.engine;
  const auto bytes = static_cast<double>(message.bytes);
  const std::uint32_t from = node_of(message.from);
  const std::uint32_t to = node_of(message.to);
  const bool ring = message.kind == MessageKind::kRing;  // its cores are charged as it begins
  if (!ring) charge(message.from, engine.message.value + bytes * engine.send_cpu_s_per_byte);
  rank_counters_[message.from].sent += message.bytes;
  Ends& ends = ends_[message.from];
  if (from == to) {
    const double seconds = bytes / (tables_.nodes[from].intra_bytes_per_s * of_the_rate(message));
    const double begin = pass(ends.sending_inside, inside_[from], engine.message.value, seconds);
    message.sent = ends.sending_inside;
    schedule(begin, EventKind::kHead, message.to, message.from, index);
    return;
  }
  const double rate = tables_.nodes[from].bytes_per_s * of_the_rate(message);
  const double own = ring ? 0 : engine.message.value;
  const double start = pass(ends.sending, cards_[from].sending, own, bytes / rate);
  message.sent = ends.sending;
  if (engine.stream_bytes_per_s > 0 && !ring) {
    message.sent = std::max(message.sent, start + bytes / engine.stream_bytes_per_s);
  }
  NodeCounters& counters = node_counters_[from];
  counters.sending += own / ranks_on(from) + bytes / rate;
  counters.sent += message.bytes;
  ++counters.messages;
  double latency = std::max(tables_.nodes[from].latency, tables_.nodes[to].latency);
  if (ring) latency += costs_.collectives.round.value;
  const auto& path = tables_.uplinks.path(from, to);
  if (path.empty()) {
    schedule(start + latency, EventKind::kHead, message.to, message.from, index);
  } else {
    queue_.push({start + latency, counts_[from]++, EventKind::kHop, path.front(), index});
  }
  message.sent += latency;
}

// An uplink of a switch; no two jobs with switches are symmetric, so numbers may decide.
void Engine::hop(const Event& event) {
  const auto index = static_cast<std::uint32_t>(event.argument);
  Message& message = messages_[index];
  const auto& path = tables_.uplinks.path(node_of(message.from), node_of(message.to));
  double& free = uplink_free_[event.place];
  const double start = std::max(now_, free);
  const double rate = tables_.uplinks.rates()[event.place] * of_the_rate(message);
  free = start + static_cast<double>(message.bytes) / rate;
  message.sent = std::max(message.sent, free);
  ++message.hop;
  if (message.hop < path.size()) {
    queue_.push({start, event.order, EventKind::kHop, path[message.hop], index});
  } else {
    schedule(start, EventKind::kHead, message.to, message.from, index);
  }
}

void Engine::head(const Event& event) {
  const auto index = static_cast<std::uint32_t>(event.argument);
  Message& message = messages_[index];
  const std::uint32_t node = node_of(event.place);
  const bool ring = message.kind == MessageKind::kRing;
  const double own = ring ? 0 : costs_.engine.message.value;
  Ends& ends = ends_[event.place];
  if (node_of(message.from) == node_of(message.to)) {  // the link inside has carried the bytes
    ends.receiving_inside = std::max(now_, ends.receiving_inside) + own;
    schedule_own(std::max(ends.receiving_inside, message.sent), EventKind::kDelivered, event.place,
                 index);
    return;
  }
  const double rate = tables_.nodes[node].bytes_per_s * of_the_rate(message);
  NodeCounters& counters = node_counters_[node];
  const double seconds = static_cast<double>(message.bytes) / rate;
  counters.receiving += own / ranks_on(node) + seconds;
  counters.received += message.bytes;
  pass(ends.receiving, cards_[node].receiving, own, seconds);
  schedule_own(std::max(ends.receiving, message.sent), EventKind::kDelivered, event.place, index);
}

void Engine::delivered(const Event& event) {
  const auto index = static_cast<std::uint32_t>(event.argument);
  const Message message = messages_[index];
  unused_.push_back(index);
  const std::uint32_t here = event.place;
  const EngineCost& engine = costs_.engine;
  const bool ring = message.kind == MessageKind::kRing;
  if (!ring) {
    charge(here, engine.message.value +
                     static_cast<double>(message.bytes) * engine.receive_cpu_s_per_byte);
  }
  rank_counters_[here].received += message.bytes;
  if (options_.trace && !ring) {
    const RawRow::Of of = subject_of(message.kind);
    record(program::Activity::kQueue, message.from, message.step, of, message.id, message.bytes,
           message.posted, message.released);
    record(program::Activity::kWire, message.from, message.step, of, message.id, message.bytes,
           message.released, now_);
  }
  if (!ring) {
    const std::uint64_t size = static_cast<std::uint64_t>(message.bytes);
    const std::uint64_t between = symmetry_.between(message.from, message.to);
    const std::uint64_t argument = (between << kSizeBits) | size;
    const std::uint32_t from = node_of(message.from);
    const std::uint32_t to = node_of(message.to);
    const double latency =
        from == to ? 0 : std::max(tables_.nodes[from].latency, tables_.nodes[to].latency);
    schedule(now_ + latency, EventKind::kAcknowledged, message.from, message.to, argument);
  }
  take(message);
}

RawRow::Of Engine::subject_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::kClipSums:
    case MessageKind::kLambSums:
      return RawRow::Of::kSums;
    case MessageKind::kWholeSum:
      return RawRow::Of::kVariable;
    case MessageKind::kFlag:
      return RawRow::Of::kFlag;
    case MessageKind::kValue:
      return RawRow::Of::kTransfer;
    default:
      return RawRow::Of::kSlice;
  }
}

void Engine::acknowledged(const Event& event) {
  const std::uint32_t r = event.place;
  const auto between = static_cast<std::uint32_t>(event.argument >> kSizeBits);
  const auto size =
      static_cast<std::int64_t>(event.argument & ((std::uint64_t{1} << kSizeBits) - 1));
  nics_[r].acknowledge((r + between) % symmetry_.ranks, Bytes(size));
  pump(r);
}

void Engine::take(const Message& message) {
  const std::uint32_t here = symmetry_.image(message.to);
  const std::uint32_t shift = message.to - here;
  const std::uint32_t from =
      message.from >= shift ? message.from - shift : message.from + symmetry_.ranks - shift;
  const auto slice = [&] { return program::SliceId(symmetry_.turned(message.id, shift)); };
  switch (message.kind) {
    case MessageKind::kContribution:
      return tell(here, protocol::ContributionArrived{program::Rank(from), slice(), message.step});
    case MessageKind::kResult:
      return tell(here, protocol::ResultArrived{slice(), message.step});
    case MessageKind::kClipSums:
    case MessageKind::kLambSums:
      return tell(here, protocol::SumsArrived{slice(), message.step,
                                              message.kind == MessageKind::kLambSums});
    case MessageKind::kWholeSum:
      return tell(here, protocol::WholeSumArrived{ir::VariableId(message.id), message.step});
    case MessageKind::kFlag:
      return tell(here, protocol::Flagged{program::Rank(from), message.step, true});
    case MessageKind::kAsk:
      return tell(here, protocol::AskArrived{program::Rank(from), slice(), message.step});
    case MessageKind::kResultAndRows:
      tell(here, protocol::ResultArrived{slice(), message.step - 1});
      [[fallthrough]];
    case MessageKind::kRows:
      return tell(here, protocol::RowsArrived{slice()});
    case MessageKind::kRing:
      ++ranks_[here].ring_got;
      if (ranks_[here].ring_joined) send_ring(here, message.id, message.step);
      return finish_ring(here, message.id, message.step);
    case MessageKind::kValue:
      ++ranks_[here].values[message.id];
      return wake(here);
  }
}

}  // namespace autodist::sim
