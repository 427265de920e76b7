// How the driver performs what the protocol asks for. Private to this folder.
//
// Opt-in: includes torch, as capture/training_step.h does.

#pragma once

#include "autodist/exec/slice_driver.h"

namespace autodist::exec {

class SliceDriver::Performer {
 public:
  Performer(SliceDriver& rank, const EventBytes& bytes) : rank_(rank), bytes_(bytes) {}

  void operator()(const protocol::Contribute& effect) const;
  void operator()(const protocol::HandOn& effect) const;
  void operator()(const protocol::Return& effect) const;
  void operator()(const protocol::Answer& effect) const;
  void operator()(const protocol::TellSums& effect) const;
  void operator()(const protocol::TellServers& effect) const;
  void operator()(const protocol::Ask& effect) const;
  void operator()(const protocol::SendRows& effect) const;
  void operator()(const protocol::TakeRows& effect) const;
  void operator()(const protocol::Merge& effect) const;
  void operator()(const protocol::Measure& effect) const;
  void operator()(const protocol::Update& effect) const;
  void operator()(const protocol::Install& effect) const;
  void operator()(const protocol::GiveRows& effect) const;
  void operator()(const protocol::Take& effect) const;
  void operator()(const protocol::Open& effect) const;
  void operator()(const protocol::Agreed& effect) const;
  void operator()(const protocol::NormKnown& effect) const;

 private:
  [[nodiscard]] const protocol::Job::Slice& rules(program::SliceId slice) const {
    return rank_.slices_.job.slice(slice);
  }
  void post(Topic topic, program::Rank to, program::SliceId slice, std::uint64_t step,
            const comm::Payload& payload, const std::string& rider) const;

  SliceDriver& rank_;
  const EventBytes& bytes_;
};

template <typename Event>
void SliceDriver::tell(const Event& event, const EventBytes& bytes) {
  protocol::Effects effects;
  {
    const MutexLock lock(signal_);
    protocol_.on(event, effects);
    // Under the lock, so that who learns from the protocol that all ranks agree can ask the scaler.
    for (std::size_t i = 0; i < effects.size(); ++i) {
      const auto* agreed = std::get_if<protocol::Agreed>(&effects[i]);
      if (agreed != nullptr) slices_.scaler.decide(agreed->step, agreed->overflow);
    }
  }
  const Performer perform(*this, bytes);
  for (std::size_t i = 0; i < effects.size(); ++i) std::visit(perform, effects[i]);
}

}  // namespace autodist::exec
