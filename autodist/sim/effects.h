// How the engine performs what a rank's protocol asks for. Private to this folder.

#pragma once

#include "autodist/sim/engine.h"

namespace autodist::sim {

class Engine::Performer {
 public:
  Performer(Engine& of, std::uint32_t at) : engine_(of), tables_(of.tables_), rank_(at) {}

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

  // Says to all ranks that this one's gradients of the step are finite.
  void flag(protocol::Step step) const;

 private:
  [[nodiscard]] program::Rank self() const { return program::Rank(rank_); }
  [[nodiscard]] const protocol::Job::Slice& rules(program::SliceId slice) const {
    return tables_.job.slice(slice);
  }
  void send(MessageKind kind, program::Rank to, std::uint32_t id, protocol::Step step,
            std::int64_t bytes, double needed) const;
  void tell_all(MessageKind kind, std::uint32_t id, protocol::Step step, std::int64_t bytes,
                double needed) const;
  void work(JobKind kind, std::uint32_t id, protocol::Step step, double needed,
            std::uint32_t from = 0, bool with_result = false) const;

  Engine& engine_;
  const JobTables& tables_;
  std::uint32_t rank_;
};

template <typename Event>
void Engine::tell(std::uint32_t rank, const Event& event) {
  const std::size_t begin = effects_.size();
  protocols_[rank].on(event, effects_);
  const std::size_t end = effects_.size();
  // An effect may lead to events of this rank: their effects stand behind these for as long.
  for (std::size_t i = begin; i < end; ++i) {
    const protocol::Effect effect = effects_[i];
    std::visit(Performer(*this, rank), effect);
  }
  effects_.shrink_to(begin);
}

}  // namespace autodist::sim
