// A training of this rank with the others: sessions, their steps, and what a job is asked for. A
// program begins with AutoDist (app/torch/session.h).
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/job_ended.h"
#include "autodist/base/units.h"
#include "autodist/capture/training_step.h"
#include "autodist/exec/finite.h"
#include "autodist/exec/optimizer_kernels.h"
#include "autodist/ir/graph.h"
#include "autodist/ir/loss_scaling.h"
#include "autodist/ir/optimizer.h"
#include "autodist/planning/encryption.h"
#include "autodist/planning/search_settings.h"
#include "autodist/program/program.h"
#include "autodist/program/trace.h"
#include "autodist/search/builders/builders.h"
#include "autodist/strategy/strategy.h"

namespace autodist {

namespace job {
class JobStep;
class JoinedJob;
class StepRun;
class TrainingJob;
}  // namespace job
namespace exec {
class Runner;
class StepSums;
}  // namespace exec
namespace report {
struct RunLog;
}  // namespace report

// The optimizers by name; further options through ir::parse_optimizer("adamw:lr=1e-3,clip=1").
struct Sgd : ir::Optimizer {
  explicit Sgd(double lr, double momentum = 0, double weight_decay = 0);
};
struct Adam : ir::Optimizer {
  explicit Adam(double lr = 1e-3, double weight_decay = 0);
};
struct AdamW : ir::Optimizer {
  explicit AdamW(double lr = 1e-3, double weight_decay = 1e-2);
};

struct JobOptions {
  // "NAME:key=value", or "auto" for the search. Empty: the search, without all-reduces by a
  // library, so that every run adds up alike; PSLoadBalancing where nothing is measured
  // (`measure`).
  std::string builder;
  SearchSettings search;
  std::string strategy_file;  // takes the builder's place
  // A file that `write_plans` has written: the job goes through the same plans at the same steps,
  // and neither searches nor tries others. Takes the builder's place.
  std::string plans_file;
  // Where the chief keeps, from which step on, under which plan the job trains.
  std::string write_plans;
  std::vector<search::Builder> builders;  // your own, beside AutoDist's
  std::uint64_t seed = 0;                 // of generators; every replica and step derives its own
  bool cpu_only = false;                  // one CPU rank for each listed GPU
  // For the silence of a rank that is waited for before the first step. One that is alive
  // (captures, plans, reads data) is waited for.
  Seconds join_limit{60};
  Seconds stall_limit{300};  // for a wait within a step; lost peers are noticed long before
  // For a rank that says nothing (a machine that is paused, a link that is down); a line names it
  // after 3 s. One whose connection is closed is lost at once. 4 or more.
  Seconds silence_limit{20};
  bool trace = false;  // keep Trace rows of steps
  // The last so many steps; 0: of all, which takes memory without end unless they are taken.
  std::int64_t trace_steps = 200;
  // finish() gathers the traces of all ranks, where all have come to it (Session::final_trace).
  bool trace_at_end = false;
  bool measure = true;  // time every op at capture (fixes priorities)
  // Of what ranks say to each other: kAuto where they are on more than one machine. Where it is
  // encrypted, a plan with all-reduces by a library, which are not, is refused.
  Encryption encryption = Encryption::kAuto;
  // Measure the links between machines (slice and window sizes that the strategy leaves open).
  bool tune_links = true;
  // Micro-batches per step: a replica's rows are split like those of a job, their gradients added
  // up, and one contribution per variable leaves with the last.
  std::int64_t accumulate = 1;
  // Every so many steps, before the step: compare it with its replay on the same rows. 0: never.
  std::int64_t verify_every = 0;
  // So many of this run's first steps are each compared with their replay, where the graph is not
  // placed.
  std::int64_t verify_first = 0;
  // kStop where nothing is said.
  std::optional<exec::OnNonFinite> on_nonfinite;
  bool snapshots = true;  // Session::snapshot() may take some
  // The folder of snapshots on a disk: of those for which memory has no room, and of the newest one
  // in memory when the job is given up. Nothing: the folder that resume() was given; where that was
  // a step-N, the folder that it is in, and only when the job is given up. Empty: none.
  std::optional<std::string> snapshot_folder;
  // "dynamic", "dynamic:scale=…,growth=…,backoff=…,interval=…" or a fixed scale
  // (ir/loss_scaling.h): the loss is scaled for the backward pass, and a step in which a gradient
  // of any rank is not finite is skipped by all. Empty: no loss scaling. Not beside on_nonfinite.
  std::string loss_scaling;
  // A safetensors file whose tensors take the place of the model's own first values, by name. What
  // only one side has is listed on standard error; another shape is refused.
  std::string initial_weights;
  exec::UserRules user_rules;  // for optimizers "user:rule=NAME,lr=…"
  // What an op of so many samples takes on a device that this machine does not have: beside
  // computing it, a rank sleeps for so long, which takes no core. To rehearse a plan.
  std::function<Seconds(const ir::Op&, std::int64_t samples)> device_time;
  // What a chief starts the other ranks as: a program and its arguments. Empty: as this process was
  // started. An interpreter knows better where it is and what it was given than the system does.
  std::vector<std::string> command;
  // Called several times a second by who waits or captures before the first step, and by who only
  // serves, on its thread, and while a chief whose job is over waits for the ranks that it started.
  // What it throws (an Error, from then on whenever it is called) ends the job, and those that
  // still run are stopped.
  std::function<void()> while_waiting;
  // At each rank of a standby, when its turn has come, before it loads a state or makes a step.
  std::function<void()> takes_over;
  // At the chief, often: what distribute() is doing, as one line without an end, in the place of
  // the last one. Empty: it is done.
  std::function<void(const std::string& line)> progress;
  // The command that goes on from the newest checkpoint of a folder, for the message after a lost
  // rank. Default: load() is named.
  std::function<std::string(const std::string& folder)> resume_command;
  // Lines that other ranks on this machine print. Default: standard error, prefixed.
  std::function<void(std::uint32_t rank, const std::string& line)> output;
};

// What one step of this rank was.
struct StepReport {
  std::int64_t step = 0;     // counts from 0
  double loss = 0;           // of this replica's rows; NaN for a replica without rows
  std::int64_t samples = 0;  // of this replica
  Seconds total;
  Seconds waiting;  // of it, in gates, collectives and norms
  // The rows had shapes that were new to this rank: the step was captured with them first.
  bool captured = false;
  // With loss scaling: a gradient of this rank was not finite, so no rank updates anything.
  bool overflow = false;
  // The plan that the step ran under, by name, at the chief: a builder, a strategy's file, or what
  // a search calls it.
  std::string plan;
};

// The loss of a step over all replicas, which becomes known a little after the step at every rank:
// whoever does not ask for it pays nothing, and to ask is no collective operation. A copy is cheap.
class JobLoss {
 public:
  // The mean over all samples of the step (their sum for a summed loss), the same at every rank;
  // NaN where no replica had rows. With asynchronous variables this rank's own. Waits until the
  // other ranks have computed the step. Throws Error: kPeersLost, kTimeout; kUsage where the job
  // has ended before it was known.
  [[nodiscard]] double value() const;
  // Whether value() would wait.
  [[nodiscard]] bool known() const;
  // Of all replicas; with asynchronous variables of this rank. REQUIRES: known().
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] std::int64_t step() const;

