// The communicating half of a rank: takes gradients, brings new versions. What the compute stream
// sees of it are gates that open.
//
// What follows from what is the protocol's to say (protocol/rank.h), the same code that the
// simulator drives. Here its effects are performed on bytes (effects.cc): messages go to the
// exchange, work to the rank's job queue, and the bytes lie in Contributor, Owner and
// LocalVariables.
//
//   contribute ─▶ Contributor ─▶ exchange ─▶ Owner ─▶ exchange ─▶ LocalVariables ─▶ gate
//
// Threads: compute (the step's stream), side streams, the exchange's receiver and the job queue's
// one thread feed events. The signal's mutex guards the protocol, the contributions that wait, the
// results that wait, and whatever gates wait for; bytes are stored before the event that speaks of
// them, and worked on outside of the mutex.

#pragma once

#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/comm/exchange.h"
#include "autodist/exec/calls.h"
#include "autodist/exec/contributor.h"
#include "autodist/exec/job_queue.h"
#include "autodist/exec/job_sums.h"
#include "autodist/exec/library_all_reduce.h"
#include "autodist/exec/local_variables.h"
#include "autodist/exec/loss_scaler.h"
#include "autodist/exec/norms.h"
#include "autodist/exec/notes.h"
#include "autodist/exec/owner.h"
#include "autodist/exec/rider.h"
#include "autodist/exec/row_fetcher.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/stage_link.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/exec/wanted_slices.h"
#include "autodist/program/program.h"
#include "autodist/protocol/rank.h"

namespace autodist::exec {

// What an event speaks of, for the effects that follow from it.
struct EventBytes {
  std::int64_t samples = 0;
  comm::Payload payload;
  std::string rider;
  std::vector<SquaredSums> sums;
};

class Synchroniser {
 public:
  // `program`, `connections`, `options` and `trace` outlive it.
  Synchroniser(const program::Program& program, program::Rank self,
               const capture::Bindings& bindings, const RunnerConnections& connections,
               const RunnerOptions& options, TraceRecorder& trace);
  // Ends the threads.
  ~Synchroniser();
  Synchroniser(const Synchroniser&) = delete;
  Synchroniser& operator=(const Synchroniser&) = delete;

  // By the compute thread.
  void contribute(ir::VariableId variable, const torch::Tensor& gradient, std::uint64_t step,
                  std::int64_t samples);
  // The same of a gradient that is the product of two matrices and travels as these.
  void contribute_factors(ir::VariableId variable, const torch::Tensor& left,
                          const torch::Tensor& right, std::uint64_t step, std::int64_t samples);
  // By whichever thread runs the stream.
  void all_reduce(program::CollectiveId collective, std::uint64_t step);
  void update(ir::VariableId variable, std::uint64_t step);

  // Loss scaling: whether a gradient of this rank's is not finite in the step, to all ranks. By the
  // compute thread, once per step.
  void raise_flag(std::uint64_t step, bool overflow);
  // The scale of a step, once all ranks have said so of the one before. REQUIRES: the Program
  // scales the loss.
  ir::LossScale await_scale(std::uint64_t step);
  [[nodiscard]] LossScaler& scaler() { return scaler_; }

  // What this rank says with its contributions from the next step on, until it is said otherwise:
  // options of an update rule that are not as declared. By the compute thread, between steps.
  void set_options(ir::VariableId variable, const std::map<std::string, double>& options);
  // Somebody has given these variables other values, with these digests: for this rank's part of
  // their slices, and said with the contributions to `step`, which is next. By the compute thread.
  void change(const std::map<ir::VariableId, std::uint64_t>& digests, std::uint64_t step);
  // Likewise where ranks that are not members must agree: all computing ranks call it before the
  // same step. Throws Error(kUsage) where their changes differ.
  void change_together(const std::map<ir::VariableId, std::uint64_t>& digests, std::uint64_t step);
  // A step of this rank begins; the sums over all replicas once they are known. Of a job with
  // asynchronous variables this rank's alone.
  std::shared_ptr<const StepSums> open_sums(std::uint64_t step);
  // This rank's part, at most once per step: before its first contribution to the step, or with
  // end_step().
  void add_sums(std::vector<double> sums, std::int64_t samples);
  void end_step(std::uint64_t step);
  [[nodiscard]] JobSums& job_sums() { return job_sums_; }

  [[nodiscard]] LocalVariables& variables() { return *variables_; }

