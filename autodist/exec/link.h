// What a rank says to the others while a plan runs.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autodist/base/mutex.h"
#include "autodist/comm/exchange.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/topic.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class Link {
 public:
  explicit Link(const RankContext& rank);

  // Starts the threads, where the job has several ranks. `take` gets every message, on the
  // receiving thread; what it throws fails the signal, as a lost peer does, and aborts the
  // collectives. Throws Error(kEnvironment) without a transport.
  void start(const RunnerConnections& connections, std::function<void(const comm::Frame&)> take);
  // Ends the threads.
  void stop();

  // Any thread; none blocks. REQUIRES: to != self; started, which a job of one rank need not be.
  void post(program::Rank to, comm::Outgoing message);
  // A message without samples, by default one that nothing else of its step goes before.
  void post(program::Rank to, Subject subject, std::uint64_t step, comm::Payload payload,
            Seconds needed = {}, std::string rider = {});
  // Posts a note, as urgent as a message can be, which counters() leaves out: it is no slice's.
  void post_note(program::Rank to, Subject subject, std::uint64_t step, const std::string& note);

  // Where this rank is, for its heartbeats, and where another was at its last one.
  void show(comm::Position position);
  [[nodiscard]] std::optional<comm::Position> position_of(program::Rank rank) const;

  // Says goodbye and waits for the others'. Throws as comm::Exchange::finish.
  void finish();
  // Tells the others why this rank leaves, which ends their runs, too, unless the exchange has
  // failed; and aborts the collectives.
  void abort(const std::string& reason);
  // abort(); when it returns, nothing is sent or received any more.
  void leave(const std::string& reason);

  [[nodiscard]] comm::ExchangeCounters counters() const;
  // The chief's clock minus this rank's, as messages to it have shown; 0 before the first.
  [[nodiscard]] Seconds chief_is_ahead() const;

 private:
  void abort_collectives();
  void trace_delivery(const comm::DeliveredMessage& delivery);

  const program::Program& program_;
  const program::Rank self_;
  const RunnerOptions& options_;
  Signal& signal_;
  TraceRecorder& trace_;
  comm::Collectives* collectives_ = nullptr;
  std::atomic<std::uint64_t> note_bytes_{0};
  // The receiving thread is faster than the exchange's constructor: it waits for this at its first
  // message. From then on until stop() nobody writes `exchange_`.
  Mutex starting_;
  std::unique_ptr<comm::Exchange> exchange_;
};

}  // namespace autodist::exec
