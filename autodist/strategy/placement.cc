#include <algorithm>
#include <map>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/strategy/strategy.h"

namespace autodist::strategy {

bool operator==(const Placement::Scope& a, const Placement::Scope& b) {
  return std::tie(a.name, a.stages) == std::tie(b.name, b.stages);
}
bool operator==(const Placement& a, const Placement& b) {
  return std::tie(a.devices, a.stages, a.scopes) == std::tie(b.devices, b.stages, b.scopes);
}

std::vector<Placement::Scope> scopes_of(const ir::Graph& graph,
                                        const std::vector<std::uint32_t>& stage_of) {
  AD_CHECK(stage_of.size() == graph.ops.size())
      << stage_of.size() << " stages for " << graph.ops.size() << " ops";
  std::vector<Placement::Scope> scopes(graph.scopes.size());
  for (std::size_t i = 0; i < scopes.size(); ++i) scopes[i].name = graph.scopes[i];
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    scopes[graph.ops[i].scope.value].stages.push_back(stage_of[i]);
  }
  std::erase_if(scopes, [](const Placement::Scope& scope) { return scope.stages.empty(); });
  return scopes;
}

std::vector<std::uint32_t> stages_of_ops(const Placement& placement, const ir::Graph& graph,
                                         const std::string& where) {
  std::map<std::string, const Placement::Scope*> scopes;
  std::size_t placed = 0;
  for (const Placement::Scope& scope : placement.scopes) {
    if (!scopes.emplace(scope.name, &scope).second) {
      fail(ErrorCode::kUsage, "{}: placement: the module '{}' stands twice. Keep one.", where,
           scope.name);
    }
    placed += scope.stages.size();
  }
  std::map<std::string, std::size_t> next;  // op of each module
  std::vector<std::uint32_t> stage_of;
  for (const ir::Op& op : graph.ops) {
    const std::string& module = graph.scopes[op.scope.value];
    const auto found = scopes.find(module);
    const std::size_t index = next[module]++;
    if (found == scopes.end() || index >= found->second->stages.size()) {
      fail(ErrorCode::kUsage,
           "{}: placement: op {} ({}) of module '{}' is not placed. Is it another graph's?", where,
           index, op.name, module);
    }
    stage_of.push_back(found->second->stages[index]);
    if (stage_of.back() >= placement.stages) {
      fail(ErrorCode::kUsage, "{}: placement: op {} ({}) of module '{}' is in stage {}, of {}",
           where, index, op.name, module, stage_of.back(), placement.stages);
    }
  }
  if (placed != graph.ops.size()) {
    fail(ErrorCode::kUsage, "{}: placement: {} ops, graph '{}' has {}. Is it another graph's?",
         where, placed, graph.name, graph.ops.size());
  }
  return stage_of;
}

}  // namespace autodist::strategy