 private:
  friend class job::StepRun;
  friend class Session;
  JobLoss(std::shared_ptr<const exec::StepSums> sums, std::weak_ptr<exec::Runner> runner, bool mean,
          std::size_t number)
      : sums_(std::move(sums)), runner_(std::move(runner)), mean_(mean), number_(number) {}
  std::shared_ptr<const exec::StepSums> sums_;
  std::weak_ptr<exec::Runner> runner_;
  std::weak_ptr<const job::TrainingJob> job_;
  bool mean_;
  std::size_t number_;
};

// What all ranks know of a step, one step later (with staleness s: s + 1 steps; with asynchronous
// variables: 33): the same at every rank.
struct StepSummary {
  std::int64_t step = -1;    // -1: nothing yet
  double loss = 0;           // mean over all samples of the step (their sum for a summed loss)
  std::int64_t samples = 0;  // of all replicas
  bool stop = false;         // some rank asked to stop
  bool save = false;         // some rank asked for a checkpoint
  bool skipped = false;      // with loss scaling: a gradient was not finite, nothing was updated
};

// Whose batch-norm statistics (buffers that steps write, each rank its own) an evaluation uses.
enum class Statistics : std::uint8_t {
  kChief,
  kMean,  // of all replicas; the chief's of buffers that are no floating-point numbers
};

// What a program keeps beside the model, as bytes: an average of weights, where it is in its data.
// An Error that `state` throws is that of the checkpoint, at all ranks.
struct Kept {
  std::function<std::string()> state;
  std::function<void(const std::string& state)> restore;
};

// When save() returns.
enum class SaveUntil : std::uint8_t {
  kWritten,  // the checkpoint is on the disk
  // Nothing that is changed from here on has a part in it; threads copy and write it while the
  // steps go on.
  kCopied,
};

