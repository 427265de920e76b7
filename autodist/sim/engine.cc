#include "autodist/sim/engine.h"

#include "autodist/base/check.h"

namespace autodist::sim {
namespace {

constexpr int kCountBits = 40;

}  // namespace

Engine::Engine(const program::Program& program, const CostModel& costs, const JobTables& tables,
               const Symmetry& symmetry, const SimulationOptions& options)
    : program_(program),
      costs_(costs),
      tables_(tables),
      symmetry_(symmetry),
      options_(options),
      counts_(tables.nodes.size()),
      ranks_(symmetry.period),
      ends_(symmetry.period),
      cards_(tables.nodes.size()),
      inside_(tables.nodes.size()),
      uplink_free_(tables.uplinks.rates().size()),
      busy_(tables.nodes.size()),
      joined_(tables.collectives.size()),
      target_(options.least_steps),
      rank_ends_(symmetry.period),
      rank_counters_(symmetry.period),
      node_counters_(tables.nodes.size()),
      waits_(tables.variables.size()) {
  protocols_.reserve(symmetry.period);
  for (std::uint32_t r = 0; r < symmetry.period; ++r) {
    Rank& rank = ranks_[r];
    const RoleTable& role = tables.roles[tables.role_of_rank[r]];
    rank.compute.instructions = &role.compute;
    rank.collective.instructions = &role.collective;
    rank.contributed.assign(tables.variables.size(), 0);
    rank.values.assign(tables.transfers.size(), 0);
    protocols_.emplace_back(tables.job, program::Rank(r), 0);
    nics_.emplace_back(r, symmetry.ranks, costs.engine.window_of(program),
                       costs.engine.nic_budget_of(program));
    if (!role.compute.empty()) ++computing_ranks_;
  }
}

std::uint64_t Engine::distance(std::uint32_t self, std::uint32_t other) const {
  const bool reduces = symmetry_.reduces();
  const auto node = [&](std::uint32_t rank) {
    return reduces ? rank / symmetry_.ranks_per_node : node_of(rank);
  };
  const auto nodes = reduces ? symmetry_.ranks / symmetry_.ranks_per_node
                             : static_cast<std::uint32_t>(tables_.nodes.size());
  const std::uint32_t a = node(self);
  const std::uint32_t b = node(other);
  return b >= a ? b - a : b + nodes - a;
}

void Engine::schedule(double time, EventKind kind, std::uint32_t rank, std::uint32_t cause,
                      std::uint64_t argument) {
  std::uint64_t& count = counts_[node_of(symmetry_.image(cause))];
  const std::uint64_t far = cause == rank ? 0 : distance(rank, cause);
  queue_.push({time, (far << kCountBits) | count++, kind, symmetry_.image(rank), argument});
}

void Engine::run() {
  for (std::uint32_t r = 0; r < symmetry_.period; ++r) {
    advance(r);
    advance_collective(r);
  }
  while (!queue_.empty() && !abandoned_) {
    const Event event = queue_.pop();
    now_ = event.time;
    ++events_;
    dispatch(event);
  }
  if (abandoned_) return;
  for (std::uint32_t r = 0; r < symmetry_.period; ++r) {
    const Stream& stream = ranks_[r].compute;
    AD_CHECK(stream.instructions->empty() || stream.phase == Phase::kParked)
        << "rank " << r << " waits for ever at step " << stream.step << ", instruction "
        << stream.at << " on " << (*stream.instructions)[stream.at].id;
  }
}

void Engine::dispatch(const Event& event) {
  switch (event.kind) {
    case EventKind::kComputed:
      return computed(event);
    case EventKind::kStreamed:
      return streamed(event);
    case EventKind::kJobDone:
      return job_done(event);
    case EventKind::kStaged:
      return post_contributions(event.place, static_cast<std::uint32_t>(event.argument >> 32),
                                static_cast<std::uint32_t>(event.argument));
    case EventKind::kHop:
      return hop(event);
    case EventKind::kHead:
      return head(event);
    case EventKind::kDelivered:
      return delivered(event);
    case EventKind::kAcknowledged:
      return acknowledged(event);
    case EventKind::kReduced:
      return reduced(event);
    case EventKind::kResumed:
      return resume(event.place);
  }
}

}  // namespace autodist::sim
