#include "autodist/sim/simulator.h"

#include <algorithm>
#include <limits>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/sim/engine.h"
#include "autodist/sim/job_tables.h"
#include "autodist/sim/symmetry.h"

namespace autodist::sim {
namespace {

// The last three of a settled job; else those after the first half.
Seconds period_of(const std::vector<double>& ends, bool settled) {
  const std::size_t last = ends.size() - 1;
  if (settled && last >= 3) return Seconds((ends[last] - ends[last - 3]) / 3);
  const std::size_t from = last / 2;
  if (last == from) return Seconds(ends[last]);
  return Seconds((ends[last] - ends[from]) / static_cast<double>(last - from));
}

// Of a job that was left as hopeless: it has at least three steps, and the first, which has nothing
// to wait for, does not count.
Seconds mean_so_far(const std::vector<double>& ends) {
  return Seconds((ends.back() - ends.front()) / static_cast<double>(ends.size() - 1));
}

std::string name_of(const program::Program& program, const RawRow& row) {
  switch (row.of) {
    case RawRow::Of::kOp:
      return program.graph->ops[row.id].name;
    case RawRow::Of::kVariable:
      return program.graph->variables[row.id].name;
    case RawRow::Of::kSlice:
      return program.shard(program.slices[row.id].pieces.front().shard).name;
    case RawRow::Of::kCollective:
      return "all-reduce " + std::to_string(row.id);
    case RawRow::Of::kSums:
      return "norm of " + program.shard(program.slices[row.id].pieces.front().shard).name;
    case RawRow::Of::kFlag:
      return "finite gradients";
    case RawRow::Of::kTransfer:
      return program::name_of(program.transfers[row.id]);
  }
  return "";
}

// The streams that the executor's recorder gives its rows (exec/effects.cc,
// exec/whole_gradients.cc).
program::StreamKind stream_of(const RawRow& row) {
  switch (row.activity) {
    case program::Activity::kCompute:
    case program::Activity::kGate:
      return program::StreamKind::kCompute;
    case program::Activity::kCollective:
      return program::StreamKind::kCollective;
    case program::Activity::kUpdate:
      return row.of == RawRow::Of::kVariable ? program::StreamKind::kCollective
                                             : program::StreamKind::kTransfer;
    default:
      return program::StreamKind::kTransfer;
  }
}

program::Trace named(const program::Program& program, const std::vector<RawRow>& rows) {
  program::Trace trace;
  trace.origin = program::TraceOrigin::kSimulation;
  trace.graph = program.graph->name;
  for (const RawRow& row : rows) {
    trace.rows.push_back({row.activity, program::Rank(row.rank), stream_of(row), row.step,
                          name_of(program, row), Bytes(row.bytes), Seconds(row.start),
                          Seconds(row.end)});
  }
  std::stable_sort(
      trace.rows.begin(), trace.rows.end(),
      [](const program::TraceRow& a, const program::TraceRow& b) { return a.start < b.start; });
  return trace;
}

// How many steps a rank has done at `time`, parts of one included. REQUIRES: time <= ends.back().
double progress_at(const std::vector<double>& ends, double time) {
  const auto next = std::lower_bound(ends.begin(), ends.end(), time);
  const double from = next == ends.begin() ? 0 : *std::prev(next);
  return static_cast<double>(next - ends.begin()) + (time - from) / (*next - from);
}

// Asynchronous ranks go each at its own pace: the step is what all of them together need for as
// many steps as there are ranks. Counted while all of them still compute, as the last ones have
// links and owners for themselves.
Seconds mean_period(const Engine& engine) {
  double all_done = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& ends : engine.rank_ends()) {
    if (!ends.empty()) all_done = std::min(all_done, ends.back());
  }
  if (all_done == 0) return {};
  const double from = all_done / 2;  // the first steps find everything idle
  double steps = 0;
  int ranks = 0;
  for (const std::vector<double>& ends : engine.rank_ends()) {
    if (ends.empty()) continue;
    steps += progress_at(ends, all_done) - progress_at(ends, from);
    ++ranks;
  }
  return Seconds(ranks * (all_done - from) / steps);
}

void add_uses(const Engine& engine, const cluster::Cluster& cluster, const JobTables& tables,
              const Symmetry& symmetry, Simulation& result) {
  const auto steps = static_cast<double>(result.steps);
  const auto per_step = [&](std::int64_t bytes) { return Bytes(bytes / result.steps); };
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    std::size_t simulated = i;
    if (symmetry.reduces() && !tables.nodes[i].ranks.empty()) {
      simulated = tables.node_of_rank[symmetry.image(tables.nodes[i].ranks.front())];
    }
    const NodeCounters& counters = engine.nodes()[simulated];
    const double all = steps * result.step.value;
    result.nodes.push_back({cluster.nodes[i].address, per_step(counters.sent),
                            per_step(counters.received), all > 0 ? counters.sending / all : 0,
                            all > 0 ? counters.receiving / all : 0,
                            Seconds(counters.stolen / steps)});
  }
  for (std::uint32_t r = 0; r < symmetry.ranks; ++r) {
    const RankCounters& counters = engine.ranks()[symmetry.image(r)];
    result.ranks.push_back({Seconds(counters.computing / steps), Seconds(counters.waiting / steps),
                            Seconds(counters.owner_busy / steps)});
  }
}