  // Blocks until the variable has at least this version, which holds the updates of the steps
  // before it. Any thread. Throws as Signal::wait; the time-out's message names the slices that are
  // missing and their owners.
  void await_version(ir::VariableId variable, std::uint64_t version);
  // A gate: blocks until the step may read the variable, which is not written from then on until
  // release(). Rows that were asked for are in it. Whether it was open at once. By the compute
  // thread. Throws as await_version().
  bool hold(ir::VariableId variable, std::uint64_t step);
  void release(ir::VariableId variable);
  [[nodiscard]] Signal& signal() { return signal_; }

  // The run is over, for this rank and its peers, unless it has ended in order. Any thread but the
  // exchange's.
  void abort(std::exception_ptr reason);
  // By the compute thread, for good: the peers are told why, and nothing is sent or received any
  // more when it returns.
  void leave(const std::string& reason);

  [[nodiscard]] Notes& notes() { return notes_; }
  [[nodiscard]] Calls& calls() { return calls_; }
  // Leaves in order, once nobody needs this rank any more.
  void finish(std::uint64_t step);

  // Asks for the rows of a variable that the step reads; by the compute thread.
  void fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
             std::uint64_t step);
  // All rows of synchronous variables whose rows are fetched, as of this step, into this rank's
  // copies. REQUIRES: they have the step's version here; at most once between two steps.
  void pull_rows(std::uint64_t step);

  // Asynchronous variables: makes this rank's copies those of their owners, which hold exactly the
  // contributions of the steps before `step`. By all computing ranks; they leave together.
  void pull(std::uint64_t step);
  // The same by the chief alone, when the others have stopped: as much as has come by now.
  void pull_alone(std::uint64_t step);

  // Of a placed graph: variables of other stages and buffers that they write, as of this step, into
  // this rank's copies. By all computing ranks, which have this step's version of what they hold;
  // at most once between two steps.
  void pull_stages(std::uint64_t step);
  // Values of other stages. REQUIRES: the graph is placed.
  [[nodiscard]] StageLink& stages() { return *stages_; }

  // The tensors of these variables have got other values from outside: for this rank's part of
  // their slices, too. By the compute thread, before `step`, which all ranks contribute to later.
  void reload(const std::vector<ir::VariableId>& variables, std::uint64_t step);

