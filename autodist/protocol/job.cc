#include "autodist/protocol/job.h"

#include <algorithm>
#include <map>

#include "autodist/base/check.h"
#include "autodist/program/loads.h"

namespace autodist::protocol {

std::uint32_t ranks_per_node(const program::Program& program) {
  std::map<std::string, std::vector<std::size_t>> nodes;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    nodes[program.ranks[r].node].push_back(r);
  }
  const std::size_t each = nodes.at(program.ranks.front().node).size();
  for (const auto& [node, ranks] : nodes) {
    const bool side_by_side = ranks.back() - ranks.front() + 1 == ranks.size();
    if (ranks.size() != each || ranks.front() % each != 0 || !side_by_side) return 0;
  }
  return static_cast<std::uint32_t>(each);
}

namespace {

bool adds_on_the_way(const program::Slice& slice) {
  return std::get<program::Dense>(slice.exchange.payload).route != program::Route::kProxies;
}

}  // namespace

Job::Job(const program::Program& program)
    : routes(program, ranks_per_node(program)),
      ranks(static_cast<std::uint32_t>(program.ranks.size())),
      placed_(program.is_placed()) {
  for (const program::Slice& slice : program.slices) {
    Slice table;
    table.owner = slice.owner;
    table.ring = open_steps(slice.exchange);
    table.synchronous = !updates_on_arrival(slice.exchange);
    table.at_owner = makes_parameters(slice.exchange);
    table.by_all = goes_to_all(slice.exchange);
    table.route = routes.add(slice);
    table.relays = !table.route.is_direct() && adds_on_the_way(slice);
    table.asked_for = !keeps_whole_copies(slice.exchange) && table.synchronous && table.ring == 1 &&
                      table.route.is_direct();
    table.member_count = static_cast<std::uint32_t>(slice.members.size());
    table.members = &slice.members;
    for (const program::Piece& piece : slice.pieces) {
      const std::uint32_t variable = program.shard(piece.shard).variable.value;
      const auto known = std::find(table.variables.begin(), table.variables.end(), variable);
      if (known == table.variables.end()) table.variables.push_back(variable);
    }
    slices.push_back(std::move(table));
  }
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    const program::VariablePlan& plan = program.variables[i];
    Variable table;
    table.slices = plan.slices;
    table.clip = plan.clip;
    table.staleness = lag_of(program.exchange(VariableId(i))).value_or(0);
    table.trained = program.graph->variables[i].gradient.has_value();
    table.updates_here = !plan.slices.empty() && !slices[plan.slices.front().value].at_owner;
    variables.push_back(std::move(table));
  }
  while (first_computing.value < ranks && !program.computes(first_computing)) {
    first_computing = Rank(first_computing.value + 1);
  }
  add_norms(program);
}

void Job::add_norms(const program::Program& program) {
  norms.clips = static_cast<std::uint32_t>(program.graph->clips.size());
  norms.parts.assign(norms.clips, 0);
  std::map<VariableId, NormId> lamb;
  const auto add_part = [&](NormId norm, std::vector<NormId>& of_slice) {
    of_slice.push_back(norm);
    ++norms.parts[norm.value];
  };
  for (std::size_t i = 0; i < program.slices.size(); ++i) {
    for (const program::Piece& piece : program.slices[i].pieces) {
      const VariableId variable = program.shard(piece.shard).variable;
      if (const auto& clip = program.plan(variable).clip) {
        add_part(NormId(clip->value), slices[i].clip_norms);
      }
      const bool is_lamb = program.graph->variable(variable).update.rule == ir::Rule::kLamb;
      if (!is_lamb || !slices[i].at_owner) continue;
      const auto [norm, is_new] = lamb.emplace(variable, NormId(norms.parts.size()));
      if (is_new) norms.parts.push_back(0);
      add_part(norm->second, slices[i].lamb_norms);
    }
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Variable& variable = variables[i];
    variable.whole_norm = variable.clip && variable.slices.empty() && variable.trained;
    if (variable.whole_norm) ++norms.parts[variable.clip->value];
  }
  if (loss_scaling_of(program)) {
    norms.flags = NormId(norms.parts.size());
    norms.parts.push_back(program.replica_count());
  }
}

bool Job::is_member(const Slice& slice, Rank rank) const {
  return slice.member_count == ranks ||
         std::binary_search(slice.members->begin(), slice.members->end(), rank);
}

bool Job::holds(const Variable& variable, Rank rank) const {
  if (!placed_ || variable.slices.empty()) return true;
  return is_member(slice(variable.slices.front()), rank);
}

std::uint32_t Job::awaited(const Slice& slice, Rank rank) const {
  if (slice.by_all) return is_member(slice, rank) ? slice.member_count : 0;
  if (!slice.route.is_direct()) return stop(slice, rank).combines;
  return slice.owner == rank ? slice.member_count : 0;
}

bool Job::keeps_own(const Slice& slice, Rank rank) const {
  if (slice.by_all) return true;
  if (slice.route.is_direct()) return slice.owner == rank;
  const std::uint32_t to = stop(slice, rank).contributes;
  return to != kNone && routes.rank_of(slice.route, to) == rank.value;
}

}  // namespace autodist::protocol
