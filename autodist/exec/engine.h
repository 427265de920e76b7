// The parts of one rank that work beside the compute stream, put together: what moves slices, what
// talks, and whose each message is.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "autodist/exec/calls.h"
#include "autodist/exec/gathering.h"
#include "autodist/exec/held_state.h"
#include "autodist/exec/job_queue.h"
#include "autodist/exec/link.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rank_slices.h"
#include "autodist/exec/rank_state.h"
#include "autodist/exec/runner_options.h"
#include "autodist/exec/signal.h"
#include "autodist/exec/slice_driver.h"
#include "autodist/exec/small_collectives.h"
#include "autodist/exec/stage_link.h"
#include "autodist/exec/step_news.h"
#include "autodist/exec/whole_gradients.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class Engine {
 public:
  // Starts the threads; a peer that comes earlier may ask for this rank's state at once. All
  // references but `start` outlive it. Throws Error(kCheckpoint) where a state is missing or does
  // not fit.
  Engine(const program::Program& program, program::Rank self, const capture::Bindings& bindings,
         const RunnerConnections& connections, const RunnerOptions& options, TraceRecorder& trace,
         const RankState& start = {});
  // Ends them.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const RankContext& rank() const { return rank_; }
  [[nodiscard]] Signal& signal() { return signal_; }
  [[nodiscard]] Link& link() { return link_; }
  [[nodiscard]] Calls& calls() { return calls_; }
  [[nodiscard]] SmallCollectives& small_collectives() { return small_collectives_; }
  [[nodiscard]] RankSlices& slices() { return slices_; }
  [[nodiscard]] StepNews& news() { return news_; }
  [[nodiscard]] SliceDriver& driver() { return driver_; }
  [[nodiscard]] WholeGradients& whole() { return whole_; }
  [[nodiscard]] HeldState& held() { return held_; }
  [[nodiscard]] Gathering& gathering() { return gathering_; }
  // Values of other stages. REQUIRES: the graph is placed.
  [[nodiscard]] StageLink& stages() { return *stages_; }

  // The run is over, for this rank and its peers, unless it has ended in order. Any thread but the
  // exchange's.
  void abort(const std::exception_ptr& reason);
  // By the compute thread, for good: the peers are told why, and nothing is sent or received any
  // more when it returns.
  void leave(const std::string& reason);
  // Leaves in order, once nobody needs this rank any more.
  void finish(std::uint64_t step);

 private:
  [[nodiscard]] PostNote poster();
  [[nodiscard]] CallPeers call_peers();
  void take(const comm::Frame& frame);

  Signal signal_;
  const RankContext rank_;
  Link link_;
  Calls calls_;
  SmallCollectives small_collectives_;
  RankSlices slices_;
  StepNews news_;
  JobQueue jobs_;
  SliceDriver driver_;
  WholeGradients whole_;
  HeldState held_;
  Gathering gathering_;
  std::optional<StageLink> stages_;  // of a placed graph
};

}  // namespace autodist::exec
