// The event core: what every rank, owner and card does, event by event, as exec/ and comm/ do it on
// real machines. Private to this folder; simulator.h is the door.
//
//   streams.cc             a rank's compute stream          exec/compute_stream.cc
//   collective_streams.cc  and the one beside it            exec/side_streams.cc
//   effects.cc             what the protocol asks for       exec/effects.cc
//   network.cc             cards, windows, switches         comm/exchange.cc
//
// What a rank does about its slices is protocol/, the same code as the executor's.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/comm/schedule/nic_scheduler.h"
#include "autodist/program/trace.h"
#include "autodist/protocol/rank.h"
#include "autodist/sim/event_queue.h"
#include "autodist/sim/job_tables.h"
#include "autodist/sim/simulator.h"
#include "autodist/sim/symmetry.h"

namespace autodist::sim {

// A row of the trace before it gets its name.
struct RawRow {
  program::Activity activity = program::Activity::kCompute;
  std::uint32_t rank = 0;
  std::uint32_t step = 0;
  // The slice, variable, op, collective or transfer that the activity is about.
  std::uint32_t id = 0;
  enum class Of : std::uint8_t {
    kOp,
    kVariable,
    kSlice,
    kCollective,
    kSums,  // of a slice
    kFlag,
    kTransfer
  } of = Of::kOp;
  std::int64_t bytes = 0;
  double start = 0;
  double end = 0;
};

struct NodeCounters {
  std::int64_t sent = 0;      // payload bytes that left the node
  std::int64_t received = 0;  // payload bytes that came to the node
  std::int64_t messages = 0;
  double sending = 0;  // seconds that its NIC was busy; ranks share those of their messages
  double receiving = 0;
  double stolen = 0;  // core seconds that the engine took from computing ranks
};

struct RankCounters {
  std::int64_t sent = 0;  // payload, to ranks of its own node, too
  std::int64_t received = 0;
  double computing = 0;
  double owner_busy = 0;
  double waiting = 0;
};

class Engine {
 public:
  Engine(const program::Program& program, const CostModel& costs, const JobTables& tables,
         const Symmetry& symmetry, const SimulationOptions& options);

  // Runs until the steps have settled, or `most_steps`, and everything has arrived.
  void run();

  // By step, when the last rank had computed it.
  [[nodiscard]] const std::vector<double>& step_ends() const { return step_ends_; }
  // By rank and step.
  [[nodiscard]] const std::vector<std::vector<double>>& rank_ends() const { return rank_ends_; }
  [[nodiscard]] bool settled() const { return settled_; }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  [[nodiscard]] std::uint64_t events() const { return events_; }
  // Of the simulated ranks and nodes; those that they stand for do the same.
  [[nodiscard]] const std::vector<RankCounters>& ranks() const { return rank_counters_; }
  [[nodiscard]] const std::vector<NodeCounters>& nodes() const { return node_counters_; }
  // Seconds that gates of a variable held up its ranks, over all steps and simulated ranks.
  [[nodiscard]] const std::vector<double>& waits() const { return waits_; }
  [[nodiscard]] std::vector<RawRow> take_rows() { return std::move(rows_); }

 private:
  enum class MessageKind : std::uint8_t {
    kContribution,
    kResult,
    kClipSums,
    kLambSums,
    kWholeSum,
    kFlag,
    kAsk,
    kRows,
    kResultAndRows,
    kRing,
    kValue
  };
  struct Message {
    MessageKind kind = MessageKind::kContribution;
    std::uint32_t from = 0;
    std::uint32_t to = 0;  // any rank of the job, simulated or not
    // Slice; collective for kRing; variable for kWholeSum; transfer for kValue.
    std::uint32_t id = 0;
    std::uint32_t step = 0;
    std::int64_t bytes = 0;
    double posted = 0;
    double released = 0;
    double sent = 0;  // when its last byte left
    std::uint32_t hop = 0;
  };

  enum class JobKind : std::uint8_t { kMerge, kUpdate, kInstall, kGiveRows };
  struct Job {
    std::uint32_t step = 0;
    double needed = 0;
    std::uint64_t arrival = 0;
    JobKind kind = JobKind::kMerge;
    std::uint32_t id = 0;
    std::uint32_t from = 0;  // kGiveRows: who asked
    bool with_result = false;

    friend bool operator<(const Job& a,
                          const Job& b) {  // later is "smaller": a heap's top is first
      return a.step != b.step       ? a.step > b.step
             : a.needed != b.needed ? a.needed > b.needed
                                    : a.arrival > b.arrival;
    }
  };

  enum class Phase : std::uint8_t {
    kReady,
    kBusy,
    kJoining,
    kReducing,
    kUnpacking,
    kWaiting,
    kParked
  };
  struct Stream {
    const std::vector<FlatInstruction>* instructions = nullptr;
    std::uint32_t at = 0;
    std::uint32_t step = 0;
    std::uint32_t micro = 0;
    Phase phase = Phase::kReady;
    double since = 0;  // of the phase
  };
  struct Rank {
    Stream compute;
    Stream collective;
    double debt = 0;  // core seconds that the engine took while it computed
    std::vector<Job> jobs;
    bool working = false;
    Job job;
    double job_since = 0;
    std::uint64_t arrivals = 0;
    double staged_until = 0;
    std::vector<std::uint32_t> contributed;  // steps, by variable, where no slice carries it
    std::vector<std::uint32_t> values;       // steps whose value has come, by transfer
    std::uint32_t ring_got = 0;              // of the collective under way
    std::uint32_t ring_sent = 0;
    bool ring_second = false;  // whether the second factors are on their way
    bool ring_joined = false;
  };
  // When the bytes that a link was given are through.
  struct Card {
    double sending = 0;
    double receiving = 0;
  };
  // When a rank is through with its messages.
  struct Ends {
    double sending = 0;
    double receiving = 0;
    double sending_inside = 0;  // to ranks of its node
    double receiving_inside = 0;
  };

