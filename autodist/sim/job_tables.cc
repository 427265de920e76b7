#include "autodist/sim/job_tables.h"

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/base/overloaded.h"
#include "autodist/ir/factors.h"
#include "autodist/program/slice_size.h"

namespace autodist::sim {
namespace {

constexpr std::int64_t kGeneratorState = 5056;  // bytes of libtorch's for CPUs

// Every member multiplies what each of them sent.
double multiply_seconds(const program::Program& program, const program::Slice& slice,
                        const CostModel& costs) {
  const auto factors =
      ir::factors_of(*program.graph, program.shard(slice.pieces.front().shard).variable);
  AD_CHECK(factors.has_value()) << "a slice of factors whose gradient is no product";
  return multiply_seconds(costs, *program.graph, *factors, slice.members.front()).value;
}

}  // namespace

JobTables::JobTables(const program::Program& program, const cluster::Cluster& cluster,
                     const CostModel& costs)
    : job(program), slices(program.slices.size()), variables(program.variables.size()) {
  AD_CHECK(costs.device_of_rank.size() == program.ranks.size())
      << costs.device_of_rank.size() << " devices for " << program.ranks.size() << " ranks";
  mixed = !program.slices.empty() && !program.collectives.empty();
  passes = program.is_placed() ? 1 : static_cast<std::uint32_t>(costs.micro_batches);
  add_nodes(program, cluster, costs);
  add_slices(program, costs);
  add_variables(program, costs);
  add_collectives(program, costs);
  add_transfers(program, costs);
  add_roles(program, costs);
}

void JobTables::add_slices(const program::Program& program, const CostModel& costs) {
  const EngineCost& engine = costs.engine;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    const program::Slice& slice = program.slices[i];
    SliceTable& table = slices[i];
    const program::Loads loads = loads_of(program, slice, costs.batch * costs.micro_batches);
    const bool multiplies = sums_products(slice.exchange);
    table.needed = slice.needed.value;
    table.contribution = loads.contribution.value;
    table.result = loads.result.value;
    table.asked = loads.asked.value;
    table.fetched = loads.fetched.value;
    table.encoded = static_cast<double>(loads.decoded.value);
    table.sums_all = sums_all_elements(slice.exchange);
    table.merges = static_cast<double>(slice.members.size()) / static_cast<double>(loads.together);
    const auto whole = static_cast<double>(loads.summed.value);
    const auto contributions = static_cast<double>(loads.together);
    table.sum_one = multiplies ? multiply_seconds(program, slice, costs)
                               : seconds_for(whole, engine.sum_bytes_per_s);
    table.sum_seconds = multiplies ? table.sum_one * contributions
                                   : seconds_for(whole * contributions, engine.sum_bytes_per_s);
    const double coded = table.encoded * contributions + static_cast<double>(loads.encoded.value);
    if (coded > 0) table.sum_seconds += seconds_for(coded, engine.encode_bytes_per_s);
    double weight = 0;
    for (const program::Piece& piece : slice.pieces) {
      const ir::VariableId variable = program.shard(piece.shard).variable;
      weight = std::max(weight, update_weight(program.graph->variable(variable).update));
    }
    table.update_seconds =
        seconds_for(static_cast<double>(loads.updated.value) * weight, engine.update_bytes_per_s);
  }
}

void JobTables::add_variables(const program::Program& program, const CostModel& costs) {
  const EngineCost& engine = costs.engine;
  const double staging = staging_bytes_per_s(costs, program);
  const double updating = update_bytes_per_s(costs, program);
  const auto of_slice = [&](program::SliceId id) {
    const SliceTable& table = slices[id.value];
    program::Loads loads;
    loads.contribution = Bytes{table.contribution};
    loads.result = Bytes{table.result};
    loads.fetched = Bytes{table.fetched};
    return loads;
  };
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariableId id(i);
    const program::VariablePlan& plan = program.variables[i];
    VariableTable& table = variables[i];
    if (plan.collective) table.collective = plan.collective->value;
    table.fetched = !keeps_whole_copies(program.exchange(id));
    const program::VariableLoads loads = loads_of(program, id, of_slice);
    const double weight = update_weight(program.graph->variable(id).update);
    if (job.variables[i].trained) {
      table.gradient = loads.gradient.value;
      table.staged = loads.staged.value;
    }
    table.bytes = ir::bytes_of(*program.graph, id).value;
    table.update_seconds = seconds_for(static_cast<double>(table.bytes) * weight, updating);
    if (plan.slices.empty()) continue;
    table.needed = slices[plan.slices.front().value].needed;
    for (program::SliceId slice : plan.slices) {
      table.needed = std::min(table.needed, slices[slice.value].needed);
    }
    const auto copied = static_cast<double>(loads.installed.value);
    table.rows_seconds =
        seconds_for(static_cast<double>(loads.fetched.value), engine.install_bytes_per_s);
    table.install_seconds = job.variables[i].updates_here
                                ? table.update_seconds
                                : seconds_for(copied, engine.install_bytes_per_s);
    table.install_seconds += seconds_for(copied, staging);
  }
}

