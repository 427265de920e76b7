// The compute stream of one rank: its instructions, one after the other, on the thread that calls.
// Ops run, gates wait, gradients and values for other stages are handed over.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autodist/base/background.h"
#include "autodist/base/clock.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/engine.h"
#include "autodist/exec/hand_over.h"
#include "autodist/exec/replay.h"
#include "autodist/exec/runner.h"
#include "autodist/exec/trace_recorder.h"
#include "autodist/exec/watched_values.h"
#include "autodist/program/program.h"

namespace autodist::exec {

// One thread at a time calls it; after any exception but capture::OtherWay nobody does again.
// begin() for a micro-batch, begin_step() where it is the step's first, then run().
class ComputeStream {
 public:
  // A micro-batch of a step; a graph that is not placed has one at a time under way.
  struct MicroBatch {
    Replay* replay;
    const Batch* rows;
    std::int64_t samples;
    std::int64_t samples_before;  // of the step's earlier ones
    std::uint64_t seed;           // of the draws
  };

  // Both outlive it.
  ComputeStream(Engine& engine, const Clock& clock);

  // `changed`: variables whose newest values were written here, so that no owner is asked for them.
  void begin_step(std::uint64_t step, std::set<ir::VariableId> changed);

  // Gives a micro-batch's rows to the ops, where it has any.
  void begin(const MicroBatch& micro);
  // Executes the stream's instructions for micro-batches that have begun, and ends the step where
  // they are the `last` ones. Returns their losses as one, their samples and outputs, and times
  // since `start`, when the caller began. Throws as Runner::step(), and capture::OtherWay where
  // the step goes another way than its graph, before anything has left the rank.
  StepResult run(ShapedStep& shape, const std::vector<MicroBatch>& micros, bool last,
                 Seconds start);
  // After OtherWay: drops what the micro-batch has computed, as if it had not begun. Variables may
  // be of a newer version afterwards, where that is allowed.
  void abandon(const MicroBatch& micro);

  // Until the device's copy of a variable is there, for what this thread hands to the device from
  // now on.
  void await_copy(ir::VariableId variable, WaitSite site);

  [[nodiscard]] WatchedValues& watched() { return watched_; }
  // Where a failure of the step under way happened: "at op 3 (aten::mm in 'encoder')".
  [[nodiscard]] std::string place() const;

 private:
  struct Interpreter;
  struct LastOp {
    const Replay* replay = nullptr;
    ir::OpId op{};
  };

  Seconds pass(ir::VariableId variable);
  void release(ir::VariableId variable);
  void compute(Replay& replay, ir::OpId op, std::int64_t samples);
  [[nodiscard]] bool op_by_op() const;
  void let_device_finish();
  void add_losses(const std::vector<MicroBatch>& micros);
  void add_sums(const std::vector<MicroBatch>& micros);
  [[nodiscard]] std::vector<double> losses_of(const std::vector<MicroBatch>& micros) const;
  void await_gradients(const ShapedStep& shape, const std::vector<MicroBatch>& micros);
  void check_loss(const ShapedStep& shape, const MicroBatch& micro) const;

  const program::Program& program_;
  const program::Rank rank_;
  const RunnerOptions& options_;
  const Clock& clock_;
  Engine& engine_;
  TraceRecorder& trace_;
  const torch::Device device_;  // of the model
  const bool offers_core_;      // others may wait for this rank
  // Of the step that is under way.
  std::uint64_t step_ = 0;
  std::set<ir::VariableId> changed_;
  std::vector<bool> holds_;  // by variable: it has passed the gate, and may be read
  std::shared_ptr<const StepSums> open_sums_;
  bool added_sums_ = false;
  LastOp at_;
  WatchedValues watched_;
  Seconds device_debt_;  // time of the imitated device that was not slept yet
  CoreOffers offers_;
  HandOver hand_over_;  // ends first
};

}  // namespace autodist::exec
