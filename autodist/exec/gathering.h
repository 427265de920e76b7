// What ranks ask each other for between two steps: for a checkpoint the state of the update rules
// and what compression still owes, and variables that are not whole at this rank. How the state of
// a job moves to another plan (program/transition.h).
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "autodist/exec/held_state.h"
#include "autodist/exec/job_queue.h"
#include "autodist/exec/link.h"
#include "autodist/exec/rank_context.h"
#include "autodist/exec/rank_slices.h"
#include "autodist/exec/rank_state.h"
#include "autodist/exec/small_collectives.h"
#include "autodist/exec/step_counter.h"
#include "autodist/exec/topic.h"
#include "autodist/program/program.h"
#include "autodist/program/state.h"
#include "autodist/program/transition.h"

namespace autodist::exec {

class Gathering {
 public:
  // `buffers`: the model's own, by buffer. All references outlive it.
  Gathering(const RankContext& rank, std::vector<torch::Tensor> buffers, RankSlices& slices,
            HeldState& held, SmallCollectives& small_collectives, Link& link, JobQueue& jobs);
  // REQUIRES: await_state().
  ~Gathering() = default;
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // All of synchronous variables that are asked for before a step, as of this step, into this
  // rank's copies. REQUIRES: they have the step's version here; at most once between two steps.
  void pull_rows(std::uint64_t step);
  // Asynchronous variables: makes this rank's copies those of their owners, which hold exactly the
  // contributions of the steps before `step`. By all computing ranks; they leave together.
  void pull(std::uint64_t step);
  // Asynchronous variables, by the chief alone, when the others have stopped: makes its copies
  // those of their owners, with as many contributions as have come by now.
  void pull_alone(std::uint64_t step);
  // Of a placed graph: variables of other stages and buffers that they write, as of this step, into
  // this rank's copies. By all computing ranks, which have this step's version of what they hold;
  // at most once between two steps.
  void pull_stages(std::uint64_t step);

  // As Runner::gather_state().
  LaterTensors gather_state(std::uint64_t step);
  // Until what gather_state() has returned is there, or cannot be had any more.
  void await_state();
  // await_state(), for a few seconds at most: by who has news for the others.
  void await_state_shortly();
  // SmallCollectives::gather_at_chief() of tensors.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_tensors(
      Topic topic, std::uint64_t step, const std::vector<NamedTensor>& own);
  // What compression still owes, as tensors of the variables' shapes: "<variable>.owed" of this
  // rank's gradients, "<variable>.owed_average" of the averages that it owns; and
  // "<variable>.factor" of what PowerSGD goes on from. At the chief that of all ranks, by rank;
  // elsewhere nothing.
  std::map<std::uint32_t, std::vector<NamedTensor>> gather_owed(std::uint64_t step);

  // This rank's part of a transition from the program: gives what others need, and returns what it
  // has itself under the next one; parameters go into this rank's copies. By all ranks, once, when
  // each knows that all have the newest version of every variable and none begins a step.
  RankState hand_over(const program::Transition& transition, std::uint64_t step);

  // Whether messages on the topic are for take(), which is the receiving thread's.
  [[nodiscard]] static bool takes(Topic topic) {
    const bool is_gathered = Topic::kStatesWanted <= topic && topic <= Topic::kParameters;
    return topic == Topic::kMove || (is_gathered && topic != Topic::kOwed);
  }
  void take(const comm::Frame& frame);

 private:
  // Takes the messages of these senders, steps and subjects as they come, passes each on to
  // visit(what it is about, frame), and returns after the last.
  using Key = std::tuple<program::Rank, std::uint64_t, Subject>;
  template <typename About, typename Visit>
  void collect(const std::map<Key, About>& expected, const char* what, Visit visit);
  // The messages in which moves come to a rank.
  static std::map<Key, const program::Move*> expected_of(const program::Transition& transition,
                                                         Topic topic, std::uint64_t step,
                                                         std::uint32_t number, program::Rank to);
  // Asks the ranks that these come from, each once.
  template <typename About>
  void ask(Subject subject, std::uint64_t step, const std::map<Key, About>& expected);
  // A gathering of update rules' state, at the chief.
  struct Rules {
    std::uint64_t step = 0;
    std::uint32_t number = 0;
    program::Transition moves;  // to the chief
    StateTensors tensors;
    std::promise<std::vector<NamedTensor>> state;
  };
  void begin(const std::shared_ptr<Rules>& rules);
  StateTensors collected(Rules& rules);
  // From here on pieces that come too late are dropped.
  void end_collecting();
  // This owner's answer to the chief.
  void send_states(program::Rank to, std::uint64_t step, std::uint32_t number);

  std::map<std::uint32_t, std::vector<NamedTensor>> gather_owed_of_slices(std::uint64_t step);
  void pull_buffers(std::uint64_t step);
  // Parameters of the slices that `wanted` accepts, from their owners into this rank's copies.
  template <typename Wanted>
  void pull_parameters(Topic topic, std::uint64_t step, Wanted wanted);
  // Parameters of the slices that this rank owns and `wanted` accepts, to a rank that asked.
  template <typename Wanted>
  void send_parameters(program::Rank to, std::uint64_t step, Wanted wanted);
  void send(const program::Transition& transition, Topic topic, std::uint64_t step,
            std::uint32_t number = 0, Seconds needed = {});
  [[nodiscard]] bool owners_wait_for_the_chief() const;

  const program::Program& program_;
  const program::Rank self_;
  const RunnerOptions& options_;
  std::vector<torch::Tensor> buffers_;
  RankSlices& slices_;
  HeldState& held_;
  SmallCollectives& small_collectives_;
  Link& link_;
  JobQueue& jobs_;
  Signal& signal_;
  std::map<Key, comm::Frame> gathered_ AD_GUARDED_BY(signal_);
  // The step and the number of the gathering whose states are wanted.
  std::optional<std::pair<std::uint64_t, std::uint32_t>> wanted_ AD_GUARDED_BY(signal_);
  bool own_copied_ AD_GUARDED_BY(signal_) = false;  // of it, by the merging thread
  std::exception_ptr own_failure_ AD_GUARDED_BY(signal_);
  std::future<void> collecting_;  // what the last gather_state() has asked for
  // Gatherings between two steps are numbered at every rank, so that a second one there has
  // messages of its own, and nothing is taken for another's.
  StepCounter states_;
  StepCounter owed_;
  std::map<Topic, StepCounter> tensors_;
};

}  // namespace autodist::exec
