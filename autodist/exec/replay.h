// Runs the ops of a graph on this rank, one by one, in the order that a Program gives.
//
// Everything that can be known beforehand is resolved at construction, so that a step costs the
// kernels, one table look-up per argument and no bookkeeping of autograd's.
//
// On a device whose queues can be recorded, runs of ops are recorded in the second step of a batch
// size, and launched as one from then on (Recordings).
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/capture/bindings.h"
#include "autodist/capture/op_call.h"
#include "autodist/capture/training_step.h"
#include "autodist/exec/device/recording.h"
#include "autodist/ir/graph.h"

namespace autodist::exec {

// The seed of a rank's generator at a step: two rounds of SplitMix64 (Steele, Lea and Flood, OOPSLA
// 2014) over the job's seed, the rank and the step. Every bit of the result depends on all three;
// libtorch's CPU generator takes the low 32. A step of one rank alone equals eager libtorch after
// torch::manual_seed(step_seed(job_seed, 0, step)).
std::uint64_t step_seed(std::uint64_t job_seed, std::uint32_t rank, std::uint64_t step,
                        std::uint32_t micro_batch = 0);

// The part of a graph that a stage runs.
struct ReplayPart {
  std::vector<ir::OpId> ops;              // ascending
  std::vector<ir::ValueId> sent;          // to other stages, each once
  std::vector<ir::VariableId> variables;  // whose gradients are taken here
};

// One thread at a time; several Replays may run in several threads.
class Replay {
 public:
  // All of the graph, or a part of it. Throws Error(kUsage) where the graph needs another libtorch.
  Replay(std::shared_ptr<const ir::Graph> graph, capture::Bindings bindings, torch::Device device,
         const std::optional<ReplayPart>& part = std::nullopt);

  // Whether begin() takes this batch: as many inputs, of these types and sizes.
  [[nodiscard]] bool accepts(const Batch& batch) const;

  // Before the first op of a step: feeds the inputs and seeds the generator. Where the number of
  // samples differs from the step before, prepares the ops for it. Throws Error(kUsage) where an
  // input does not fit the graph, or the batch is fixed and another one comes. `op_by_op`: nothing
  // of this step is recorded or launched.
  void begin(const Batch& batch, std::uint64_t seed, bool op_by_op = true);

  // Runs one op and frees what nobody reads after it. REQUIRES: between begin() and end(), in the
  // graph's order; a capture::BelowAutograd lives on this thread.
  void run(ir::OpId op) {
    const Step& step = steps_[op.value];
    step.call->run(slots_, stack_);
    for (const std::uint32_t slot : step.last_uses) drop(slot);
  }

  // Runs ops that follow each other with nothing in between in any step: what begins with one op
  // always has the same others behind it. In the order in which they were in earlier steps.
  void run(const std::vector<ir::OpId>& ops);
  // Whether this step is recorded or launched. Launches of later steps write its gradients and
  // outputs again where they lie: whoever reads them on another queue is done by then.
  [[nodiscard]] bool writes_again() const { return recordings_.in_use; }
  // Why this step and later ones are not recorded, in words, once; empty: nothing new.
  [[nodiscard]] std::string take_unrecorded() { return std::exchange(unrecorded_, ""); }

  // Of a part: a value for other stages, to be taken once; its memory is not written again in this
  // step. And one that came from another stage, before the first op that reads it.
  torch::Tensor take_sent(ir::ValueId value);
  void put(ir::ValueId value, torch::Tensor tensor) {
    slots_[graph_->value(value).slot.value] = std::move(tensor);
  }
  // The state of the generator, which the stages of a replica share.
  [[nodiscard]] torch::Tensor generator_state() const { return place_.generator.get_state(); }
  void set_generator_state(const torch::Tensor& state) { place_.generator.set_state(state); }

  // The gradient, which this replay lets go of and never writes again. To be taken once per
  // variable and step. REQUIRES: its last op has run.
  torch::Tensor take_gradient(ir::VariableId variable);

