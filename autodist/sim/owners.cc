// What owners and installers do: one worker per rank that takes jobs in the order (step, needed,
// arrival), as exec/job_queue.cc.

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/sim/engine.h"

namespace autodist::sim {
namespace {

constexpr std::int64_t kNormBytes = 16;  // two doubles per part

}  // namespace

Engine::Owned& Engine::owned(std::uint32_t rank, std::uint32_t slice) {
  return owned_[owned_at_[slice] + (meets_anywhere(tables_.slices[slice]) ? rank : 0)];
}

void Engine::take_contribution(std::uint32_t r, std::uint32_t s, std::uint32_t from,
                               std::uint32_t step) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  if (!slice.synchronous) {
    here.queue.emplace_back(from, step);
    if (here.queue.size() == 1) push_job(r, {step, slice.needed, 0, JobKind::kMerge, s, 0, 0});
    return;
  }
  if (++present(here, slice, step) == awaited(r, slice) && step == here.step) {
    push_job(r, {step, slice.needed, 0, JobKind::kMerge, s, 0, 0});
  }
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
  double seconds = 0;
  switch (rank.job.kind) {
    case JobKind::kMerge: {
      const SliceTable& slice = tables_.slices[rank.job.id];
      seconds = tables_.sum_seconds(slice, r);
      if (slice.relays && slice.owner != r) break;
      if (slice.clip_norms.empty() && slice.lamb_norms.empty()) seconds += slice.update_seconds;
      break;
    }
    case JobKind::kUpdate:
      seconds = tables_.slices[rank.job.id].update_seconds;
      break;
    case JobKind::kInstall:
      seconds = tables_.variables[rank.job.id].install_seconds;
      break;
    case JobKind::kGiveRows:
      seconds = static_cast<double>(tables_.slices[rank.job.id].fetched) /
                costs_.engine.install_bytes_per_s;
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
  ranks_[r].working = false;
  switch (job.kind) {
    case JobKind::kMerge:
      record(ir::Activity::kMerge, r, job.step, RawRow::Of::kSlice, job.id,
             tables_.slices[job.id].contribution, since, now_);
      merged(r, job.id);
      break;
    case JobKind::kUpdate:
      record(ir::Activity::kUpdate, r, job.step, RawRow::Of::kSlice, job.id,
             tables_.slices[job.id].contribution, since, now_);
      finish(r, job.id);
      break;
    case JobKind::kInstall:
      record(ir::Activity::kInstall, r, job.step, RawRow::Of::kVariable, job.id,
             tables_.variables[job.id].staged, since, now_);
      arrived(r, job.id, local(r, job.id).version) = 0;
      publish(r, job.id);
      break;
    case JobKind::kGiveRows:
      if (job.from == r) {
        take_rows(r, job.id);
      } else {
        post({MessageKind::kRows, r, job.from, job.id, job.about, 1, tables_.slices[job.id].fetched,
              now_, 0, 0, 0},
             0);
        pump(r);
      }
      break;
  }
  if (!ranks_[r].working && !ranks_[r].jobs.empty()) start_job(r);
}

void Engine::merged(std::uint32_t r, std::uint32_t s) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  if (!slice.synchronous) return apply_next(r, s);
  present(here, slice, here.step) = 0;
  if (slice.relays && slice.owner != r) return finish(r, s);
  if (!slice.clip_norms.empty()) send_norms(r, s, slice.clip_norms, here.step);
  if (!slice.at_owner || (slice.clip_norms.empty() && slice.lamb_norms.empty())) {
    return finish(r, s);
  }
  here.waits = 1;
  go_on(r, s);
}

// From one wait to the next: the clip's norm, then LAMB's, then the update.
void Engine::go_on(std::uint32_t r, std::uint32_t s) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  if (here.waits == 1 && norms_known(r, slice.clip_norms, here.step)) {
    here.waits = 2;
    if (!slice.lamb_norms.empty()) send_norms(r, s, slice.lamb_norms, here.step);
  }
  if (here.waits == 2 && norms_known(r, slice.lamb_norms, here.step)) {
    here.waits = 0;
    push_job(r, {here.step, 0, 0, JobKind::kUpdate, s, 0, 0});
  }
}

