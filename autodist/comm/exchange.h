// Messages between ranks: ordered by need, bounded in flight, admitted once, with heartbeats.
//
// comm admits, orders and moves; of a message it sees the kind, the step, the id and the bytes, and
// what arrives goes to a handler. Every rank owns one Exchange with one sending and one receiving
// thread over one Transport.

#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autodist/base/clock.h"
#include "autodist/comm/transport.h"

namespace autodist::comm {

struct ExchangeOptions {
  std::uint32_t generation = 1;
  Bytes window{1 << 20};      // in flight per destination
  Bytes nic_budget{4 << 20};  // in flight over all destinations
  // A payload of more than 16 pieces travels in pieces of this size, which is equal at all ranks.
  Bytes piece{16 << 20};
  Seconds heartbeat{1.0};
  int missed_heartbeats = 3;  // then a peer's silence is said
  // A peer that is silent for so long counts as lost. One that is heard before goes on: nothing was
  // lost, and nothing comes twice.
  Seconds silence_limit{20};
  // A peer that has sent no frame yet counts as lost after this: ranks do not start at the same
  // moment.
  Seconds first_contact{60};
  // Gets a line when a peer falls silent and when it is heard again, on the receiving thread; and
  // lines of threads that wait for other ranks. May be empty.
  std::function<void(const std::string& line)> say = {};
  // A peer whose process is known to have been killed, on the receiving thread: its connections may
  // live on in processes that it has forked. May be empty.
  std::function<std::optional<RankNumber>()> killed = {};
  // What a message is, for messages to the user: "contribution of slice 17"; may be empty.
  std::function<std::string(FrameKind kind, MessageId id)> name = {};
};

// A message's way to another rank, in times of this rank's clock.
struct DeliveredMessage {
  FrameKind kind = FrameKind::kFirstMessage;
  RankNumber to = 0;
  std::uint64_t step = 0;
  MessageId id = 0;
  std::size_t bytes = 0;
  Seconds posted;
  Seconds left;          // for the last time
  Seconds acknowledged;  // as known here
};

// How a peer's clock stands to ours.
struct ClockDifference {
  Seconds ahead;       // the peer's time minus ours
  Seconds round_trip;  // of the slice that it is taken from: its half bounds the error
};

// Where a rank's own code is, which its heartbeats tell; what the numbers mean is up to that code.
struct Position {
  std::uint64_t step = 0;
  std::uint32_t place = 0;
};

// Called on the receiving thread, one at a time, once for every message whatever the network did to
// it. A handler that takes long holds up what comes after it, not this rank's heartbeats. One that
// throws ends the exchange: peers are told, and failure() gives the reason.
struct Handlers {
  std::function<void(const Frame&)> message;
  // Once for every message of ours that has arrived; may be empty.
  std::function<void(const DeliveredMessage&)> delivered = {};
};

// What a rank hands over. `needed` orders it: (step, needed, arrival).
struct Outgoing {
  FrameKind kind = FrameKind::kFirstMessage;
  std::uint64_t step = 0;
  MessageId id = 0;
  std::int64_t samples = 0;
  Seconds needed;
  Payload payload;
  std::string rider{};  // Frame's
};

// What was counted since the start; for --json, tests and reports.
struct ExchangeCounters {
  std::uint64_t payload_bytes_sent = 0;      // of messages, those sent again included
  std::uint64_t payload_bytes_received = 0;  // of messages, each once
  std::uint64_t duplicates_dropped = 0;
  std::uint64_t frames_refused = 0;  // of an earlier generation, or with an id out of range
};

// What peers are told where an exchange stops without finish() or abort().
inline constexpr const char* kStoppedEarly = "it stopped before the end of the exchange";
// What they are told where an exception ends a program's loop: what it says is in the rank's last
// line.
inline constexpr const char* kThrew = "an exception ended its loop";

class Exchange {
 public:
  // Starts the threads. `transport` and `clock` outlive the exchange, and nobody else uses the
  // transport meanwhile. What comes for a later reader (control frames, a later generation) is
  // given back to the transport in the end.
  Exchange(Transport& transport, const Clock& clock, ExchangeOptions options, Handlers handlers);
  // Stops without waiting for what is queued; without finish() or abort() before, the peers are
  // told that this rank left early.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Queues a message for `to`. The payload's bytes stay unchanged until its `keep` is let go, which
  // is after `to` has acknowledged the message. Any thread; never blocks; does nothing after a
  // failure, abort() or finish()'s goodbye. REQUIRES: to != self; an id of one kind goes to one
  // rank once per step, and the steps on their way lie less than 64 apart (admission.h).
  void post(RankNumber to, Outgoing outgoing);

  // Why the exchange ended, or nullptr while it runs: an Error(kPeersLost) that names rank, host
  // and what was last heard, or what a handler threw. Any thread.
  [[nodiscard]] std::exception_ptr failure() const;

  // Called once when failure() becomes non-null, on an exchange thread (or at once on the caller's,
  // when it already is): wakes whoever waits for messages. It must not call finish or abort.
  void on_failure(std::function<void()> wake);

  [[nodiscard]] ExchangeCounters counters() const;

  // From the message to `peer` whose acknowledgement came back fastest (which carries the peer's
  // time; Mills, "Internet time synchronization", 1991, section IV); nothing before the first.
  [[nodiscard]] std::optional<ClockDifference> clock_of(RankNumber peer) const;

  // Where this rank is, for its next heartbeats; and where a peer was at its last one, nothing
  // before the first. Any thread.
  void set_position(Position position);
  [[nodiscard]] std::optional<Position> position_of(RankNumber peer) const;

  // Sends what is queued, says goodbye, waits for the peers' goodbyes and stops the threads. Called
  // when this rank has posted all that it ever will. Throws Error(kTimeout) naming who did not
  // answer within `limit`, or the failure.
  void finish(Seconds limit);

  // Tells the peers why this rank leaves, which ends their exchanges with that reason, and stops.
  void abort(const std::string& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace autodist::comm