  std::vector<NamedTensor> gather_state(std::uint64_t step);
  void load_state(const std::vector<NamedTensor>& state);
  // Notes::gather_at_chief() of tensors.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_tensors(
      Topic topic, std::uint64_t step, const std::vector<NamedTensor>& own);
  // What compression still owes, as tensors of the variables' shapes: "<variable>.owed" of this
  // rank's gradients, "<variable>.owed_average" of the averages that it owns; and
  // "<variable>.factor" of what PowerSGD goes on from. At the chief that of all ranks, by rank;
  // elsewhere nothing.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_owed(std::uint64_t step);
  // What is not among them is owed nothing.
  void load_owed(const std::vector<NamedTensor>& owed);

  [[nodiscard]] comm::ExchangeCounters counters() const;

  // The chief's clock minus this rank's, as slices to it have shown; 0 before the first.
  [[nodiscard]] Seconds chief_is_ahead() const;

 private:
  // The gradient of a variable that no slice carries.
  struct Whole {
    std::uint64_t contributed = 0;  // steps; one more than the last step's number
    torch::Tensor gradient;         // row-major; undefined without samples
    std::int64_t samples = 0;
    std::string news;  // as this rank has it
  };

  std::map<std::uint32_t, std::vector<NamedTensor>> gather_owed_of_slices(std::uint64_t step);

  [[nodiscard]] Notes::Post poster();
  [[nodiscard]] CallPeers call_peers();
  void start_exchange(const RunnerConnections& connections);
  [[nodiscard]] std::string name_of(program::SliceId slice) const;  // of its first shard
  [[nodiscard]] std::string describe_wait(ir::VariableId variable) const AD_REQUIRES(signal_);
  void trace_delivery(const comm::Delivery& delivery);
  void send_contribution(program::SliceId slice, std::uint64_t step, std::int64_t samples,
                         const comm::Payload& payload);
  [[nodiscard]] std::string rider_of(program::SliceId slice) const;
  [[nodiscard]] std::string values_of(const program::Slice& slice) const;
  [[nodiscard]] std::string news_of_whole() const;
  void take_sums_note(std::uint32_t from, std::uint64_t step, std::string note);
  void take_sums(program::SliceId slice, bool lamb, const comm::Frame& frame);
  void take_whole_sum(ir::VariableId variable, const comm::Frame& frame);
  void take_flag(const comm::Frame& frame);
  void take_frame(const comm::Frame& frame);
  void post_note(std::uint32_t to, Subject subject, std::uint64_t step, comm::Payload payload);
  class Performer;
  // Tells the protocol and performs what follows, on the caller's thread. The bytes are stored.
  template <typename Event>
  void tell(const Event& event, const EventBytes& bytes = {});
  void merge(const protocol::Merge& effect);
  void measure(program::SliceId slice, std::uint64_t step);
  void update_slice(program::SliceId slice, std::uint64_t step);
  void install(ir::VariableId variable, std::uint64_t step);
  void give_rows(program::SliceId slice, program::Rank to, std::uint64_t step);
  void take_result(program::SliceId slice, std::uint64_t step, const EventBytes& bytes);
  void post_sums(Subject subject, std::uint64_t step, Seconds needed,
                 const std::vector<SquaredSums>& sums);
  void put_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                 const std::vector<SquaredSums>& sums);
  // Keeps this rank's parts of norms, before the protocol hears that they are known.
  void put_own_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                     const std::vector<SquaredSums>& sums);
  // The averaged gradient of a variable that no slice carries is here.
  void averaged(ir::VariableId variable, std::uint64_t step);
  // Calls visit(slice, name, residual) for everything that `rank` may owe; the residual is null at
  // other ranks.
  template <typename Visit>
  void for_each_owed(std::uint32_t rank, Visit visit);
  // Waits for notes of these senders and subjects and takes them out.
  using NoteKey = std::pair<comm::RankNumber, Subject>;
  std::map<NoteKey, comm::Payload> collect(const std::vector<NoteKey>& expected, const char* what);
  void pull_buffers(std::uint64_t step);
  // Parameters of the slices that `wanted` accepts, from their owners into this rank's copies.
  template <typename Wanted>
  void pull_parameters(Topic topic, std::uint64_t step, Wanted wanted);
  // The same of this owner's, to a rank that wants them.
  template <typename Wanted>
  void send_parameters(std::uint32_t to, std::uint64_t step, Wanted wanted) {
    for (const program::SliceId slice : owner_->slices()) {
      if (!wanted(program_.slice(slice))) continue;
      post_note(to, {Topic::kParameters, slice}, step, owner_->parameters(slice));
    }
  }
  [[nodiscard]] comm::Payload packed_states(program::SliceId slice);
  void send_states(std::uint64_t step);
  void put_states(program::SliceId slice, const std::byte* packed,
                  std::map<std::string, torch::Tensor>& tensors) const;

  const program::Program& program_;
  const program::Rank self_;
  const RunnerOptions& options_;
  std::vector<LibraryAllReduce> all_reduces_;  // by collective
  TraceRecorder& trace_;
  Signal signal_;
  protocol::Job job_;
  protocol::RankProtocol protocol_ AD_GUARDED_BY(signal_);
  NormPlan plan_;
  Norms norms_;
  LossScaler scaler_;
  std::vector<Seconds> needed_;  // by variable
  // Of the compute thread: what it says with this step's contributions.
  News news_;
  std::vector<double> sums_;  // the samples first; none without
  // Whose contributions and results carry the sums, if one has all replicas for members.
  std::optional<program::SliceId> sums_slice_;
  JobSums job_sums_{signal_};
  std::unique_ptr<LocalVariables> variables_;
  std::unique_ptr<Owner> owner_;
  std::unique_ptr<Contributor> contributor_;
  std::unique_ptr<RowFetcher> fetcher_;
  std::vector<Whole> whole_ AD_GUARDED_BY(signal_);                   // by variable
  std::map<NoteKey, comm::Payload> gathered_ AD_GUARDED_BY(signal_);  // states, what is owed
  std::atomic<std::uint64_t> note_bytes_{0};  // of notes that are no slice's; no part of counters()
  Calls calls_;
  Notes notes_;
  std::unique_ptr<StageLink> stages_;   // of a placed graph
  std::vector<torch::Tensor> buffers_;  // by buffer: the model's own
  // The exchange's threads and the jobs use everything above; stopped first.
  std::unique_ptr<JobQueue> jobs_;
  std::unique_ptr<comm::Exchange> exchange_;
};

}  // namespace autodist::exec