void Engine::finish(std::uint32_t r, std::uint32_t s) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  if (slice.relays && slice.owner != r) {
    hand_on(r, s, here.step);
  } else {
    post_results(r, s, here.step);
  }
  ++here.step;
  for (std::size_t i = 0; i < here.asked.size();) {
    const auto [rank, step] = here.asked[i];
    if (step > here.step + slice.ring - 1) {
      ++i;
      continue;
    }
    here.asked.erase(here.asked.begin() + static_cast<std::ptrdiff_t>(i));
    push_job(r, {here.step, 0, 0, JobKind::kGiveRows, s, rank, step});
  }
  if (present(here, slice, here.step) == awaited(r, slice)) {
    push_job(r, {here.step, slice.needed, 0, JobKind::kMerge, s, 0, 0});
  }
}

// What met on the way goes on as one contribution.
void Engine::hand_on(std::uint32_t r, std::uint32_t s, std::uint32_t step) {
  const SliceTable& slice = tables_.slices[s];
  const std::uint32_t to = tables_.ways.rank_of(slice.way, tables_.stop(slice, r).onward);
  post({MessageKind::kContribution, r, to, s, step, 1, slice.contribution, now_, 0, 0, 0},
       slice.needed);
  pump(r);
}

void Engine::post_results(std::uint32_t r, std::uint32_t s, std::uint32_t step) {
  const SliceTable& slice = tables_.slices[s];
  if (slice.by_all || !slice.way.is_direct()) return take_result(r, s, step);
  bool to_self = false;
  for (ir::Rank member : *slice.members) {
    if (member.value == r) {
      to_self = true;
      continue;
    }
    post({MessageKind::kResult, r, member.value, s, step, 1, slice.result, now_, 0, 0, 0},
         slice.needed);
  }
  pump(r);
  if (to_self) take_result(r, s, step);
}

// Asynchronous: one contribution at a time; the sender alone is answered.
void Engine::apply_next(std::uint32_t r, std::uint32_t s) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  const auto [from, step] = here.queue.front();
  here.queue.erase(here.queue.begin());
  if (!here.queue.empty()) {
    push_job(r, {here.queue.front().second, slice.needed, 0, JobKind::kMerge, s, 0, 0});
  }
  if (from == r) return take_result(r, s, step);
  post({MessageKind::kResult, r, from, s, step, 1, slice.result, now_, 0, 0, 0}, slice.needed);
  pump(r);
}

void Engine::take_result(std::uint32_t r, std::uint32_t s, std::uint32_t step) {
  const SliceTable& slice = tables_.slices[s];
  if (!slice.way.is_direct()) {
    const WayStop& stop = tables_.stop(slice, r);
    for (std::uint32_t to : stop.returns) {
      post({MessageKind::kResult, r, tables_.ways.rank_of(slice.way, to), s, step, 1, slice.result,
            now_, 0, 0, 0},
           slice.needed);
    }
    pump(r);
    if (!stop.installs) return;
  }
  for (std::uint32_t v : slice.variables) {
    ++arrived(r, v, step);
    claim(r, v);
  }
}

// Installs the next version when all of it is there and nobody reads the old one any more.
void Engine::claim(std::uint32_t r, std::uint32_t v) {
  const VariableTable& variable = tables_.variables[v];
  Local& here = local(r, v);
  if (variable.slices.empty() || !here.released || here.announced ||
      arrived(r, v, here.version) != variable.slices.size()) {
    return;
  }
  if (variable.installs_by_norm && !norm_known(r, variable.clip, here.version)) return;
  here.announced = true;
  push_job(r, {here.version, variable.needed, 0, JobKind::kInstall, v, 0, 0});
}