  // streams.cc
  void advance(std::uint32_t rank);
  void advance_collective(std::uint32_t rank);
  bool step_compute(std::uint32_t rank, const FlatInstruction& instruction);
  void wait_for(std::uint32_t rank);
  void begin_compute(std::uint32_t rank, double seconds);
  void computed(const Event& event);
  void streamed(const Event& event);
  void end_pass(std::uint32_t rank);
  void ended_step(std::uint32_t rank);
  void resume(std::uint32_t rank);
  void wake(std::uint32_t rank);
  void contribute(std::uint32_t rank, std::uint32_t variable, std::uint32_t step);
  void post_contributions(std::uint32_t rank, std::uint32_t variable, std::uint32_t step);
  void ask_rows(std::uint32_t rank, std::uint32_t variable, std::uint32_t step);
  void send_value(std::uint32_t rank, std::uint32_t transfer, std::uint32_t step);
  void end_wait(std::uint32_t rank, RawRow::Of of, std::uint32_t id);
  void join(std::uint32_t rank, std::uint32_t collective, std::uint32_t step);
  void reduced(const Event& event);
  void send_ring(std::uint32_t rank, std::uint32_t collective, std::uint32_t step);
  void finish_ring(std::uint32_t rank, std::uint32_t collective, std::uint32_t step);
  void charge(std::uint32_t rank, double cpu_seconds);
  [[nodiscard]] bool last_micro(const Stream& stream) const {
    return stream.micro + 1 == tables_.passes;
  }

  // effects.cc
  class Performer;
  // Tells the rank's protocol of an event and performs what follows.
  template <typename Event>
  void tell(std::uint32_t rank, const Event& event);
  void push_job(std::uint32_t rank, Job job);
  void start_job(std::uint32_t rank);
  void job_done(const Event& event);

  // network.cc
  void post(const Message& message, double needed);
  double pass(double& rank, double& link, double own, double bytes) const;
  [[nodiscard]] double of_the_rate(const Message& message) const;
  void pump(std::uint32_t rank);
  void depart(std::uint32_t index);
  void hop(const Event& event);
  void head(const Event& event);
  void delivered(const Event& event);
  void acknowledged(const Event& event);
  void take(const Message& message);
  [[nodiscard]] static RawRow::Of subject_of(MessageKind kind);
  std::uint32_t new_message(const Message& message);
  [[nodiscard]] std::uint32_t node_of(std::uint32_t rank) const {
    return tables_.node_of_rank[rank];
  }
  [[nodiscard]] double ranks_on(std::uint32_t node) const {
    return static_cast<double>(tables_.nodes[node].ranks.size());
  }
  // How far `other`'s node is from the one of `self`, in a form that is the same for all images.
  [[nodiscard]] std::uint64_t distance(std::uint32_t self, std::uint32_t other) const;

  // An event at `rank`, caused by `cause`. Both simulated or images; the event happens at the
  // simulated one.
  void schedule(double time, EventKind kind, std::uint32_t rank, std::uint32_t cause,
                std::uint64_t argument);
  void schedule_own(double time, EventKind kind, std::uint32_t rank, std::uint64_t argument = 0) {
    schedule(time, kind, rank, rank, argument);
  }
  void dispatch(const Event& event);
  void record(program::Activity activity, std::uint32_t rank, std::uint32_t step, RawRow::Of of,
              std::uint32_t id, std::int64_t bytes, double start, double end) {
    if (options_.trace) rows_.push_back({activity, rank, step, id, of, bytes, start, end});
  }

  const program::Program& program_;
  const CostModel& costs_;
  const JobTables& tables_;
  const Symmetry& symmetry_;
  const SimulationOptions options_;

  double now_ = 0;
  EventQueue queue_;
  std::uint64_t events_ = 0;
  std::vector<std::uint64_t> counts_;  // events caused, by node
  std::vector<Rank> ranks_;            // the simulated ones
  std::vector<comm::NicScheduler> nics_;
  std::vector<Ends> ends_;      // of the simulated ranks
  std::vector<Card> cards_;     // by node
  std::vector<double> inside_;  // by node: as a card's, between its ranks
  std::vector<double> uplink_free_;
  std::vector<protocol::RankProtocol> protocols_;  // by simulated rank
  protocol::Effects effects_;        // of the event under way, and behind them those that it led to
  std::vector<std::uint32_t> busy_;  // ranks that compute on the host now, by node
  std::vector<std::uint32_t> joined_;  // members that have come, by collective of a library
  std::vector<Message> messages_;
  std::vector<std::uint32_t> unused_;  // rows of messages_

  std::uint32_t target_ = 0;  // steps to do
  std::uint32_t computing_ranks_ = 0;
  std::vector<std::uint32_t> done_;  // ranks that have computed the step, by step
  bool settled_ = false;
  bool abandoned_ = false;
  std::vector<double> step_ends_;
  std::vector<std::vector<double>> rank_ends_;
  std::vector<RankCounters> rank_counters_;
  std::vector<NodeCounters> node_counters_;
  std::vector<double> waits_;
  std::vector<RawRow> rows_;
};

}  // namespace autodist::sim
