// Values between the stages of a placed graph: a tensor as bytes on one side, and the same tensor,
// with the same strides, on the other.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "autodist/base/units.h"
#include "autodist/comm/transport.h"
#include "autodist/exec/device/queue.h"
#include "autodist/exec/device/staging.h"
#include "autodist/exec/signal.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class StageLink {
 public:
  // Hands a transfer's bytes to another rank; does not block.
  using Post = std::function<void(program::Rank to, program::StageTransferId, std::uint64_t step,
                                  const comm::Payload&)>;

  // `program`, `staging` and `signal` outlive it; no wait is longer than `limit`. What is received
  // goes to the device of `staging`.
  StageLink(const program::Program& program, program::Rank self, Staging& staging, Seconds limit,
            Signal& signal, Post post);
  ~StageLink();  // unless the rank has failed, waits for copies that are on their way
  StageLink(const StageLink&) = delete;
  StageLink& operator=(const StageLink&) = delete;

  // What travels of a transfer's value: of an expanded tensor every element once.
  [[nodiscard]] torch::Tensor distinct(program::StageTransferId transfer,
                                       torch::Tensor value) const;
  // What distinct() gave, on the host. Its memory must not be written again. Throws
  // Error(kInfeasible) for one that is larger than a frame may be.
  void send(program::StageTransferId transfer, std::uint64_t step, const torch::Tensor& tensor);
  // By the compute thread: the tensor of a micro-batch of so many samples. Waits until it is here
  // and, on a device, its copy is handed in. Throws as Signal::wait; the time-out's message names
  // the value, the op that makes it and its rank.
  torch::Tensor receive(program::StageTransferId transfer, std::uint64_t step,
                        std::int64_t samples);

  // What has come. Any thread. REQUIRES: once per transfer and step.
  void take(program::StageTransferId transfer, std::uint64_t step, comm::Payload payload);

 private:
  void copy(const torch::Tensor& from, torch::Tensor to);
  [[nodiscard]] std::string describe(program::StageTransferId transfer, std::uint64_t step) const;

  const program::Program& program_;
  const program::Rank self_;
  Staging& staging_;
  const Seconds limit_;
  Signal& signal_;
  Post post_;
  // Of this step and, where another stage is ahead, the next.
  std::map<std::pair<std::uint64_t, program::StageTransferId>, comm::Payload> arrived_
      AD_GUARDED_BY(signal_);
  // What is on its way to the device, in the order of its queue.
  std::deque<std::pair<torch::Tensor, Mark>> staged_;
};

}  // namespace autodist::exec