// What became of a plan that another one took the place of.
struct PlanChange {
  Bytes moved;                         // from rank to rank
  Seconds predicted;                   // for that, by the rates of the cluster's links
  std::vector<std::string> forgotten;  // parameters of which compression owed something: dropped
};

// One of several steps that a job has over the same variables.
struct NamedStep {
  std::string name;   // not empty, without '/'
  TrainingStep step;  // its `trains` says which of its parameters it changes
  // Nothing: the step trains nothing. It computes its loss without gradients, on the newest
  // variables; whether the model is in evaluation mode is up to the loss function.
  std::optional<ir::Optimizer> optimizer = std::nullopt;
  std::string builder = "";  // in the place of the job's
};

class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  // Where finish() was not called, calls it, and says on standard error what it throws. Where an
  // exception ends the loop, leaves the job, and the others learn why. Never throws.
  ~Session();

  // One step on the whole job's batch, which every rank passes: each replica takes its rows, as
  // NumPy's array_split. Inputs whose first dimension is not the batch go whole to every replica.
  // Returns the loss of this replica's rows. Throws Error: kPeersLost with the culprit, kUsage for
  // a batch that the step cannot take, and where ranks do not make the same calls; JobEnded when
  // the chief has finished. A rank that only serves (`role: server`) does so here, until then.
  double run(const Batch& batch);

  // One step on rows that only this rank has; their number and their shapes (sequence lengths) may
  // differ between ranks and from step to step, also zero rows. New shapes are captured when they
  // first come.
  double run_local(const Batch& rows);

  // One step as run(), and values of it by name, the same at every rank; every rank asks for the
  // same names. Names are `loss`; a parameter or buffer ("fc1.weight": whole, after the step; of
  // buffers the chief's); its gradient ("fc1.weight.grad": dense, averaged over all samples); a
  // layer ("features.0": what the last op that reads its parameters made). What has the batch as
  // its first dimension comes from all replicas, in the order of the batch; of other values the
  // first replica's. Throws as run(), and Error(kUsage) for a name that the step has not, with the
  // nearest it has.
  std::map<std::string, torch::Tensor> run_and_fetch(const Batch& batch,
                                                     const std::vector<std::string>& names);

  // Sums over all ranks, of what each passes, added in rank order; missing ones count as 0. Every
  // rank calls it, at most six times between two steps (run_and_fetch counts).
  std::vector<double> sum_over_ranks(const std::vector<double>& values);

  [[nodiscard]] const StepReport& last() const;
  // What the last step returned beside its loss (TrainingStep::loss_and_more), of this replica's
  // rows; without gradients. Of micro-batches, rows follow on rows, and single numbers are averaged
  // over samples.
  [[nodiscard]] const std::vector<torch::Tensor>& outputs() const;

  // After a step: tells the others this rank's part of it, and what it asks for. Returns the
  // summary of the step before (with staleness s: of the s-th before that; with asynchronous
  // variables: of the 32nd), so that nobody waits for the slowest's end of this one. Every rank
  // calls it after every step, or none does.
  StepSummary summarise(bool stop = false, bool save = false);
  // The summary of the last step for which summarise() was called.
  StepSummary last_summary();
  // The summaries that summarise() has not returned yet, up to last_summary()'s.
  std::vector<StepSummary> remaining_summaries();

  // With loss scaling: the scale of the next step, and how many steps were skipped so far. Waits
  // until all ranks have computed the last step. Error(kUsage) without.
  ir::LossScale loss_scale();
  // How many it has skipped, for what a program does at the end of a step: unlike loss_scale() this
  // saves nothing that is due. REQUIRES: loss scaling; a step was run.
  std::int64_t skipped_steps();

  // Until it returns, variables may be of any version; afterwards they are the newest, at every
  // rank. With asynchronous variables every rank calls it (and evaluate()), after the same step.
  // What is then written into parameters before the next step becomes their new values, where every
  // rank writes the same (the next step, or the owner that finds it, throws Error(kUsage) with the
  // ranks where not). A write to a parameter without it is an error of the step, too (through
  // `.data()`, which libtorch does not count, where it changes one of a few values that are
  // compared), and so is freezing one that is trained.
  void synchronize();
  // As synchronize(), for one parameter of the model and at this rank alone; does nothing for
  // asynchronous or placed variables.
  void settle(const torch::Tensor& parameter);

  // The loss of the last step over all replicas. Throws Error(kUsage) before the first one.
  [[nodiscard]] JobLoss job_loss() const;
  // As job_loss(), for the number-th single number among outputs(), counted from 1: its mean over
  // all samples. Throws Error(kUsage) where there is none.
  [[nodiscard]] JobLoss job_number(std::size_t number) const;
  // Options of update rules from the next step on, by the parameter's name: {"fc.weight": {"lr":
  // 0.1}}; what is not named is as the optimizer was declared. Every rank sets the same, which is
  // checked before anything is updated; of asynchronous variables each its own. Throws
  // Error(kUsage) for a name or an option that there is not, or that needs other state.
  void set_options(const std::map<std::string, std::map<std::string, double>>& options);

  // The job goes on under another plan from the next step on: the chief's choice, by a builder
  // ("AllReduce:algorithm=ring"), or the chief's strategy. Every rank calls it, after the same
  // step. State moves between ranks as it must, and nothing is lost but what compression owes
  // where the next plan owes nothing; that is returned. Losses and parameters are those of a job
  // without the change, where both plans are lossless and synchronous and sum in the same order.
  // Throws Error(kUsage) and Error(kInfeasible) for a plan that cannot be taken, at every rank, and
  // the session goes on under the one before: also where ranks have written other values into
  // parameters since the last step, and for graphs that are placed in stages.
  PlanChange change_plan(const std::string& builder);
  PlanChange change_plan(const strategy::Strategy& strategy);

  // The model's outputs in evaluation mode on the newest variables, the same at every rank. Where
  // steps write buffers (batch norm), all ranks use the chief's or their mean, get their own back
  // afterwards, and every rank calls it, after the same step; as where synchronize() needs all.
  // The batch is moved to where the model is; one that comes from the host has its outputs there.
  // REQUIRES: the step has an `evaluate` function.
  std::vector<torch::Tensor> evaluate(const Batch& batch,
                                      Statistics statistics = Statistics::kChief);
  // The part of evaluate() that needs the other ranks; until the next step it is this rank's alone.
  void prepare_evaluation(Statistics statistics = Statistics::kChief);
  // evaluate() around something else than the step's function: the model's buffers are those of an
  // evaluation from one to the other.
  void begin_evaluation(Statistics statistics = Statistics::kChief);
  void end_evaluation();

  // Of all steps of the job, where it has several: this and what follows to load() and finish().
  // Writes a checkpoint step-N below `directory`, at the chief, with the original names; at most
  // once per directory between two steps. By every rank; or by the chief alone: then at once where
  // the owners hold all of it, else (statistics, compression, stages) by all ranks after the step
  // that they can still reach together, or in finish(), where variables are asynchronous always
  // there. Where it cannot be written, or another job writes into `directory`, all who call it get
  // Error(kCheckpoint), and the session goes on: it may be called again after the same step. One
  // that waits for the others is warned of on standard error then, and tried again in finish().
  // Throws Error(kUsage) the second time, and where some ranks beside the chief call it. With
  // SaveUntil::kCopied, one that cannot be written is said on standard error, and unless a later
  // one was written it is tried again in finish(); the next save() waits until it is written.
  void save(const std::string& directory, SaveUntil until = SaveUntil::kWritten);
  // From here on checkpoints have the chief's state of `what` by this name, and load() gives it to
  // all ranks; one that has been loaded already is restored at once. What was loaded by a name that
  // nobody asks for stays in later checkpoints. Every rank calls it. Throws Error(kUsage) for a
  // name that is empty or is kept already.
  void keep(const std::string& name, Kept what);
  // Writes the model as a TorchScript file (capture/export.h), at the chief; every rank calls it.
  void export_torchscript(const std::string& path);
  // Loads the newest sound checkpoint and returns its step; every rank calls it, before the first
  // step. A checkpoint of any strategy and size fits.
  std::int64_t load(const std::string& directory);
  // As load(), for a program that may be started again: where the chief finds no checkpoint in
  // `directory` yet, the training begins, and 0 is returned. Where somebody starts it again
  // (`autodist train`, `autodist run --restarts 3`), the newest snapshot() comes before an older
  // checkpoint there, and is all there is where `directory` is empty.
  std::int64_t resume(const std::string& directory = {});
  // Between two steps, a place from which the loop can go on: step(), and what is kept, say all
  // that it needs. Every rank calls it at every such place. So often that it takes a hundredth of
  // the time, the state of the job is copied into the memory of the process that starts it again,
  // on the chief's machine; where that has no room, into JobOptions::snapshot_folder, which is
  // said. Does nothing where nobody starts it again, before resume() was called, for asynchronous
  // variables, without JobOptions::snapshots, and where neither has room, which is said.
  void snapshot();

  [[nodiscard]] std::int64_t step() const;  // of the next run()
  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t size() const;
  [[nodiscard]] bool is_chief() const { return rank() == 0; }
  // Which part of a batch this rank computes, of how many. Throws Error(kUsage) for one that only
  // serves (`role: server`).
  [[nodiscard]] std::uint32_t replica() const;
  [[nodiscard]] std::uint32_t replicas() const;
  // The rows [begin, end) of a batch of so many that run() gives this rank; its strategy may ask
  // for parts that are not equal, and one row alone goes to a neighbour where the step needs
  // several (a batch norm); none of a rank that only serves.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t batch) const;
  [[nodiscard]] const ir::Graph& graph() const;
  // Until the next step, with which the plan may change.
  [[nodiscard]] const program::Program& program() const;
  [[nodiscard]] const strategy::Strategy& strategy() const;
  // Rows since the last call, of at most JobOptions::trace_steps steps; empty unless asked for in
  // the options.
  program::Trace take_trace();
  // The rows of all ranks, at the chief, in its time; every rank calls it, once after its last
  // step.
  program::Trace gather_trace();
  // What finish() has gathered (JobOptions::trace_at_end); else empty.
  [[nodiscard]] const program::Trace& final_trace() const;
  // A page for a browser, at the chief: the plan with its prediction and what else there was to
  // choose, the run, and a timeline. An empty run or trace is left out. Throws Error(kEnvironment)
  // where it cannot be written.
  void write_report(const std::string& path, const std::string& title, const report::RunLog& run,
                    const program::Trace& trace) const;
  // Of slices, those sent again included, since the first step.
  [[nodiscard]] std::uint64_t bytes_sent() const;

  // Leaves the job before its end, at once; the others are told why, and end. What is left is to
  // destroy the session, by which they are told where no reason is given.
  void leave(const std::string& reason);

  // Its next step is compared with the replay at this rank, as JobOptions::verify_every says of
  // every so many. Behind the first step; without effect where ops are placed.
  void verify_next();

  // For a rank that was told to stop (a signal): wishes that the job ends in order. The chief
  // learns so within about a second, and is to leave its loop and call finish(). After the first
  // step.
  void wish_for_the_end();
  // At the chief: a rank that wishes so, as far as is known.
  [[nodiscard]] std::optional<std::uint32_t> who_wishes_for_the_end() const;

  // Ends the job in order: every rank has finished its steps when it returns. Where the chief calls
  // it before the others, run() of these throws JobEnded in place of a further step; they call
  // finish() then, or end, with exit code 0 (base/job_ended.h). Afterwards Error(kCheckpoint) at
  // the chief, where the last checkpoint that waited for the others could not be written.
  void finish();

  // The job's step of this index; whoever comes last ends the job.
  Session(std::shared_ptr<job::TrainingJob> job, std::size_t index);

 private:
  [[nodiscard]] job::JobStep& own_step() const;
  job::StepRun& turn();
  job::StepRun& turn_to_step();

  std::shared_ptr<job::TrainingJob> job_;
  std::size_t index_;
};