  // An output of the step, until end().
  [[nodiscard]] const torch::Tensor& output(std::size_t index) const;

  // What stands for a value now: undefined before its op has run and after its last use.
  [[nodiscard]] const torch::Tensor& tensor(ir::ValueId value) const {
    return slots_[graph_->value(value).slot.value];
  }

  // Frees everything but what outlives the step.
  void end();

  // In the place of end() for a step that goes another way than the graph (a guard has thrown):
  // frees what it made, and puts buffers and inputs back to what they were at begin().
  void abandon();

  // Samples of a batch: the rows of the first batched input; 1 where the graph has none.
  [[nodiscard]] std::int64_t samples_of(const Batch& batch) const;

  [[nodiscard]] const ir::Graph& graph() const { return *graph_; }
  // For messages: "op 3 (aten::mm in 'encoder')".
  [[nodiscard]] std::string describe(ir::OpId op) const;

 private:
  struct Step {
    std::optional<capture::OpCall> call;   // nothing for an op of another part
    std::vector<std::uint32_t> last_uses;  // slots
  };

  // Several ops as one launch.
  struct Recorded {
    std::unique_ptr<Recording> recording;
    // The slots that it leaves something in, as handles that hold no memory.
    std::vector<std::pair<std::uint32_t, torch::Tensor>> made;
  };
  // Of one batch size. The recordings' memory is a pool of theirs, where a value is overwritten
  // once its last op has run; what others read is kept for good.
  struct Recordings {
    std::unique_ptr<Recorder> recorder;  // none: op by op
    int steps = 0;                       // of this size before
    bool in_use = false;                 // in this step
    std::map<ir::OpId, Recorded> by_first;
    std::vector<torch::Tensor> inputs;  // where they read the batch
    std::vector<const void*> places;    // and what is bound
    std::vector<torch::Tensor> kept;
  };

  void plan_slots(const ReplayPart& part);
  torch::Tensor take(ir::ValueId value);
  void begin_recordings(bool op_by_op);
  void forget_recordings();
  void launch(const Recorded& recorded, const std::vector<ir::OpId>& ops);
  void record(const std::vector<ir::OpId>& ops);
  // The op of a value that lies on the host, which no launch would write again; nothing: there is
  // none.
  [[nodiscard]] std::optional<ir::OpId> note_made(const std::vector<ir::OpId>& ops,
                                                  Recorded& recorded);
  void find_undone();
  void drop(std::uint32_t slot) {
    if (--holders_[slot] == 0) slots_[slot].reset();
  }
  [[nodiscard]] torch::Tensor as_recorded(std::size_t index, const torch::Tensor& tensor) const;
  [[nodiscard]] bool fits(std::size_t index, const torch::Tensor& tensor,
                          std::int64_t samples) const;
  void check_input(std::size_t index, const torch::Tensor& tensor, std::int64_t samples) const;

  std::shared_ptr<const ir::Graph> graph_;
  capture::Bindings bindings_;
  capture::ComputePlace place_;
  std::int64_t prepared_for_;
  std::vector<Step> steps_;
  std::vector<torch::Tensor> slots_;
  torch::jit::Stack stack_;
  // Who still needs a slot in this step: its last op, and everybody who takes it as a gradient or
  // reads it as an output. Slots that outlive the step count for ever.
  std::vector<std::uint32_t> holders_;
  std::vector<std::uint32_t> holders_at_begin_;
  std::vector<std::uint32_t> freed_at_end_;  // slots
  // Where the graph has guards: slots of buffers and inputs that it writes, and in a step these
  // tensors beside copies of what they held before.
  std::vector<std::uint32_t> undone_;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;
  std::vector<bool> is_read_by_others_;  // by slot: gradients and outputs
  std::string unrecorded_;
  Recordings recordings_;  // ends first
};

}  // namespace autodist::exec
