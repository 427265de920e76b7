// A rank's compute stream: the same loop as exec/compute_stream.cc, with a virtual clock.

#include <algorithm>
#include <cmath>

#include "autodist/base/check.h"
#include "autodist/sim/effects.h"

namespace autodist::sim {
namespace {

// Steps differ by less than this share when a job counts as settled.
constexpr double kSettled = 1e-3;
// Steps that a job may fall behind the best one before it is left.
constexpr double kBehind = 0.05;

}  // namespace

// Runs until something takes time.
void Engine::advance(std::uint32_t r) {
  Stream& stream = ranks_[r].compute;
  if (stream.instructions->empty()) return;
  if (stream.phase != Phase::kReady && stream.phase != Phase::kWaiting) return;
  while (true) {
    if (stream.at == stream.instructions->size()) {
      end_pass(r);
      if (stream.phase == Phase::kParked) return;
      continue;
    }
    if (!step_compute(r, (*stream.instructions)[stream.at])) return;
    ++stream.at;
  }
}

// Whether the instruction is done; else the rank computes or waits.
bool Engine::step_compute(std::uint32_t r, const FlatInstruction& instruction) {
  Stream& stream = ranks_[r].compute;
  const std::uint32_t id = instruction.id;
  switch (instruction.kind) {
    case FlatKind::kCompute: {
      const Segment& segment = tables_.segments[id];
      const std::size_t device = costs_.device_of_rank[r];
      double seconds = segment.seconds[device];
      if (costs_.slowness) seconds *= costs_.slowness(program::Rank(r), stream.step);
      begin_compute(r, seconds + segment.extra[device]);
      return false;
    }
    case FlatKind::kGate: {
      if (!protocols_[r].is_open(ir::VariableId(id), stream.step)) {
        wait_for(r);
        return false;
      }
      if (stream.phase == Phase::kWaiting) {
        waits_[id] += now_ - stream.since;
        end_wait(r, RawRow::Of::kVariable, id);
      }
      tell(r, protocol::Held{ir::VariableId(id)});
      if (stream.micro > 0 || !tables_.variables[id].fetched) return true;
      if (tables_.variables[id].rows_seconds == 0) return true;
      begin_compute(r, tables_.variables[id].rows_seconds);
      return false;
    }
    case FlatKind::kFetch:
      if (stream.micro == 0) ask_rows(r, id, stream.step);
      return true;
    case FlatKind::kContribute:
      if (last_micro(stream)) contribute(r, id, stream.step);
      return true;
    case FlatKind::kRelease:
      if (last_micro(stream)) {
        tell(r, protocol::Released{ir::VariableId(id)});
        if (tables_.job.variables[id].slices.empty()) advance_collective(r);
      }
      return true;
    case FlatKind::kUpdate:
      if (!last_micro(stream)) return true;
      if (!protocols_[r].may_update(ir::VariableId(id), stream.step)) {
        wait_for(r);
        return false;
      }
      stream.phase = Phase::kReady;
      begin_compute(r, tables_.variables[id].update_seconds);
      return false;
    case FlatKind::kBarrier:
      for (std::uint32_t v = 0; v < tables_.variables.size(); ++v) {
        if (protocols_[r].is_settled(ir::VariableId(v), stream.step)) continue;
        wait_for(r);
        return false;
      }
      if (stream.phase == Phase::kWaiting) {
        rank_counters_[r].waiting += now_ - stream.since;
        stream.phase = Phase::kReady;
      }
      return true;
    case FlatKind::kNorm:
      return true;
    case FlatKind::kAgree:
      if (last_micro(stream)) Performer(*this, r).flag(stream.step);
      return true;
    case FlatKind::kSend:
      send_value(r, id, stream.step);
      return true;
    case FlatKind::kReceive:
      if (ranks_[r].values[id] <= stream.step) {
        wait_for(r);
        return false;
      }
      if (stream.phase == Phase::kWaiting) end_wait(r, RawRow::Of::kTransfer, id);
      return true;
    case FlatKind::kNothing:
    case FlatKind::kReduce:
      break;
  }
  AD_CHECK(false) << "a collective in the compute stream";
  return false;
}

void Engine::wait_for(std::uint32_t r) {
  Stream& stream = ranks_[r].compute;
  if (stream.phase == Phase::kWaiting) return;
  stream.phase = Phase::kWaiting;
  stream.since = now_;
}

void Engine::end_wait(std::uint32_t r, RawRow::Of of, std::uint32_t id) {
  Stream& stream = ranks_[r].compute;
  rank_counters_[r].waiting += now_ - stream.since;
  record(program::Activity::kGate, r, stream.step, of, id, 0, stream.since, now_);
  stream.phase = Phase::kReady;
}

void Engine::begin_compute(std::uint32_t r, double seconds) {
  Rank& rank = ranks_[r];
  rank.compute.phase = Phase::kBusy;
  rank.compute.since = now_;
  rank.debt = 0;
  if (costs_.device(program::Rank(r)).on_host) {
    // With more ranks that compute than cores each gets its share of them, as it stands now.
    const std::uint32_t busy = ++busy_[node_of(r)];
    const std::uint32_t cores = tables_.nodes[node_of(r)].cores;
    if (busy > cores) seconds *= static_cast<double>(busy) / cores;
  }
  schedule_own(now_ + seconds, EventKind::kComputed, r);
}

void Engine::computed(const Event& event) {
  Rank& rank = ranks_[event.place];
  if (rank.debt > 0) {  // what the engine took meanwhile is still to be done
    const double late = rank.debt;
    rank.debt = 0;
    schedule_own(now_ + late, EventKind::kComputed, event.place);
    return;
  }
  if (costs_.device(program::Rank(event.place)).on_host) --busy_[node_of(event.place)];
  Stream& stream = rank.compute;
  stream.phase = Phase::kReady;
  rank_counters_[event.place].computing += now_ - stream.since;
  const FlatInstruction& done = (*stream.instructions)[stream.at];
  if (done.kind == FlatKind::kUpdate) {
    record(program::Activity::kUpdate, event.place, stream.step, RawRow::Of::kVariable, done.id, 0,
           stream.since, now_);
    tell(event.place, protocol::UpdatedHere{ir::VariableId(done.id)});
  } else if (done.kind == FlatKind::kCompute && options_.trace) {
    const Segment& segment = tables_.segments[done.id];
    const DeviceCost& device = costs_.device(program::Rank(event.place));
    double all = segment.extra[costs_.device_of_rank[event.place]];
    for (ir::OpId op : segment.ops) all += device.ops[op.value].value;
    double at = stream.since;
    for (ir::OpId op : segment.ops) {  // what the engine took is spread over the ops
      const double share = all > 0 ? device.ops[op.value].value / all : 0;
      const double end = at + share * (now_ - stream.since);
      record(program::Activity::kCompute, event.place, stream.step, RawRow::Of::kOp, op.value, 0,
             at, end);
      at = end;
    }
  }
  ++stream.at;
  advance(event.place);
}

void Engine::end_pass(std::uint32_t r) {
  Stream& stream = ranks_[r].compute;
  stream.at = 0;
  if (!last_micro(stream)) {
    ++stream.micro;
    return;
  }
  stream.micro = 0;
  ++stream.step;
  ended_step(r);
  if (stream.step >= target_) stream.phase = Phase::kParked;
}

// Whether the job has settled is known one step before anybody would stop.
void Engine::ended_step(std::uint32_t r) {
  const std::uint32_t step = ranks_[r].compute.step - 1;
  rank_ends_[r].push_back(now_);
  if (done_.size() <= step) {
    done_.resize(step + 1, 0);
    step_ends_.resize(step + 1, 0);
  }
  step_ends_[step] = std::max(step_ends_[step], now_);
  if (++done_[step] < computing_ranks_ || step + 2 < target_ || settled_) return;
  const auto took = [&](std::uint32_t k) {
    return step_ends_[k] - (k == 0 ? 0 : step_ends_[k - 1]);
  };
  const double last = took(step);
  settled_ = step >= 2 && program_.in_step() && !costs_.slowness &&
             std::abs(last - took(step - 1)) <= kSettled * last &&
             std::abs(last - took(step - 2)) <= kSettled * last;
  // The first step has nothing to wait for, and the next ones vary.
  abandoned_ = !settled_ && options_.hopeless > Seconds{} && step >= 2 &&
               step_ends_[step] - step_ends_[0] > options_.hopeless.value * (step + kBehind);
  if (abandoned_) step_ends_.resize(step + 1);  // of others, one may have been one step ahead
  if (settled_ || abandoned_ || target_ >= options_.most_steps) return;
  ++target_;
  for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
    if (ranks_[other].compute.phase != Phase::kParked) continue;
    queue_.push({now_, kCommon | target_, EventKind::kResumed, other, 0});
  }
}

