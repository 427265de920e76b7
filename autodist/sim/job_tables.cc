#include "autodist/sim/job_tables.h"

#include <algorithm>
#include <map>

#include "autodist/base/check.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/wire_bytes.h"

namespace autodist::sim {
namespace {

constexpr std::int64_t kGeneratorState = 5056;  // bytes of libtorch's for CPUs

bool is_compressed(const ir::Slice& slice) {
  return slice.rows == ir::RowTransfer::kNone && slice.compression.codec != ir::Codec::kNone;
}

// Every member multiplies what each of them sent.
double multiply_seconds(const ir::Program& program, const ir::Slice& slice,
                        const CostModel& costs) {
  const auto factors =
      ir::factors_of(*program.graph, program.shard(slice.pieces.front().shard).variable);
  AD_CHECK(factors.has_value()) << "a slice of factors whose gradient is no product";
  return multiply_seconds(costs, *program.graph, *factors, slice.members.front()).value;
}

}  // namespace

JobTables::JobTables(const ir::Program& program, const cluster::Cluster& cluster,
                     const CostModel& costs) {
  AD_CHECK(costs.device_of_rank.size() == program.ranks.size())
      << costs.device_of_rank.size() << " devices for " << program.ranks.size() << " ranks";
  mixed = !program.slices.empty() && !program.collectives.empty();
  passes = program.is_placed() ? 1 : static_cast<std::uint32_t>(costs.micro_batches);
  add_nodes(program, cluster, costs);
  add_switches(cluster);
  ways = SliceWays(program, ranks_per_node);
  add_norms(program);
  add_slices(program, costs);
  add_variables(program, costs);
  add_collectives(program, costs);
  add_transfers(program, costs);
  add_roles(program, costs);
}

void JobTables::add_norms(const ir::Program& program) {
  norm_parts.assign(program.graph->clips.size(), 0);
  variables.resize(program.variables.size());
  slices.resize(program.slices.size());
  std::map<std::uint32_t, std::uint32_t> lamb;  // by variable
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    const ir::Slice& slice = program.slices[i];
    for (const ir::Piece& piece : slice.pieces) {
      const ir::VariableId variable = program.shard(piece.shard).variable;
      if (const auto& clip = program.plan(variable).clip) {
        slices[i].clip_norms.push_back(clip->value);
        ++norm_parts[clip->value];
      }
      if (program.graph->variable(variable).update.rule != ir::Rule::kLamb ||
          slice.update_at != ir::UpdateAt::kOwner) {
        continue;
      }
      const auto [norm, is_new] =
          lamb.emplace(variable.value, static_cast<std::uint32_t>(norm_parts.size()));
      if (is_new) norm_parts.push_back(0);
      slices[i].lamb_norms.push_back(norm->second);
      ++norm_parts[norm->second];
    }
  }
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariablePlan& plan = program.variables[i];
    if (plan.clip && plan.slices.empty() && program.graph->variables[i].gradient) {
      variables[i].whole_norm = plan.clip->value;
      ++norm_parts[plan.clip->value];
    }
  }
}

void JobTables::add_slices(const ir::Program& program, const CostModel& costs) {
  const EngineCost& engine = costs.engine;
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    const ir::Slice& slice = program.slices[i];
    SliceTable& table = slices[i];
    const ir::SliceBytes bytes = ir::wire_bytes(program, slice, costs.batch * costs.micro_batches);
    table.owner = slice.owner.value;
    table.needed = slice.needed.value;
    table.contribution = bytes.contribution.value;
    table.result = bytes.result.value;
    table.asked = bytes.asked.value;
    table.fetched = bytes.fetched.value;
    table.ring = slice.staleness + 1;
    table.synchronous = slice.synchronous;
    table.at_owner = slice.update_at == ir::UpdateAt::kOwner;
    table.rows = slice.rows;
    table.by_all = combined_by_all(slice);
    table.way = ways.add(slice);
    table.relays = !table.way.is_direct() && slice.route != ir::Route::kProxies;
    table.members = &slice.members;
    table.member_count = static_cast<std::uint32_t>(slice.members.size());
    const bool by_rows = slice.rows != ir::RowTransfer::kNone;
    const double whole = by_rows ? static_cast<double>(table.contribution)
                                 : static_cast<double>(ir::bytes_of(slice).value);
    const double contributions =
        slice.synchronous ? static_cast<double>(slice.members.size()) : 1.0;
    table.sum_one = slice.sufficient_factors ? multiply_seconds(program, slice, costs)
                                             : seconds_for(whole, engine.sum_bytes_per_s);
    table.sum_seconds = slice.sufficient_factors
                            ? table.sum_one * contributions
                            : seconds_for(whole * contributions, engine.sum_bytes_per_s);
    if (is_compressed(slice)) {
      const double coded = whole * (contributions + (table.at_owner ? 0 : 1));
      table.sum_seconds += seconds_for(coded, engine.encode_bytes_per_s);
    }
    double weight = 0;
    for (const ir::Piece& piece : slice.pieces) {
      const std::uint32_t variable = program.shard(piece.shard).variable.value;
      if (std::find(table.variables.begin(), table.variables.end(), variable) ==
          table.variables.end()) {
        table.variables.push_back(variable);
      }
      weight = std::max(weight, update_weight(program.graph->variables[variable].update));
    }
    if (table.at_owner) {
      table.update_seconds = seconds_for(whole * weight, engine.update_bytes_per_s);
    }
    if (table.variables.size() > 1) table.fused = fused_slices++;
  }
}