// What a ring of `bytes` puts on the links: each member passes on every part but one while they are
// summed, and every part but one when they come back.
void add_ring(const JobTables& tables, const std::vector<program::Rank>& members,
              std::int64_t bytes, Simulation& result) {
  const std::size_t n = members.size();
  const auto part = [&](std::size_t i) {
    return Bytes(ring_part(bytes, static_cast<std::int64_t>(i % n), static_cast<std::int64_t>(n)));
  };
  for (std::size_t place = 0; place < n; ++place) {
    const std::uint32_t node = tables.node_of_rank[members[place].value];
    NodeUse& use = result.nodes[node];
    const double all = tables.nodes[node].bytes_per_s * result.step.value;
    const Bytes twice(2 * bytes);
    if (tables.node_of_rank[members[(place + 1) % n].value] != node) {
      const Bytes out = twice - part(place + 1) - part(place + 2);
      use.sent += out;
      use.sending += static_cast<double>(out.value) / all;
    }
    if (tables.node_of_rank[members[(place + n - 1) % n].value] != node) {
      const Bytes in = twice - part(place) - part(place + 1);
      use.received += in;
      use.receiving += static_cast<double>(in.value) / all;
    }
  }
}

// The engine counts those that it takes apart itself.
void add_rings(const JobTables& tables, Simulation& result) {
  if (tables.mixed) return;
  for (const CollectiveTable& collective : tables.collectives) {
    if (collective.members->size() < 2) continue;
    add_ring(tables, *collective.members, collective.bytes, result);
    if (collective.second_bytes > 0) {
      add_ring(tables, *collective.members, collective.second_bytes, result);
    }
  }
}

void add_waits(const Engine& engine, const program::Program& program, const Symmetry& symmetry,
               Simulation& result) {
  std::uint32_t computing = 0;
  for (std::uint32_t r = 0; r < symmetry.period; ++r) {
    if (program.computes(program::Rank(r))) ++computing;
  }
  for (std::size_t v = 0; v < engine.waits().size(); ++v) {
    if (engine.waits()[v] <= 0) continue;
    result.waits.push_back(
        {ir::VariableId(v), Seconds(engine.waits()[v] / computing / result.steps)});
  }
  std::stable_sort(result.waits.begin(), result.waits.end(),
                   [](const Waited& a, const Waited& b) { return a.seconds > b.seconds; });
}

}  // namespace

Simulation simulate(const program::Program& program, const cluster::Cluster& cluster,
                    const CostModel& costs, const SimulationOptions& options) {
  AD_CHECK(options.least_steps >= 1 && options.most_steps >= options.least_steps)
      << options.least_steps << " to " << options.most_steps << " steps";
  const JobTables tables(program, cluster, costs);
  const Symmetry symmetry = options.symmetry && !program.is_placed()
                                ? find_symmetry(program, costs, tables)
                                : no_symmetry(program);
  SimulationOptions how = options;
  if (!program.in_step()) how.least_steps = options.most_steps;
  if (!program.in_step() || costs.slowness) how.hopeless = Seconds{};
  Engine engine(program, costs, tables, symmetry, how);
  engine.run();

  Simulation result;
  result.bounds = bounds_of(program, cluster, costs, tables);
  result.memory = memory_of(program, costs);
  result.events = engine.events();
  result.simulated_ranks = symmetry.period;
  result.settled = engine.settled();
  result.abandoned = engine.abandoned();
  result.steps = static_cast<std::uint32_t>(engine.step_ends().size());
  if (result.steps == 0) return result;  // nobody computes
  result.first_step = Seconds(engine.step_ends().front());
  if (engine.abandoned()) {
    result.step = mean_so_far(engine.step_ends());
  } else if (program.lag()) {
    result.step = period_of(engine.step_ends(), engine.settled());
  } else {  // queues that grow while it is counted do not last
    result.step = std::max(mean_period(engine), result.bounds.plan);
  }
  add_uses(engine, cluster, tables, symmetry, result);
  add_rings(tables, result);
  add_waits(engine, program, symmetry, result);
  if (options.trace) result.trace = named(program, engine.take_rows());
  return result;
}

program::Program with_barrier(program::Program program) {
  for (program::Role& role : program.roles) {
    for (program::Stream& stream : role.streams) {
      if (stream.kind != program::StreamKind::kCompute) continue;
      stream.instructions.insert(stream.instructions.begin(), program::StepBarrier{});
    }
  }
  return program;
}

}  // namespace autodist::sim