void JobTables::add_transfers(const program::Program& program, const CostModel& costs) {
  for (const program::StageTransfer& transfer : program.transfers) {
    TransferTable table;
    table.from = transfer.from;
    table.to = transfer.to;
    table.bytes = kGeneratorState;
    if (transfer.value) {
      const ir::TensorType& type = program.graph->value(*transfer.value).type;
      table.bytes =
          element_count(type, costs.batch) * static_cast<std::int64_t>(size_of(type.dtype));
    }
    transfers.push_back(std::move(table));
  }
}

void JobTables::add_roles(const program::Program& program, const CostModel& costs) {
  role_of_rank.assign(program.ranks.size(), 0);
  for (std::size_t i = 0; i < program.roles.size(); ++i) {
    for (program::Rank rank : program.roles[i].ranks) {
      role_of_rank[rank.value] = static_cast<std::uint32_t>(i);
    }
    RoleTable role;
    for (const program::Stream& stream : program.roles[i].streams) {
      auto& to = stream.kind == program::StreamKind::kCompute ? role.compute : role.collective;
      const std::vector<FlatInstruction> more = flatten(program, stream, costs);
      to.insert(to.end(), more.begin(), more.end());
    }
    roles.push_back(std::move(role));
  }
}

namespace {

FlatInstruction flat(FlatKind kind, std::uint32_t id = 0) { return {kind, id}; }

const Overloaded kFlat{
    [](const program::Gate& i) { return flat(FlatKind::kGate, i.variable.value); },
    [](const program::Fetch& i) { return flat(FlatKind::kFetch, i.variable.value); },
    [](const program::Compute& i) { return flat(FlatKind::kCompute, i.op.value); },
    [](const program::Contribute& i) { return flat(FlatKind::kContribute, i.variable.value); },
    [](const program::Release& i) { return flat(FlatKind::kRelease, i.variable.value); },
    [](const program::AllReduce& i) { return flat(FlatKind::kReduce, i.collective.value); },
    [](const program::Update& i) { return flat(FlatKind::kUpdate, i.variable.value); },
    [](const program::Norm& i) { return flat(FlatKind::kNorm, i.clip.value); },
    [](const program::AgreeFinite&) { return flat(FlatKind::kAgree); },
    [](const program::StepBarrier&) { return flat(FlatKind::kBarrier); },
    // References to two values, which its Contribute sends: no time passes.
    [](const program::KeepFactors&) { return flat(FlatKind::kNothing); },
    [](const program::Send& i) { return flat(FlatKind::kSend, i.transfer.value); },
    [](const program::Receive& i) { return flat(FlatKind::kReceive, i.transfer.value); },
};

}  // namespace

std::vector<FlatInstruction> JobTables::flatten(const program::Program& program,
                                                const program::Stream& stream,
                                                const CostModel& costs) {
  std::vector<FlatInstruction> out;
  const std::vector<double> nothing(costs.devices.size(), 0);
  Segment open{{}, nothing, nothing};
  const auto close = [&] {
    if (open.ops.empty() && open.extra == nothing) return;
    out.push_back({FlatKind::kCompute, static_cast<std::uint32_t>(segments.size())});
    segments.push_back(std::exchange(open, {{}, nothing, nothing}));
  };
  const auto add_extra = [&](double seconds, bool devices_do_it = false) {
    for (std::size_t d = 0; d < costs.devices.size(); ++d) {
      if (!devices_do_it || costs.devices[d].on_host) open.extra[d] += seconds;
    }
  };
  for (const program::Instruction& each : stream.instructions) {
    const FlatInstruction flat = std::visit(kFlat, each);
    if (flat.kind == FlatKind::kNothing) continue;
    // Of the micro-batches in one stream the last one's gradient leaves, with the others in it.
    const auto* contribute = std::get_if<program::Contribute>(&each);
    const bool leaves = !program.is_placed() || contribute == nullptr ||
                        contribute->micro_batch + 1 == program.micro_batches;
    if (!leaves) continue;
    if (flat.kind == FlatKind::kCompute) {
      open.ops.emplace_back(flat.id);
      for (std::size_t d = 0; d < costs.devices.size(); ++d) {
        open.seconds[d] += costs.devices[d].ops[flat.id].value;
      }
      continue;
    }
    if (flat.kind == FlatKind::kContribute) {
      for (const program::SliceId slice : job.variables[flat.id].slices) {
        const auto pieces = static_cast<double>(job.slice(slice).variables.size());
        add_extra(
            seconds_for(slices[slice.value].encoded / pieces, costs.engine.encode_bytes_per_s),
            is_cast(program.slice(slice).exchange, program.slice(slice).dtype));
      }
    }
    // A value is copied out of its tensor, and into one.
    double copied = 0;
    if (flat.kind == FlatKind::kSend || flat.kind == FlatKind::kReceive) {
      copied = seconds_for(static_cast<double>(transfers[flat.id].bytes),
                           costs.engine.install_bytes_per_s);
    }
    if (flat.kind == FlatKind::kSend) add_extra(copied);
    close();
    out.push_back(flat);
    if (flat.kind == FlatKind::kReceive) add_extra(copied);
  }
  close();
  return out;
}

}  // namespace autodist::sim
