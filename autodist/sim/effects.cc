// What the protocol asks for, in virtual time. Messages go to the cards (network.cc); work goes to
// the one worker of a rank, which takes jobs in the order (step, needed, arrival), as
// exec/job_queue.cc:
//
//   work                          thread that runs it        what is charged
//   encoding a contribution       compute                    its segment's extra time
//   Merge (with Update at once)   jobs                       sum_seconds, update_seconds
//   Measure                       jobs                       nothing: a part of the update
//   Update                        jobs                       update_seconds
//   Install                       jobs                       install_seconds
//   GiveRows                      jobs                       a copy of the rows
//   Take                          receiver                   receiving a byte (EngineCost)

#include <algorithm>

#include "autodist/sim/effects.h"

namespace autodist::sim {
namespace {

constexpr std::int64_t kNormBytes = 16;  // two doubles per part

}  // namespace

void Engine::Performer::send(MessageKind kind, program::Rank to, std::uint32_t id,
                             protocol::Step step, std::int64_t bytes, double needed) const {
  engine_.post(
      {kind, rank_, to.value, id, static_cast<std::uint32_t>(step), bytes, engine_.now_, 0, 0, 0},
      needed);
}

void Engine::Performer::work(JobKind kind, std::uint32_t id, protocol::Step step, double needed,
                             std::uint32_t from, bool with_result) const {
  engine_.push_job(rank_,
                   {static_cast<std::uint32_t>(step), needed, 0, kind, id, from, with_result});
}

// Whoever contributes pumps once everything is handed over, so that nobody turns to rank 0 first.
void Engine::Performer::operator()(const protocol::Contribute& effect) const {
  const SliceTable& slice = tables_.slices[effect.slice.value];
  tables_.job.for_each_contributed_to(rules(effect.slice), self(), [&](program::Rank to) {
    send(MessageKind::kContribution, to, effect.slice.value, effect.step, slice.contribution,
         slice.needed);
  });
}

void Engine::Performer::operator()(const protocol::HandOn& effect) const {
  const SliceTable& slice = tables_.slices[effect.slice.value];
  send(MessageKind::kContribution, tables_.job.onward(rules(effect.slice), self()),
       effect.slice.value, effect.step, slice.contribution, slice.needed);
  engine_.pump(rank_);
}

void Engine::Performer::operator()(const protocol::Return& effect) const {
  const SliceTable& slice = tables_.slices[effect.slice.value];
  tables_.job.for_each_returned_to(rules(effect.slice), self(), [&](program::Rank to) {
    send(MessageKind::kResult, to, effect.slice.value, effect.step, slice.result, slice.needed);
  });
  engine_.pump(rank_);
}

void Engine::Performer::operator()(const protocol::Answer& effect) const {
  const SliceTable& slice = tables_.slices[effect.slice.value];
  send(MessageKind::kResult, effect.to, effect.slice.value, effect.step, slice.result,
       slice.needed);
  engine_.pump(rank_);
}

void Engine::Performer::operator()(const protocol::TellSums& effect) const {
  const protocol::Job::Slice& slice = rules(effect.slice);
  const std::size_t parts = effect.lamb ? slice.lamb_norms.size() : slice.clip_norms.size();
  tell_all(effect.lamb ? MessageKind::kLambSums : MessageKind::kClipSums, effect.slice.value,
           effect.step, static_cast<std::int64_t>(parts) * kNormBytes,
           tables_.slices[effect.slice.value].needed);
}

void Engine::Performer::flag(protocol::Step step) const {
  tell_all(MessageKind::kFlag, 0, step, kNormBytes, 0);
  engine_.tell(rank_, protocol::Flagged{self(), step, true});
}

void Engine::Performer::tell_all(MessageKind kind, std::uint32_t id, protocol::Step step,
                                 std::int64_t bytes, double needed) const {
  const std::uint32_t ranks = tables_.job.ranks;
  for (std::uint32_t k = 1; k < ranks; ++k) {
    send(kind, program::Rank((rank_ + k) % ranks), id, step, bytes, needed);
  }
  engine_.pump(rank_);
}

void Engine::Performer::operator()(const protocol::TellServers& effect) const {
  for (std::uint32_t to = 0; to < tables_.job.ranks; ++to) {
    if (engine_.program_.computes(program::Rank(to))) continue;
    send(MessageKind::kWholeSum, program::Rank(to), effect.variable.value, effect.step, kNormBytes,
         0);
  }
  engine_.pump(rank_);
}

// Asked before anything of the step is sent; the stream pumps.
void Engine::Performer::operator()(const protocol::Ask& effect) const {
  send(MessageKind::kAsk, rules(effect.slice).owner, effect.slice.value, effect.step,
       tables_.slices[effect.slice.value].asked, 0);
}

void Engine::Performer::operator()(const protocol::SendRows& effect) const {
  const SliceTable& slice = tables_.slices[effect.slice.value];
  send(effect.with_result ? MessageKind::kResultAndRows : MessageKind::kRows, effect.to,
       effect.slice.value, effect.step, slice.fetched, 0);
  engine_.pump(rank_);
}

void Engine::Performer::operator()(const protocol::TakeRows& effect) const {
  engine_.tell(rank_, protocol::RowsArrived{effect.slice});
}

void Engine::Performer::operator()(const protocol::Merge& effect) const {
  work(JobKind::kMerge, effect.slice.value, effect.step, tables_.slices[effect.slice.value].needed);
}

void Engine::Performer::operator()(const protocol::Measure& effect) const {
  engine_.tell(rank_, protocol::Measured{effect.slice});
}

void Engine::Performer::operator()(const protocol::Update& effect) const {
  work(JobKind::kUpdate, effect.slice.value, effect.step, 0);
}

void Engine::Performer::operator()(const protocol::Install& effect) const {
  work(JobKind::kInstall, effect.variable.value, effect.step,
       tables_.variables[effect.variable.value].needed);
}

void Engine::Performer::operator()(const protocol::GiveRows& effect) const {
  work(JobKind::kGiveRows, effect.slice.value, effect.step, 0, effect.to.value, effect.with_result);
}

void Engine::Performer::operator()(const protocol::Take& effect) const {
  engine_.tell(rank_, protocol::Taken{effect.slice, effect.step});
}

void Engine::Performer::operator()(const protocol::Open& /*effect*/) const { engine_.wake(rank_); }

void Engine::Performer::operator()(const protocol::Agreed& /*effect*/) const {}

void Engine::Performer::operator()(const protocol::NormKnown& /*effect*/) const {
  engine_.wake(rank_);
}

void Engine::push_job(std::uint32_t r, Job job) {
  Rank& rank = ranks_[r];
  job.arrival = rank.arrivals++;
  rank.jobs.push_back(job);
  std::push_heap(rank.jobs.begin(), rank.jobs.end());
  if (!rank.working) start_job(r);
}

void Engine::start_job(std::uint32_t r) {
  Rank& rank = ranks_[r];
  std::pop_heap(rank.jobs.begin(), rank.jobs.end());
  rank.job = rank.jobs.back();
  rank.jobs.pop_back();
  rank.working = true;
  rank.job_since = now_;
  const std::uint32_t id = rank.job.id;
  double seconds = 0;
  switch (rank.job.kind) {
    case JobKind::kMerge: {
      const protocol::Job::Slice& slice = tables_.job.slices[id];
      seconds = tables_.sum_seconds(id, r);
      const bool goes_on = slice.relays && slice.owner.value != r;
      if (!goes_on && tables_.job.updates_at_once(slice)) {
        seconds += tables_.slices[id].update_seconds;
      }
      break;
    }
    case JobKind::kUpdate:
      seconds = tables_.slices[id].update_seconds;
      break;
    case JobKind::kInstall:
      seconds = tables_.variables[id].install_seconds;
      break;
    case JobKind::kGiveRows:
      seconds = static_cast<double>(tables_.slices[id].fetched) / costs_.engine.install_bytes_per_s;
      break;
  }
  rank_counters_[r].owner_busy += seconds;
  charge(r, seconds);
  schedule_own(now_ + seconds, EventKind::kJobDone, r);
}

void Engine::job_done(const Event& event) {
  const std::uint32_t r = event.place;
  const Job job = ranks_[r].job;
  const double since = ranks_[r].job_since;
  const program::SliceId slice(job.id);
  ranks_[r].working = false;
  switch (job.kind) {
    case JobKind::kMerge:
      record(program::Activity::kMerge, r, job.step, RawRow::Of::kSlice, job.id,
             tables_.slices[job.id].contribution, since, now_);
      tell(r, protocol::Merged{slice});
      break;
    case JobKind::kUpdate:
      record(program::Activity::kUpdate, r, job.step, RawRow::Of::kSlice, job.id,
             tables_.slices[job.id].contribution, since, now_);
      tell(r, protocol::Updated{slice});
      break;
    case JobKind::kInstall:
      record(program::Activity::kInstall, r, job.step, RawRow::Of::kVariable, job.id,
             tables_.variables[job.id].bytes, since, now_);
      tell(r, protocol::Installed{ir::VariableId(job.id)});
      break;
    case JobKind::kGiveRows:
      tell(r, protocol::RowsGiven{program::Rank(job.from), slice, job.step, job.with_result});
      break;
  }
  if (!ranks_[r].working && !ranks_[r].jobs.empty()) start_job(r);
}

}  // namespace autodist::sim