void Engine::resume(std::uint32_t r) {
  Stream& stream = ranks_[r].compute;
  if (stream.phase != Phase::kParked || stream.step >= target_) return;
  stream.phase = Phase::kReady;
  advance(r);
}

// Something that a stream may wait for has changed.
void Engine::wake(std::uint32_t r) {
  if (ranks_[r].compute.phase == Phase::kWaiting) advance(r);
  if (ranks_[r].collective.phase == Phase::kReady) advance_collective(r);
}

void Engine::contribute(std::uint32_t r, std::uint32_t v, std::uint32_t step) {
  const VariableTable& variable = tables_.variables[v];
  const double rate = costs_.device(program::Rank(r)).staging_bytes_per_s;
  if (tables_.job.variables[v].slices.empty()) {
    ranks_[r].contributed[v] = step + 1;
    if (variable.collective == protocol::kNone) {
      tell(r, protocol::Averaged{ir::VariableId(v), step});
    }
    advance_collective(r);
    return;
  }
  if (rate == 0) return post_contributions(r, v, step);
  Rank& rank = ranks_[r];
  rank.staged_until =
      std::max(now_, rank.staged_until) + static_cast<double>(variable.staged) / rate;
  schedule_own(rank.staged_until, EventKind::kStaged, r, (std::uint64_t{v} << 32) | step);
}

