// A rank's collective stream: a library's all-reduces on a thread of their own, as exec/ has it,
// and rings message by message where slices share the links.

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/sim/effects.h"

namespace autodist::sim {

// The collective stream: one instruction at a time, on a thread of its own.
void Engine::advance_collective(std::uint32_t r) {
  Stream& stream = ranks_[r].collective;
  while (stream.phase == Phase::kReady && !stream.instructions->empty() &&
         stream.step <= ranks_[r].compute.step) {
    if (stream.at == stream.instructions->size()) {
      stream.at = 0;
      ++stream.step;
      continue;
    }
    const FlatInstruction& instruction = (*stream.instructions)[stream.at];
    if (instruction.kind == FlatKind::kReduce) {
      const CollectiveTable& collective = tables_.collectives[instruction.id];
      for (std::uint32_t v : collective.variables) {
        if (ranks_[r].contributed[v] <= stream.step) return;
      }
      stream.phase = Phase::kJoining;
      stream.since = now_;
      schedule_own(now_ + collective.copy_seconds / 2, EventKind::kStreamed, r);
    } else if (instruction.kind == FlatKind::kUpdate) {
      if (!protocols_[r].may_update(ir::VariableId(instruction.id), stream.step)) return;
      stream.phase = Phase::kBusy;
      stream.since = now_;
      const double seconds = tables_.variables[instruction.id].update_seconds;
      if (costs_.device(program::Rank(r)).on_host) {
        charge(r, seconds);
      } else if (ranks_[r].compute.phase == Phase::kBusy) {
        ranks_[r].debt += seconds;  // what computes and what updates share the device's memory
      }
      schedule_own(now_ + seconds, EventKind::kStreamed, r);
    } else {
      ++stream.at;
    }
  }
}

void Engine::streamed(const Event& event) {
  const std::uint32_t r = event.place;
  Stream& stream = ranks_[r].collective;
  const FlatInstruction instruction = (*stream.instructions)[stream.at];
  if (stream.phase == Phase::kJoining) {
    stream.phase = Phase::kReducing;
    return join(r, instruction.id, stream.step);
  }
  const std::uint32_t step = stream.step;
  ++stream.at;
  if (instruction.kind == FlatKind::kUpdate) {
    record(program::Activity::kUpdate, r, step, RawRow::Of::kVariable, instruction.id, 0,
           stream.since, now_);
    stream.phase = Phase::kReady;
    tell(r, protocol::UpdatedHere{ir::VariableId(instruction.id)});
  } else {
    const CollectiveTable& collective = tables_.collectives[instruction.id];
    record(program::Activity::kCollective, r, step, RawRow::Of::kCollective, instruction.id,
           collective.bytes + collective.second_bytes, stream.since, now_);
    stream.phase = Phase::kReady;
    for (std::uint32_t v : collective.variables) {
      tell(r, protocol::Averaged{ir::VariableId(v), step});
    }
  }
  advance_collective(r);
  wake(r);
}

// A library begins when its last member has come.
void Engine::join(std::uint32_t r, std::uint32_t c, std::uint32_t step) {
  const CollectiveTable& collective = tables_.collectives[c];
  charge(r, collective.cpu_seconds);
  if (tables_.mixed && collective.members->size() > 1) {
    ranks_[r].ring_joined = true;
    send_ring(r, c, step);
    return finish_ring(r, c, step);
  }
  const auto& members = *collective.members;
  const auto simulated =
      std::lower_bound(members.begin(), members.end(), program::Rank(symmetry_.period));
  if (++joined_[c] < static_cast<std::uint32_t>(simulated - members.begin())) return;
  joined_[c] = 0;
  for (auto member = members.begin(); member != simulated; ++member) {
    queue_.push(
        {now_ + collective.wire_seconds, kCommon | c, EventKind::kReduced, member->value, c});
  }
}

void Engine::reduced(const Event& event) {
  const std::uint32_t r = event.place;
  const auto c = static_cast<std::uint32_t>(event.argument);
  ranks_[r].collective.phase = Phase::kUnpacking;
  schedule_own(now_ + tables_.collectives[c].copy_seconds / 2, EventKind::kStreamed, r);
}

// Beside slices a ring is what it is: 2 (n-1) messages, each after the one from the other side.
void Engine::send_ring(std::uint32_t r, std::uint32_t c, std::uint32_t step) {
  Rank& rank = ranks_[r];
  const std::vector<program::Rank>& members = *tables_.collectives[c].members;
  const auto n = static_cast<std::uint32_t>(members.size());
  while (rank.ring_joined && rank.ring_sent < 2 * (n - 1) && rank.ring_sent <= rank.ring_got) {
    const auto self = std::lower_bound(members.begin(), members.end(), program::Rank(r));
    const auto place = static_cast<std::uint32_t>(self - members.begin());
    const CollectiveTable& collective = tables_.collectives[c];
    const std::int64_t bytes = rank.ring_second ? collective.second_bytes : collective.bytes;
    // The part that it passes on in this round: its own first, then what came.
    const std::uint32_t part = (place + 2 * n - rank.ring_sent) % n;
    const std::uint32_t to = members[(place + 1) % n].value;
    ++rank.ring_sent;
    depart(new_message(
        {MessageKind::kRing, r, to, c, step, ring_part(bytes, part, n), now_, now_, 0, 0}));
  }
}

void Engine::finish_ring(std::uint32_t r, std::uint32_t c, std::uint32_t step) {
  Rank& rank = ranks_[r];
  const auto n = static_cast<std::uint32_t>(tables_.collectives[c].members->size());
  if (!rank.ring_joined || rank.ring_got < 2 * (n - 1)) return;
  rank.ring_got -= 2 * (n - 1);  // the next one's first part may be here already
  rank.ring_sent = 0;
  if (!rank.ring_second && tables_.collectives[c].second_bytes > 0) {
    rank.ring_second = true;
    send_ring(r, c, step);
    return finish_ring(r, c, step);
  }
  rank.ring_second = false;
  rank.ring_joined = false;
  schedule_own(now_, EventKind::kReduced, r, c);
}

}  // namespace autodist::sim
