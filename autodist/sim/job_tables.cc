#include "autodist/sim/job_tables.h"

#include <algorithm>
#include <map>

#include "autodist/base/check.h"
#include "autodist/ir/wire_bytes.h"

namespace autodist::sim {
namespace {

constexpr double kLeastLatency = 1e-9;  // nothing happens at two nodes at one moment

double seconds_for(double bytes, double bytes_per_s) {
  return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

double option(const ir::UpdateRule& rule, const char* name) {
  const auto found = rule.options.find(name);
  return found == rule.options.end() ? 0 : found->second;
}

bool is_compressed(const ir::Slice& slice) {
  return slice.rows == ir::RowTransfer::kNone && slice.compression.codec != ir::Codec::kNone;
}

}  // namespace

int state_values(const ir::UpdateRule& rule) {
  switch (rule.rule) {
    case ir::Rule::kSgd:
      return option(rule, "momentum") == 0 ? 0 : 1;
    case ir::Rule::kAdam:
    case ir::Rule::kAdamW:
      return option(rule, "amsgrad") == 0 ? 2 : 3;
    case ir::Rule::kAdagrad:
    case ir::Rule::kUser:
      return 1;
    case ir::Rule::kRmsProp:
      return 1 + (option(rule, "momentum") > 0 ? 1 : 0) + (option(rule, "centered") != 0 ? 1 : 0);
    case ir::Rule::kAdadelta:
    case ir::Rule::kAdamax:
    case ir::Rule::kNAdam:
    case ir::Rule::kFtrl:
    case ir::Rule::kLamb:
      return 2;
  }
  return 0;
}

// Read gradient and parameter, write the parameter; read and write every value of state.
double update_weight(const ir::UpdateRule& rule) { return (3.0 + 2.0 * state_values(rule)) / 3.0; }

JobTables::JobTables(const ir::Program& program, const cluster::Cluster& cluster,
                     const CostModel& costs) {
  AD_CHECK(costs.device_of_rank.size() == program.ranks.size())
      << costs.device_of_rank.size() << " devices for " << program.ranks.size() << " ranks";
  mixed = !program.slices.empty() && !program.collectives.empty();
  add_nodes(program, cluster, costs);
  add_switches(cluster);
  add_norms(program);
  add_slices(program, costs);
  add_variables(program, costs);
  add_collectives(program, costs);
  add_roles(program, costs);
}

void JobTables::add_nodes(const ir::Program& program, const cluster::Cluster& cluster,
                          const CostModel& costs) {
  std::map<std::string, std::uint32_t> by_address;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const cluster::Node& node = cluster.nodes[i];
    by_address.emplace(node.address, static_cast<std::uint32_t>(i));
    NodeTable table;
    table.bytes_per_s = node.bandwidth_bytes_per_s * costs.engine.goodput;
    if (costs.engine.goodput_bytes_per_s > 0) {
      table.bytes_per_s = std::min(table.bytes_per_s, costs.engine.goodput_bytes_per_s);
    }
    table.latency = std::max(node.latency.value, kLeastLatency);
    table.intra_bytes_per_s = node.intra_node_bytes_per_s;
    nodes.push_back(std::move(table));
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const auto found = by_address.find(program.ranks[r].node);
    AD_CHECK(found != by_address.end()) << "rank " << r << " is on " << program.ranks[r].node;
    node_of_rank.push_back(found->second);
    nodes[found->second].ranks.push_back(static_cast<std::uint32_t>(r));
  }
  for (NodeTable& node : nodes) {
    const auto computing = std::count_if(node.ranks.begin(), node.ranks.end(), [&](auto rank) {
      return program.computes(ir::Rank(rank)) && costs.device(ir::Rank(rank)).on_host;
    });
    node.cores = costs.cores != 0 ? costs.cores : static_cast<std::uint32_t>(computing);
  }
}

// A switch's uplink carries 1/o of the sum of its ports, each way; the topmost one needs none.
void JobTables::add_switches(const cluster::Cluster& cluster) {
  up_.resize(nodes.size());
  down_.resize(nodes.size());
  if (cluster.switches.empty()) return;
  std::map<std::string, std::size_t> switch_of;  // by name of what hangs below it
  std::map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
    by_name[cluster.switches[i].name] = i;
    for (const std::string& name : cluster.switches[i].nodes) switch_of[name] = i;
  }
  std::vector<double> ports(cluster.switches.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    auto above = switch_of.find(cluster.nodes[i].address);
    for (double rate = nodes[i].bytes_per_s; above != switch_of.end();) {
      ports[above->second] += rate;
      rate /= cluster.switches[above->second].oversubscription;
      above = switch_of.find(cluster.switches[above->second].name);
    }
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {  // up, then down
    const double rate = ports[i] / cluster.switches[i].oversubscription;
    uplinks.push_back({rate});
    uplinks.push_back({rate});
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    auto above = switch_of.find(cluster.nodes[i].address);
    while (above != switch_of.end()) {
      up_[i].push_back(static_cast<std::uint32_t>(2 * above->second));
      down_[i].push_back(static_cast<std::uint32_t>(2 * above->second + 1));
      above = switch_of.find(cluster.switches[above->second].name);
    }
  }
}

// Up to the lowest switch that both hang below, and down again.
const std::vector<std::uint32_t>& JobTables::path(std::uint32_t from, std::uint32_t to) const {
  static const std::vector<std::uint32_t> kDirect;
  if (uplinks.empty()) return kDirect;
  if (paths_.empty()) paths_.resize(nodes.size() * nodes.size());
  std::vector<std::uint32_t>& path = paths_[from * nodes.size() + to];
  if (!path.empty()) return path;
  std::size_t shared = 0;  // switches above both
  const auto& a = up_[from];
  const auto& b = up_[to];
  while (shared < a.size() && shared < b.size() &&
         a[a.size() - 1 - shared] == b[b.size() - 1 - shared]) {
    ++shared;
  }
  for (std::size_t i = 0; i + shared < a.size(); ++i) path.push_back(a[i]);
  for (std::size_t i = b.size() - shared; i-- > 0;) path.push_back(down_[to][i]);
  return path;
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
    table.members = &slice.members;
    table.member_count = static_cast<std::uint32_t>(slice.members.size());
    const bool by_rows = slice.rows != ir::RowTransfer::kNone;
    const double whole = by_rows ? static_cast<double>(table.contribution)
                                 : static_cast<double>(ir::bytes_of(slice).value);
    const double contributions =
        slice.synchronous ? static_cast<double>(slice.members.size()) : 1.0;
    table.sum_seconds = seconds_for(whole * contributions, engine.sum_bytes_per_s);
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
    table.update_seconds = seconds_for(bytes * weight, engine.update_bytes_per_s);
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

CollectiveLinks JobTables::links_between(const std::vector<ir::Rank>& members) const {
  CollectiveLinks links;
  links.ranks = static_cast<std::uint32_t>(members.size());
  std::vector<std::uint32_t> used;
  for (ir::Rank member : members) used.push_back(node_of_rank[member.value]);
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  links.nodes = static_cast<std::uint32_t>(used.size());
  links.node_bytes_per_s = nodes[used.front()].bytes_per_s;
  links.intra_bytes_per_s = nodes[used.front()].intra_bytes_per_s;
  for (std::uint32_t node : used) {
    links.node_bytes_per_s = std::min(links.node_bytes_per_s, nodes[node].bytes_per_s);
    links.node_latency = Seconds(std::max(links.node_latency.value, nodes[node].latency));
    links.intra_bytes_per_s = std::min(links.intra_bytes_per_s, nodes[node].intra_bytes_per_s);
  }
  return links;
}

void JobTables::add_collectives(const ir::Program& program, const CostModel& costs) {
  CollectiveLinks links;  // of the members before: most plans have the same everywhere
  for (const ir::Collective& collective : program.collectives) {
    CollectiveTable table;
    for (ir::VariableId variable : collective.variables) {
      table.variables.push_back(variable.value);
      table.bytes += ir::bytes_of(*program.graph, variable).value;
    }
    table.members = &collective.members;
    if (collectives.empty() || collective.members != *collectives.back().members) {
      links = links_between(collective.members);
    }
    const Bytes bytes(table.bytes);
    table.wire_seconds = all_reduce_seconds(costs.collectives, links, bytes).value;
    const bool on_host = costs.device(collective.members.front()).on_host;
    const auto size = static_cast<double>(table.bytes);
    if (on_host) {
      table.copy_seconds = 2 * seconds_for(size, costs.engine.install_bytes_per_s);
      if (links.ranks > 1) table.cpu_seconds = 2 * size * costs.collectives.cpu_s_per_byte;
    }
    collectives.push_back(std::move(table));
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
  // Of slices that simulate() refuses.
  Instruction operator()(const ir::KeepFactors& i) const {
    return {StepKind::kContribute, i.variable.value};
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
    close();
    out.push_back(flat);
  }
  close();
  return out;
}

}  // namespace autodist::sim
