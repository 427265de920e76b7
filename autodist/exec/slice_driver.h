// Drives this rank's protocol (protocol/rank.h), the same code that the simulator drives: tells it
// what happens and performs what follows on bytes (effects.cc). Messages go to the link, work to
// the rank's job queue, and the bytes lie in RankSlices.
//
//   contribute ─▶ Contributor ─▶ link ─▶ Owner ─▶ link ─▶ LocalVariables ─▶ gate
//
// Threads: compute (the step's stream), side streams, the exchange's receiver and the job queue's
// one thread feed events. The signal guards the protocol, the contributions that wait, the results
// that wait, and whatever gates wait for; bytes are stored before the event that speaks of them,
// and worked on outside of the mutex.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autodist/comm/transport.h"
#include "autodist/exec/job_queue.h"
#include "autodist/exec/link.h"
#include "autodist/exec/owner.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rank_slices.h"
#include "autodist/exec/step_news.h"
#include "autodist/exec/topic.h"
#include "autodist/program/program.h"
#include "autodist/protocol/rank.h"

namespace autodist::exec {

// What an event speaks of, for the effects that follow from it.
using EventBytes = CombinedSlice;

class SliceDriver {
 public:
  // All references outlive it; `slices` is of this rank.
  SliceDriver(const RankContext& rank, RankSlices& slices, StepNews& news, Link& link,
              JobQueue& jobs);

  // Hands over a complete gradient of a variable that slices carry. By the compute thread.
  void contribute(ir::VariableId variable, const torch::Tensor& gradient, std::uint64_t step,
                  std::int64_t samples);
  // Hands over a gradient that is the product of two matrices and travels as these. By the compute
  // thread.
  void contribute_factors(ir::VariableId variable, const torch::Tensor& left,
                          const torch::Tensor& right, std::uint64_t step, std::int64_t samples);
  // Asks for the rows of a variable that the step reads; by the compute thread.
  void fetch(ir::VariableId variable, const std::vector<torch::Tensor>& numbers,
             std::uint64_t step);

  // Blocks until the variable has this step's version, which holds the updates of the steps before
  // it, or is none of this rank's. Any thread. Throws as Signal::wait; the time-out's message names
  // the slices that are missing and their owners.
  void await_settled(ir::VariableId variable, std::uint64_t step);
  // A gate: blocks until the step may read the variable, which is not written from then on until
  // release(). Rows that were asked for are in it. Whether it was open at once. By the compute
  // thread. Throws as await_settled(). `late` is asked after some seconds, and once more (true) for
  // the time-out's message: whom this waits for, if that is known.
  bool hold(ir::VariableId variable, std::uint64_t step,
            const std::function<std::string(bool gives_up)>& late = {});
  void release(ir::VariableId variable);

  // Of a variable that no slice carries, by whichever thread runs the stream. averaged(): its
  // average is here, with its sum of squares where a clip needs it. await_update() blocks until it
  // may be updated. updated(): it was.
  void averaged(ir::VariableId variable, std::uint64_t step, const std::vector<SquaredSums>& sums);
  void await_update(ir::VariableId variable, std::uint64_t step);
  void updated(ir::VariableId variable);

  // Loss scaling: whether a gradient of this rank's is not finite in the step, to all ranks. By the
  // compute thread, once per step.
  void raise_flag(std::uint64_t step, bool overflow);
  // The scale of a step, once all ranks have said so of the one before. REQUIRES: the Program
  // scales the loss.
  ir::LossScale await_scale(std::uint64_t step);

  // The tensors of these variables have got other values from outside: for this rank's part of
  // their slices, too. By the compute thread, before `step`, which all ranks contribute to later.
  void reload(const std::vector<ir::VariableId>& variables, std::uint64_t step);

  // When a step first needs the variable, from its start.
  [[nodiscard]] Seconds needed(ir::VariableId variable) const { return needed_[variable.value]; }

  // Whether messages on the topic are for take(), which is the receiving thread's.
  [[nodiscard]] static bool takes(Topic topic) { return topic <= Topic::kResultAndRows; }
  void take(const comm::Frame& frame);

 private:
  [[nodiscard]] const std::string& name_of(program::SliceId slice) const {  // of its first shard
    return program_.shard(program_.slice(slice).pieces.front().shard).name;
  }
  [[nodiscard]] std::string describe_wait(ir::VariableId variable) const AD_REQUIRES(signal_);
  void send_contribution(program::SliceId slice, std::uint64_t step, std::int64_t samples,
                         const comm::Payload& payload);
  void take_sums(program::SliceId slice, bool lamb, const comm::Frame& frame);
  void take_whole_sum(ir::VariableId variable, const comm::Frame& frame);
  void take_flag(const comm::Frame& frame);

  class Performer;
  // Tells the protocol and performs what follows, on the caller's thread. The bytes are stored.
  void tell(const protocol::Event& event, const EventBytes& bytes = {});
  void merge(const protocol::Merge& effect);
  void measure(program::SliceId slice, std::uint64_t step);
  void update_slice(program::SliceId slice, std::uint64_t step);
  void install(ir::VariableId variable, std::uint64_t step);
  // `bytes`: of the result that goes with them, if one does.
  void give_rows(const protocol::GiveRows& effect, EventBytes bytes);
  void take_result(program::SliceId slice, std::uint64_t step, const EventBytes& bytes);
  void post_sums(Subject subject, std::uint64_t step, Seconds needed,
                 const std::vector<SquaredSums>& sums);
  void put_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                 const std::vector<SquaredSums>& sums);
  // Keeps this rank's parts of norms, before the protocol hears that they are known.
  void put_own_parts(program::SliceId slice, std::uint64_t step, bool lamb,
                     const std::vector<SquaredSums>& sums);

  const program::Program& program_;
  const program::Rank self_;
  const Seconds limit_;
  RankSlices& slices_;
  StepNews& news_;
  Link& link_;
  JobQueue& jobs_;
  Signal& signal_;
  TraceRecorder& trace_;
  const std::vector<Seconds> needed_;  // by variable
  protocol::RankProtocol protocol_ AD_GUARDED_BY(signal_);
};

}  // namespace autodist::exec