void JobTables::add_variables(const ir::Program& program, const CostModel& costs) {
  const EngineCost& engine = costs.engine;
  // Replicas are of one kind as far as the way to their memory goes.
  std::uint32_t computing = 0;
  while (computing + 1 < program.ranks.size() && !program.computes(ir::Rank(computing)))
    ++computing;
  const double staging = costs.device(ir::Rank(computing)).staging_bytes_per_s;
  const double updating = update_bytes_per_s(costs, program);
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::VariablePlan& plan = program.variables[i];
    VariableTable& table = variables[i];
    for (ir::SliceId slice : plan.slices) table.slices.push_back(slice.value);
    if (plan.collective) table.collective = plan.collective->value;
    if (plan.clip) table.clip = plan.clip->value;
    table.staleness = program.staleness(id);
    table.trained = program.graph->variable(id).gradient.has_value();
    table.fetched = program.rows(id) == ir::RowTransfer::kFetch;
    const auto bytes = static_cast<double>(ir::bytes_of(*program.graph, id).value);
    const double weight = update_weight(program.graph->variable(id).update);
    if (table.trained) table.staged = static_cast<std::int64_t>(bytes);
    if (program.travels_as_factors(id)) table.staged = slices[table.slices.front()].contribution;
    table.update_seconds = seconds_for(bytes * weight, updating);
    if (table.slices.empty()) continue;
    table.needed = slices[table.slices.front()].needed;
    for (std::uint32_t slice : table.slices) {
      table.needed = std::min(table.needed, slices[slice].needed);
    }
    const SliceTable& first = slices[table.slices.front()];
    table.installs_by_norm = plan.clip && !first.at_owner;
    double copied = bytes;
    if (first.rows != ir::RowTransfer::kNone) {
      copied = 0;
      double fetched = 0;
      double contributed = 0;
      for (std::uint32_t slice : table.slices) {
        copied += static_cast<double>(slices[slice].result);
        fetched += static_cast<double>(slices[slice].fetched);
        contributed += static_cast<double>(slices[slice].contribution);
      }
      table.rows_seconds = seconds_for(fetched, engine.install_bytes_per_s);
      table.staged = static_cast<std::int64_t>(contributed);
    }
    table.install_seconds =
        first.at_owner ? seconds_for(copied, engine.install_bytes_per_s) : table.update_seconds;
    table.install_seconds += seconds_for(copied, staging);
  }
}

void JobTables::add_transfers(const ir::Program& program, const CostModel& costs) {
  for (const ir::Transfer& transfer : program.transfers) {
    TransferTable table;
    table.from = transfer.from;
    table.to = transfer.to;
    table.bytes = kGeneratorState;
    if (transfer.value) {
      const ir::TensorType& type = program.graph->value(*transfer.value).type;
      table.bytes = static_cast<std::int64_t>(size_of(type.dtype));
      for (const ir::Affine& size : type.sizes) table.bytes *= size.at(costs.batch);
    }
    transfers.push_back(std::move(table));
  }
}