// Everything is handed over before anything leaves, so that nobody turns to rank 0 first.
void Engine::post_contributions(std::uint32_t r, std::uint32_t v, std::uint32_t step) {
  protocols_[r].gradient_complete(ir::VariableId(v), [&](program::SliceId slice) {
    tell(r, protocol::Contributed{slice, step});
  });
  pump(r);
}

void Engine::ask_rows(std::uint32_t r, std::uint32_t v, std::uint32_t step) {
  for (const program::SliceId slice : tables_.job.variables[v].slices) {
    tell(r, protocol::RowsWanted{slice, step});
  }
  pump(r);
}

// To the stages of the same replica that read it, before any slice.
void Engine::send_value(std::uint32_t r, std::uint32_t t, std::uint32_t step) {
  const TransferTable& transfer = tables_.transfers[t];
  for (const std::uint32_t stage : transfer.to) {
    const std::uint32_t to = program_.stage_mate(program::Rank(r), stage).value;
    post({MessageKind::kValue, r, to, t, step, transfer.bytes, now_, 0, 0, 0}, 0);
  }
  pump(r);
}

// The engine's work takes cores from ranks that compute, where none is free.
void Engine::charge(std::uint32_t r, double cpu_seconds) {
  const std::uint32_t busy = busy_[node_of(r)];
  const NodeTable& node = tables_.nodes[node_of(r)];
  if (busy == 0 || busy < node.cores) return;
  node_counters_[node_of(r)].stolen += cpu_seconds;
  for (std::uint32_t other : node.ranks) {
    const bool computes =
        ranks_[other].compute.phase == Phase::kBusy && costs_.device(program::Rank(other)).on_host;
    if (computes) ranks_[other].debt += cpu_seconds / busy;
  }
}

}  // namespace autodist::sim