// The steps of a job that has several, by name. They take turns: every rank runs the same ones in
// the same order, one after the other. A step reads what the others have trained, and a step's
// turn begins when all that the one before it changed has arrived at this rank. Each has its own
// Graph, Strategy and Program, its own optimizer state and its own count of steps. The random
// numbers of the i-th (from 0) are those of a job with the seed JobOptions::seed + i.
class Steps {
 public:
  // Throws Error(kUsage) with the nearest name for one that the job has not.
  Session& at(const std::string& name);
  Session& operator[](const std::string& name) { return at(name); }

  // Of all steps together: as Session's. A checkpoint is named after the sum of their counts.
  void synchronize();
  void save(const std::string& directory, SaveUntil until = SaveUntil::kWritten);
  void keep(const std::string& name, Kept what);
  std::int64_t load(const std::string& directory);  // returns that sum
  std::int64_t resume(const std::string& directory = {});
  void snapshot();
  void finish();
  [[nodiscard]] std::int64_t step() const;
  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t size() const;
  [[nodiscard]] bool is_chief() const { return rank() == 0; }

  explicit Steps(std::vector<std::pair<std::string, Session>> sessions)
      : sessions_(std::move(sessions)) {}

 private:
  std::vector<std::pair<std::string, Session>> sessions_;  // in the order of declaration
};

namespace job {

// Captures the step, chooses a strategy, rewrites and agrees with the other ranks, by all of them
// at the same point. What is returned owns the job.
Session distribute(std::unique_ptr<JoinedJob> job, TrainingStep step,
                   const ir::Optimizer& optimizer);
// For several steps over one set of variables (AutoDist::distribute).
Steps distribute(std::unique_ptr<JoinedJob> job, std::vector<NamedStep> steps);

}  // namespace job
}  // namespace autodist