void JobTables::add_roles(const ir::Program& program, const CostModel& costs) {
  role_of_rank.assign(program.ranks.size(), 0);
  for (std::size_t i = 0; i < program.roles.size(); ++i) {
    for (ir::Rank rank : program.roles[i].ranks) {
      role_of_rank[rank.value] = static_cast<std::uint32_t>(i);
    }
    RoleTable role;
    for (const ir::Stream& stream : program.roles[i].streams) {
      auto& to = stream.kind == ir::StreamKind::kCompute ? role.compute : role.collective;
      const std::vector<Instruction> more = flatten(program, stream, costs);
      to.insert(to.end(), more.begin(), more.end());
    }
    roles.push_back(std::move(role));
  }
}

namespace {

struct Flat {
  Instruction operator()(const ir::Gate& i) const { return {StepKind::kGate, i.variable.value}; }
  Instruction operator()(const ir::Fetch& i) const { return {StepKind::kFetch, i.variable.value}; }
  Instruction operator()(const ir::Compute& i) const { return {StepKind::kCompute, i.op.value}; }
  Instruction operator()(const ir::Contribute& i) const {
    return {StepKind::kContribute, i.variable.value};
  }
  Instruction operator()(const ir::Release& i) const {
    return {StepKind::kRelease, i.variable.value};
  }
  Instruction operator()(const ir::AllReduce& i) const {
    return {StepKind::kReduce, i.collective.value};
  }
  Instruction operator()(const ir::Update& i) const {
    return {StepKind::kUpdate, i.variable.value};
  }
  Instruction operator()(const ir::Norm& i) const { return {StepKind::kNorm, i.clip.value}; }
  Instruction operator()(const ir::Barrier& /*i*/) const { return {StepKind::kBarrier, 0}; }
  // References to two values, which its Contribute sends: no time passes.
  Instruction operator()(const ir::KeepFactors& /*i*/) const { return {StepKind::kNothing, 0}; }
  Instruction operator()(const ir::Send& i) const { return {StepKind::kSend, i.transfer.value}; }
  Instruction operator()(const ir::Receive& i) const {
    return {StepKind::kReceive, i.transfer.value};
  }
};

}  // namespace

std::vector<Instruction> JobTables::flatten(const ir::Program& program, const ir::Stream& stream,
                                            const CostModel& costs) {
  std::vector<Instruction> out;
  Segment open;
  open.seconds.assign(costs.devices.size(), 0);
  const auto close = [&] {
    if (open.ops.empty() && open.extra == 0) return;
    out.push_back({StepKind::kCompute, static_cast<std::uint32_t>(segments.size())});
    segments.push_back(open);
    open = {};
    open.seconds.assign(costs.devices.size(), 0);
  };
  for (const ir::Instruction& each : stream.instructions) {
    const Instruction flat = std::visit(Flat{}, each);
    if (flat.kind == StepKind::kNothing) continue;
    // Of the micro-batches in one stream the last one's gradient leaves, with the others in it.
    const auto* contribute = std::get_if<ir::Contribute>(&each);
    const bool leaves = !program.is_placed() || contribute == nullptr ||
                        contribute->micro_batch + 1 == program.micro_batches;
    if (!leaves) continue;
    if (flat.kind == StepKind::kCompute) {
      open.ops.emplace_back(flat.id);
      for (std::size_t d = 0; d < costs.devices.size(); ++d) {
        open.seconds[d] += costs.devices[d].ops[flat.id].value;
      }
      continue;
    }
    if (flat.kind == StepKind::kContribute) {
      for (std::uint32_t slice : variables[flat.id].slices) {
        const ir::Slice& plan = program.slices[slice];
        if (!is_compressed(plan)) continue;
        const auto pieces = static_cast<double>(slices[slice].variables.size());
        open.extra += seconds_for(static_cast<double>(ir::bytes_of(plan).value) / pieces,
                                  costs.engine.encode_bytes_per_s);
      }
    }
    // A value is copied out of its tensor, and into one.
    double copied = 0;
    if (flat.kind == StepKind::kSend || flat.kind == StepKind::kReceive) {
      copied = seconds_for(static_cast<double>(transfers[flat.id].bytes),
                           costs.engine.install_bytes_per_s);
    }
    if (flat.kind == StepKind::kSend) open.extra += copied;
    close();
    out.push_back(flat);
    if (flat.kind == StepKind::kReceive) open.extra += copied;
  }
  close();
  return out;
}

}  // namespace autodist::sim
