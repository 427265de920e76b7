// Runs one rank's part of a Program.
//
// The loop is the simulator's: take the next instruction of a stream, wait for what it waits for,
// start it, go on. Compute runs on the caller's thread; the exchange's two threads move slices, one
// thread merges, updates and installs, and every further stream of the Program has a thread of its
// own. Where the model is on a device, one thread more brings gradients to the host. No step has a
// barrier: a variable's gate waits for that variable alone.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodist/capture/bindings.h"
#include "autodist/capture/training_step.h"
#include "autodist/exec/calls.h"
#include "autodist/exec/job_sums.h"
#include "autodist/exec/rank_state.h"
#include "autodist/exec/runner_options.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/own_ops.h"
#include "autodist/program/program.h"
#include "autodist/program/trace.h"
#include "autodist/program/transition.h"

namespace autodist::exec {

struct StepResult {
  double loss = 0;  // of this rank's samples; 0 where it had none
  std::int64_t samples = 0;
  Seconds compute;        // of the step without its waiting
  Seconds waiting;        // at gates
  bool overflow = false;  // with loss scaling: a gradient of this rank is not finite
  // Over all replicas, once known: the loss times the samples (of a summed loss the loss), then the
  // other single numbers among the outputs, times the samples.
  std::shared_ptr<const StepSums> sums{};
  // What the step returns beside its loss (exec/outputs.h); nothing where it had no samples.
  std::vector<torch::Tensor> outputs = {};
  // The step was not done, because it goes another way than its graph: this one, as far as it is
  // known. It is to be run again with a graph that begins so (ir::begins_with()).
  std::optional<ir::Way> other_way = std::nullopt;
  // Not empty: why the ops of this step, and of later ones, are no longer recorded on the device.
  std::string unrecorded = {};
};

class Replay;

// A value that a step was asked to keep.
struct Watched {
  std::string name;
  torch::Tensor value;       // dense, a copy
  bool is_gradient = false;  // of this rank's samples
  bool batched = false;      // the first dimension is the batch
};

// What a rank computes for batches of one shape, prepared once.
class ShapedStep {
 public:
  // `program` is the job's, or what passes::for_other_shapes made of it. Throws Error(kUsage) where
  // the graph needs another libtorch.
  ShapedStep(std::shared_ptr<const program::Program> program, program::Rank rank,
             capture::Bindings bindings, torch::Device device);
  ~ShapedStep();
  ShapedStep(ShapedStep&&) noexcept;
  ShapedStep& operator=(ShapedStep&&) noexcept;

  // Whether it is made for this batch. Any number of samples will do, unless the graph's batch is
  // fixed.
  [[nodiscard]] bool accepts(const Batch& batch) const;

