// Ops and slices -> streams of instructions. All ranks that compute do the same, and so do all that
// only serve.
//
// Around the graph's ops: `gate` before a variable's first use, `contribute` behind the op that
// completes its gradient, `release` behind the last op that reads or completes. Where no owner
// updates (one rank alone, library collectives) `update` follows; a clip's updates follow its
// `norm`.

#include <algorithm>

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

// What stands before and behind every op.
struct Around {
  std::vector<ir::Instruction> before;
  std::vector<ir::Instruction> behind;
};

bool is_alone(const ir::VariablePlan& plan) { return plan.slices.empty() && !plan.collective; }

// Norms first, each once, then the updates.
void add_updates(const ir::Program& program, const std::vector<ir::VariableId>& variables,
                 std::vector<ir::Instruction>& out) {
  std::vector<ir::ClipId> clips;
  for (ir::VariableId variable : variables) {
    const auto clip = program.plan(variable).clip;
    if (clip && std::find(clips.begin(), clips.end(), *clip) == clips.end()) clips.push_back(*clip);
  }
  for (ir::ClipId clip : clips) out.push_back(ir::Norm{clip});
  for (ir::VariableId variable : variables) out.push_back(ir::Update{variable});
}

ir::Stream compute_stream(const ir::Program& program) {
  const ir::Graph& graph = *program.graph;
  std::vector<Around> around(graph.ops.size());
  std::vector<ir::VariableId> clipped_alone;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    if (!is_trained(graph, id)) continue;
    const ir::Variable& variable = graph.variable(id);
    const ir::OpId complete = *variable.gradient_complete;
    const ir::OpId last = std::max(complete, variable.last_read.value_or(complete));
    if (variable.first_use && !is_alone(program.plan(id))) {
      around[variable.first_use->value].before.push_back(ir::Gate{id});
    }
    around[complete.value].behind.push_back(ir::Contribute{id, *variable.gradient});
    around[last.value].behind.push_back(ir::Release{id});
    if (!is_alone(program.plan(id))) continue;
    if (program.plan(id).clip) {
      clipped_alone.push_back(id);
    } else {
      around[last.value].behind.push_back(ir::Update{id});
    }
  }
  ir::Stream stream;
  for (std::size_t op = 0; op < around.size(); ++op) {
    auto& out = stream.instructions;
    out.insert(out.end(), around[op].before.begin(), around[op].before.end());
    out.push_back(ir::Compute{ir::OpId(op)});
    out.insert(out.end(), around[op].behind.begin(), around[op].behind.end());
  }
  add_updates(program, clipped_alone, stream.instructions);
  return stream;
}

ir::Stream collective_stream(const ir::Program& program) {
  ir::Stream stream;
  stream.kind = ir::StreamKind::kCollective;
  std::vector<ir::VariableId> clipped;
  for (std::size_t i = 0; i < program.collectives.size(); ++i) {
    stream.instructions.push_back(ir::AllReduce{ir::CollectiveId(i)});
    for (ir::VariableId variable : program.collectives[i].variables) {
      if (program.plan(variable).clip) {
        clipped.push_back(variable);
      } else {
        stream.instructions.push_back(ir::Update{variable});
      }
    }
  }
  add_updates(program, clipped, stream.instructions);
  return stream;
}

}  // namespace

void lower(State& state) {
  ir::Program& program = state.program;
  ir::Role computing;
  ir::Role serving;
  for (std::size_t i = 0; i < program.ranks.size(); ++i) {
    (program.ranks[i].replica ? computing : serving).ranks.push_back(ir::Rank(i));
  }
  computing.streams.push_back(compute_stream(program));
  if (!program.collectives.empty()) computing.streams.push_back(collective_stream(program));
  program.roles.push_back(std::move(computing));
  if (!serving.ranks.empty()) program.roles.push_back(std::move(serving));
}

}  // namespace autodist::passes
