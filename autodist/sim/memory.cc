#include "autodist/sim/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "autodist/ir/liveness.h"
#include "autodist/program/slice_size.h"
#include "autodist/sim/job_tables.h"

namespace autodist::sim {
namespace {

// PyTorch's allocator cuts up and reuses the blocks that it holds, and parts of them fit no tensor:
// of the order of a twentieth of the tensors' bytes, where every step asks for the same sizes.
constexpr std::int64_t kTensorsPerUnusable = 20;

// What every rank that computes has, whatever it owns.
struct Common {
  Bytes parameters;
  Bytes gradients;
  Bytes activations;  // of a stage
  Bytes optimizer;    // of variables that every rank updates
  Bytes staging;      // results that wait for their release
  Bytes flat;         // the largest collective's buffers, of whole gradients
  Bytes products;     // and of PowerSGD's, which computes on the host
  Bytes factors;      // that it keeps from step to step, and what it owes
};

Bytes gradient_of(const program::Program& program, ir::VariableId id, const CostModel& costs) {
  return loads_of(program, id, costs.batch * costs.micro_batches).gradient;
}

// Of results that an op makes, by stage: whose activations they are.
std::vector<double> results_by_stage(const program::Program& program, std::int64_t batch) {
  std::vector<double> bytes(program.stages);
  for (const program::Role& role : program.roles) {
    if (role.ranks.empty() || !program.computes(role.ranks.front())) continue;
    double& own = bytes[program.stage(role.ranks.front())];
    for (const program::Instruction& each : role.streams.front().instructions) {
      const auto* compute = std::get_if<program::Compute>(&each);
      if (compute == nullptr || compute->micro_batch > 0) continue;
      ir::for_each_result(program.graph->op(compute->op), [&](ir::ValueId value) {
        const ir::StorageId storage = program.graph->value(value).storage;
        own += static_cast<double>(program.graph->storages[storage.value].bytes.at(batch));
      });
    }
  }
  return bytes;
}

Bytes activations_of(const ir::Graph& graph, std::int64_t batch, const CostModel& costs,
                     bool as_captured) {
  if (is_16_bit(costs.precision)) return Bytes(ir::activation_bytes_under_autocast(graph, batch));
  return Bytes(as_captured ? ir::activation_bytes_as_captured(graph, batch)
                           : ir::activation_bytes(graph, batch));
}

Common common_of(const program::Program& program, const CostModel& costs) {
  const ir::Graph& graph = *program.graph;
  Common common;
  for (const ir::Storage& storage : graph.storages) {
    if (storage.kind == ir::StorageKind::kVariable || storage.kind == ir::StorageKind::kBuffer ||
        storage.kind == ir::StorageKind::kConstant) {
      common.parameters += Bytes(storage.bytes.at(costs.batch));
    }
  }
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    if (!graph.variable(id).gradient) continue;
    const Bytes bytes = ir::bytes_of(graph, id);
    const Bytes gradient = gradient_of(program, id, costs);
    common.gradients += gradient;
    const auto& slices = program.plan(id).slices;
    const bool here = slices.empty() || !makes_parameters(program.slice(slices.front()).exchange);
    if (here) common.optimizer += bytes * state_values(graph.variable(id).update);
    if (!slices.empty()) common.staging += gradient;
  }
  for (const program::Collective& collective : program.collectives) {
    const auto element = static_cast<std::int64_t>(size_of(collective.dtype));
    const program::LibraryLoads loads = loads_of(graph, collective);
    // Of factored gradients the gradient and what is owed, added up.
    const Bytes bytes((loads.first + loads.second + loads.factored) * element);
    common.factors += Bytes(loads.kept * element);
    Bytes& buffers = loads.factored == 0 ? common.flat : common.products;
    buffers = std::max(buffers, bytes);
  }
  return common;
}

// Of a placed graph: every process has all parameters, and the rest of its stage alone. Activations
// are those of all micro-batches, whose backward passes come behind the last forward one.
std::vector<Common> stages_of(const program::Program& program, const CostModel& costs,
                              const Common& whole) {
  const std::vector<double> results = results_by_stage(program, costs.batch);
  const double all = std::max(1.0, std::accumulate(results.begin(), results.end(), 0.0));
  const Bytes activations = activations_of(*program.graph, costs.batch, costs, false);
  std::vector<Common> stages(program.stages);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    stages[stage].parameters = whole.parameters;
    const double share = results[stage] / all * static_cast<double>(costs.micro_batches);
    stages[stage].activations =
        Bytes(static_cast<std::int64_t>(static_cast<double>(activations.value) * share));
  }
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const ir::VariableId id(i);
    const auto& slices = program.plan(id).slices;
    if (!program.graph->variable(id).gradient || slices.empty()) continue;
    Common& stage = stages[program.stage(program.slice(slices.front()).owner)];
    stage.gradients += gradient_of(program, id, costs);
    stage.staging += gradient_of(program, id, costs);
  }
  return stages;
}

}  // namespace