void Engine::publish(std::uint32_t r, std::uint32_t v) {
  Local& here = local(r, v);
  here.announced = false;
  ++here.version;
  claim(r, v);
  wake(r);
}

bool Engine::norm_known(std::uint32_t r, std::uint32_t norm, std::uint32_t step) const {
  return ranks_[r].norms[2 * norm + step % 2] >= tables_.norm_parts[norm] * (step / 2 + 1);
}

bool Engine::norms_known(std::uint32_t r, const std::vector<std::uint32_t>& norms,
                         std::uint32_t step) const {
  return std::all_of(norms.begin(), norms.end(),
                     [&](std::uint32_t norm) { return norm_known(r, norm, step); });
}

void Engine::send_norms(std::uint32_t r, std::uint32_t s, const std::vector<std::uint32_t>& norms,
                        std::uint32_t step) {
  if (tables_.slices[s].owner != r) return;  // all members have the sums; one of them tells
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const bool repeated = std::find(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(i),
                                    norms[i]) != norms.begin() + static_cast<std::ptrdiff_t>(i);
    if (repeated) continue;
    const auto parts = static_cast<std::uint32_t>(std::count(norms.begin(), norms.end(), norms[i]));
    for (std::uint32_t k = 1; k < symmetry_.ranks; ++k) {
      const std::uint32_t to = (r + k) % symmetry_.ranks;
      post({MessageKind::kNorm, r, to, norms[i], step, parts, parts * kNormBytes, now_, 0, 0, 0},
           tables_.slices[s].needed);
    }
    take_norm(r, norms[i], step, parts);
  }
  pump(r);
}

void Engine::take_norm(std::uint32_t r, std::uint32_t norm, std::uint32_t step,
                       std::uint32_t parts) {
  ranks_[r].norms[2 * norm + step % 2] += parts;
  if (!norm_known(r, norm, step)) return;
  for (std::uint32_t s = 0; s < tables_.slices.size(); ++s) {
    const SliceTable& slice = tables_.slices[s];
    const bool combines = slice.owner == r || slice.by_all;
    if (!combines || (slice.clip_norms.empty() && slice.lamb_norms.empty())) continue;
    Owned& here = owned(r, s);
    if (here.waits != 0 && here.step == step) go_on(r, s);
  }
  for (std::uint32_t v = 0; v < tables_.variables.size(); ++v) {
    if (tables_.variables[v].clip == norm) claim(r, v);
  }
  wake(r);
}

// Every computing rank has the same average and adds its part by itself; the first of them tells
// those that only serve.
void Engine::report_whole_norm(std::uint32_t r, std::uint32_t v, std::uint32_t step) {
  const std::uint32_t norm = tables_.variables[v].whole_norm;
  if (norm == kNone) return;
  std::uint32_t first = 0;
  while (!program_.computes(ir::Rank(first))) ++first;
  for (std::uint32_t to = 0; first == r && to < symmetry_.ranks; ++to) {
    if (program_.computes(ir::Rank(to))) continue;
    post({MessageKind::kNorm, r, to, norm, step, 1, kNormBytes, now_, 0, 0, 0}, 0);
  }
  if (first == r) pump(r);
  take_norm(r, norm, step, 1);
}

void Engine::take_ask(std::uint32_t r, std::uint32_t s, std::uint32_t from, std::uint32_t step) {
  const SliceTable& slice = tables_.slices[s];
  Owned& here = owned(r, s);
  if (slice.synchronous && step > here.step + slice.ring - 1) {
    here.asked.emplace_back(from, step);
    return;
  }
  push_job(r, {step, 0, 0, JobKind::kGiveRows, s, from, step});
}

void Engine::take_rows(std::uint32_t r, std::uint32_t s) {
  const std::uint32_t v = tables_.slices[s].variables.front();
  --local(r, v).rows_missing;
  wake(r);
}

}  // namespace autodist::sim