 private:
  friend class ComputeStream;
  friend class Runner;
  std::shared_ptr<const program::Program> program_;
  std::unique_ptr<Replay> replay_;
  std::vector<std::unique_ptr<Replay>>
      more_replays_;  // of micro-batches that are under way at once
  std::vector<program::Instruction> compute_;
  // Ops that follow each other in it, by the number of the first one's instruction; none where a
  // queue of its own reads values beside gradients and outputs.
  std::map<std::size_t, std::vector<ir::OpId>> runs_;
  std::optional<ir::OpId> loss_op_;  // after it the loss is known
};

// One thread at a time calls it. After an exception every further call throws the same: a Runner
// does not recover. The destructor ends all threads; without finish() before, the peers are told
// that this rank left early.
class Runner {
 public:
  // REQUIRES: verify(*program) holds, `bindings` fit its graph, and on all ranks program, options
  // and the bindings' values are equal (broadcast_initial), as are the states of the update rules
  // that `start` goes on from. Throws Error(kEnvironment) where the Program needs collectives or a
  // transport and there are none, Error(kCheckpoint) where a state is missing or does not fit.
  Runner(std::shared_ptr<const program::Program> program, program::Rank rank,
         capture::Bindings bindings, const RunnerConnections& connections, RunnerOptions options,
         RankState start = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // One step on this rank's rows of the batch, unless it goes another way than the graph
  // (StepResult::other_way); nobody else notices. `shape`: for a batch that the job's own program
  // does not accept; the other ranks need not know. With zero rows (or an empty Batch) it computes
  // nothing and contributes nothing, but takes part. Variables may be of any version afterwards.
  // Throws Error(kPeersLost) naming the culprit, Error(kTimeout) naming variable, slices and
  // owners, Error(kUsage) for a batch that does not fit and, where the Program does not scale the
  // loss, for a loss or gradient that is not finite (naming op, variable, rank and step), or what a
  // kernel throws.
  StepResult step(const Batch& own_rows, ShapedStep* shape = nullptr);
  // A step in several micro-batches, whose gradients are added up, weighted by samples: all but the
  // last through one of these, none without rows. What they return is theirs alone.
  StepResult accumulate(const Batch& own_rows, ShapedStep* shape = nullptr);

  // A step of a placed graph: all micro-batches of this rank's replica, none without rows, the same
  // at all of its stages; none at all where the replica has no rows. The loss is their mean,
  // weighted by samples (their sum, where the loss is one), at every stage. REQUIRES: is_placed(),
  // at most as many as Program::micro_batches.
  StepResult step_of_stage(const std::vector<Batch>& micro_batches);

  // Whether step(own_rows) can take it: also a batch without rows.
  [[nodiscard]] bool accepts(const Batch& own_rows) const;

  // Where the Program scales the loss: what the next step's graph multiplies it with; gradients are
  // divided by it here. Waits for what all ranks say of the step before.
  ir::LossScale loss_scale();

  // Waits until every variable has the newest version: before evaluating, saving or reading them.
  // A variable that is asked for before each step comes whole from its owners. Of a placed graph by
  // all computing ranks: each then has the variables and buffers of all stages. With asynchronous
  // variables by all computing ranks: the newest are those that hold all of their contributions,
  // and no rank goes on before all have them.
  void synchronize();
  // Waits until no variable changes any more before this rank's next step: before reading them at
  // this rank alone.
  void settle();

  // Before somebody reads or writes one variable's tensor between two steps, at this rank alone:
  // waits until it is the newest. Values written then are the variable's new ones from the next
  // step on, where every rank writes the same: else that step throws Error(kUsage) naming the
  // ranks, at those who find it. Where variables are asynchronous or placed it does nothing: take
  // open_to_changes().
  void settle(ir::VariableId variable);
  // What was written to these before is not compared: another job step over the same tensors is
  // about to change them.
  void forget_changes(const std::vector<ir::VariableId>& variables);
  // By all computing ranks: synchronizes, then does for all variables what settle(variable) does
  // for one.
  void open_to_changes();
  // Options of a variable's update rule from the next step on ("lr", "weight_decay", …), in the
  // place of those that the graph declares; of all of them, so none are the declared ones again.
  // Every rank sets the same, of asynchronous variables its own. Throws Error(kUsage) for an option
  // that the rule has not, or whose change needs other state.
  void set_options(ir::VariableId variable, const std::map<std::string, double>& options);
  // Until StepResult::sums are known. Throws as step().
  void await(const StepSums& sums);

  // Takes the values that these variables' tensors have now for the newest ones: another job step
  // over the same tensors has changed them. By all ranks between the same two steps, where the
  // tensors are equal. REQUIRES: synchronize() after this runner's last step; the variables are
  // synchronous, and their rows are not fetched.
  void reload(const std::vector<ir::VariableId>& variables);

  // Numbers of the step that is next, which stand in its sums behind those of the graph
  // (numbers_of()), added up over the computing ranks that have samples. By those that have any to
  // add, before the step.
  void add_to_next_sums(std::vector<double> numbers);

  // Small bytes about the step just done from every computing rank to every other: a loss, a wish
  // to stop. At most once per step, by all computing ranks or none.
  void tell(const std::string& note);
  // What all of them told of a step, by rank; waits for the last. Once per step.
  std::vector<std::string> told(std::uint64_t step);

  // Keeps values of the next step (ir::find_watched), of all its micro-batches, until they are
  // taken. Names that a batch's graph does not know are passed over.
  void watch(std::vector<std::string> names);
  std::vector<Watched> take_watched();

  // SmallCollectives::share, for the step that is next.
  std::vector<std::string> share(const std::string& bytes);

  // The bytes of the chief, or of all computing ranks, for each of them, on kStatistics or kPlan,
  // and on kAllStatistics or kPlanned; by all, once between two steps for each id.
  std::string of_chief(Subject subject, const std::string& bytes);
  std::map<std::uint32_t, std::string> of_all(Subject subject, const std::string& bytes);

  // For a rank that only serves: owns its slices until every computing rank has finished.
  // `meanwhile` is called several times a second.
  void serve(const std::function<void()>& meanwhile);

  // What all computing ranks call (exec/calls.h). Between two steps.
  [[nodiscard]] Calls& calls();
  // Whether synchronize() needs all computing ranks now.
  [[nodiscard]] bool meets_to_synchronize() const;

  // Tells the others that this rank makes no further step; where a job has several runners, of all
  // of them before it waits in one.
  void come_to_finish();
  // come_to_finish() where that was not called, Calls::all_finish(), and when that is true
  // synchronize(). Afterwards the chief may still gather: the others' state, or its own and its
  // owners' alone.
  bool all_finish();
  // all_finish() where that was not called; then says goodbye and waits for the peers' goodbyes.
  // Ranks other than the chief first wait for the chief to come here. The last call.
  void finish();
  // Takes the place of finish() before the end of the job: the peers are told why.
  void leave(const std::string& reason);

  [[nodiscard]] std::uint64_t steps_done() const;
  // Of the random numbers that the next step, or micro-batch, draws.
  [[nodiscard]] std::uint64_t next_seed() const;

  // Takes what somebody has written into variables since the last step now, as the next step would.
  // By all computing ranks between the same two steps; returns a digest of it, which they compare,
  // empty where nothing was written. Throws as a step that takes it. REQUIRES: settle() came
  // before.
  [[nodiscard]] std::string take_written();
  // This rank's part of a transition from the Program to another: what the run that goes on under
  // that one begins with, beside the bindings, into which parameters go. By all computing ranks,
  // after settle(), when each knows that all others have come so far. No step follows; finish()
  // does.
  RankState hand_over(const program::Transition& transition);

  // The state of all update rules as full tensors of their variable's shape, named
  // "<variable>.<state>", as it is between these two steps. At the chief, after synchronize(), a
  // few times between two steps; the owners answer by themselves, and the next step may begin
  // before it is there. get() throws as step() does.
  LaterTensors gather_state();
  // The buffers that the step writes (batch-norm statistics), which differ between replicas: at the
  // chief those of all computing ranks, by rank; elsewhere nothing. By all of them, after
  // synchronize(), at most once between two steps.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_buffers();
  // What compression with error feedback still owes: "<variable>.owed" of the rank's gradients,
  // "<variable>.owed_average" of the averages that it owns. At the chief that of all computing
  // ranks, by rank; elsewhere nothing. By all of them, after synchronize(), at most once between
  // two steps.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_owed();
  // SmallCollectives::outcome, for the step that is next. With asynchronous variables all computing
  // ranks call it when they have gathered, which a rank that contributes again would disturb.
  std::string outcome(const std::string& of_chief);

  // The rows since the last call. Empty unless asked for in the options.
  program::Trace take_trace();
  // At the chief the rows of all computing ranks since the last call, in the chief's time;
  // elsewhere nothing. By all of them, after synchronize(), once after the last step.
  program::Trace gather_trace();

  [[nodiscard]] comm::ExchangeCounters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace autodist::exec