std::vector<MemoryUse> memory_of(const program::Program& program, const CostModel& costs) {
  const Common everywhere = common_of(program, costs);
  std::vector<Common> stages;
  if (program.is_placed()) stages = stages_of(program, costs, everywhere);
  std::map<std::pair<std::int64_t, bool>, Bytes> known_activations;
  const auto activations_at = [&](program::Rank rank) {
    const std::int64_t batch = costs.batch_of(rank);
    const bool as_captured = costs.device(rank).as_captured;
    const auto [known, is_new] = known_activations.try_emplace({batch, as_captured});
    if (is_new) known->second = activations_of(*program.graph, batch, costs, as_captured);
    return known->second;
  };
  std::vector<MemoryUse> uses(program.ranks.size());
  const Bytes windows = std::min(
      costs.engine.nic_budget_of(program),
      costs.engine.window_of(program) * static_cast<std::int64_t>(program.ranks.size() - 1));
  for (std::size_t r = 0; r < uses.size(); ++r) {
    const program::Rank rank(r);
    MemoryUse& use = uses[r];
    use.capacity = costs.device(rank).memory;
    use.on_device = !costs.device(rank).on_host;
    use.communication = windows;
    if (!program.computes(rank)) continue;
    const Common& common = stages.empty() ? everywhere : stages[program.stage(rank)];
    use.parameters = common.parameters;
    use.gradients = common.gradients;
    use.activations = program.is_placed() ? common.activations : activations_at(rank);
    use.optimizer = common.optimizer;
    use.communication += common.staging + common.products + common.factors;
    (use.on_device ? use.gradients : use.communication) += common.flat;
    if (!use.on_device) continue;
    const Bytes tensors = use.device();
    use.overhead = costs.device(rank).context + Bytes(tensors.value / kTensorsPerUnusable);
  }
  protocol::RouteTables routes(program, 0);
  for (const program::Slice& slice : program.slices) {
    const Bytes bytes = program::bytes_of(slice);
    const auto steps = static_cast<std::int64_t>(open_steps(slice.exchange));
    const auto waiting = static_cast<std::int64_t>(slice.members.size() - 1) * steps;
    const Bytes contribution =
        loads_of(program, slice, costs.batch * costs.micro_batches).contribution;
    const protocol::TurnedRoute route = routes.add(slice);
    if (!route.is_direct()) {
      for (std::uint32_t r = 0; r < uses.size(); ++r) {
        const std::int64_t meets = routes.at(route, r).combines;
        uses[r].communication += contribution * std::max<std::int64_t>(0, meets - 1) * steps;
        if (meets > 0 && r != slice.owner.value) uses[r].communication += bytes;  // their mean
      }
    }
    const std::vector<program::Rank> owners =
        goes_to_all(slice.exchange) ? slice.members : std::vector{slice.owner};
    for (program::Rank owner : owners) {
      MemoryUse& use = uses[owner.value];
      if (route.is_direct()) use.communication += contribution * waiting;
      if (!makes_parameters(slice.exchange)) continue;
      use.communication += bytes;  // the master copy
      int states = 0;
      for (const program::Piece& piece : slice.pieces) {
        const ir::VariableId variable = program.shard(piece.shard).variable;
        states = std::max(states, state_values(program.graph->variable(variable).update));
      }
      const bool in_host = use.on_device;  // the owner's work is the host's
      (in_host ? use.communication : use.optimizer) += bytes * states;
    }
  }
  return uses;
}

bool fits(const std::vector<MemoryUse>& uses) {
  return std::all_of(uses.begin(), uses.end(), [](const MemoryUse& use) { return use.fits(); });
}

std::size_t fullest_rank(const std::vector<MemoryUse>& uses) {
  const auto holds_less = [](const MemoryUse& a, const MemoryUse& b) {
    return a.device() < b.device();
  };
  const auto fullest = std::max_element(uses.begin(), uses.end(), holds_less);
  return static_cast<std::size_t>(fullest - uses.begin());
}

Bytes peak_bytes(const std::vector<MemoryUse>& uses) {
  return uses.empty() ? Bytes{} : uses[fullest_rank(uses)].device();
}

Bytes missing_bytes(const std::vector<MemoryUse>& uses) {
  Bytes most;
  for (const MemoryUse& use : uses) most = std::max(most, use.missing());
  return most;
}

Bytes room_for_tensors(Bytes capacity, Bytes context) {
  const std::int64_t left = std::max<std::int64_t>(0, (capacity - context).value);
  return Bytes(left / (kTensorsPerUnusable + 1) * kTensorsPerUnusable);
}

}  // namespace autodist::sim
