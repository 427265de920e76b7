// The streams of a Program that run beside the compute stream: all-reduces of a library, and the
// updates behind them. Each has a thread, which goes through its instructions once per step.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "autodist/exec/engine.h"
#include "autodist/program/program.h"

namespace autodist::exec {

class SideStreams {
 public:
  explicit SideStreams(Engine& engine);  // of this rank; outlives it
  // Ends the threads, and with them whatever waits for the signal.
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  // From here the streams may do their part of this step. By the compute thread, step by step.
  void start(std::uint64_t step);

 private:
  void run(const program::Stream& stream);
  void wait_for_start(std::uint64_t step);

  Engine& engine_;
  Signal& signal_;  // the engine's
  std::uint64_t steps_started_ AD_GUARDED_BY(signal_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace autodist::exec
