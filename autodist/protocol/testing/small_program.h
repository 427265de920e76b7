// Programs of a few slices, for tests.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/protocol/events.h"

namespace autodist::protocol {

inline constexpr Step kFirst = 4;

struct SmallSlice {
  std::vector<std::uint32_t> variables{0};
  std::uint32_t owner = 0;
  program::Slice rules = {};  // what is not as by default
};

// `members` of the ranks compute; the others only serve. Every slice goes to all members; a
// variable behind those of the slices has none where `one_whole` is true.
inline program::Program small_program(std::uint32_t ranks, std::uint32_t members,
                                      const std::vector<SmallSlice>& slices, bool clipped = false,
                                      ir::Rule rule = ir::Rule::kSgd, bool scaled = false,
                                      bool one_whole = false) {
  program::Program program;
  auto graph = std::make_shared<ir::Graph>();
  std::uint32_t variables = 1;
  for (const SmallSlice& slice : slices) {
    variables = std::max(variables, slice.variables.back() + 1);
  }
  if (one_whole) ++variables;
  for (std::uint32_t v = 0; v < variables; ++v) {
    ir::Variable variable;
    variable.name = "w" + std::to_string(v);
    variable.gradient = ir::ValueId(v);
    variable.update = ir::default_rule(rule);
    graph->variables.push_back(variable);
    program.shards.push_back({ir::VariableId(v), variable.name, 0, 0, 8, 8});
  }
  program.variables.resize(variables);
  if (clipped) {
    graph->clips = {{1.0, {}}};
    for (std::uint32_t v = 0; v < variables; ++v) {
      graph->clips[0].variables.emplace_back(v);
      program.variables[v].clip = program::ClipId(0);
    }
  }
  program.graph = graph;
  std::vector<Rank> all;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    program.ranks.push_back({"10.0.0." + std::to_string(r / 2 + 1), "", std::nullopt});
    if (r < members) program.ranks.back().replica = r;
    if (r < members) all.emplace_back(r);
  }
  for (std::size_t i = 0; i < slices.size(); ++i) {
    program::Slice slice = slices[i].rules;
    slice.owner = Rank(slices[i].owner);
    slice.members = all;
    for (const std::uint32_t variable : slices[i].variables) {
      slice.pieces.push_back({program::ShardId(variable), 0, 8});
      program.variables[variable].slices.emplace_back(i);
    }
    program.slices.push_back(slice);
  }
  program::Stream stream{program::StreamKind::kCompute, {}};
  if (scaled) stream.instructions.push_back(program::AgreeFinite{});
  program.roles = {{all, {stream}}};
  return program;
}

inline SmallSlice owned_by(std::uint32_t owner, program::Slice rules = {},
                           std::vector<std::uint32_t> variables = {0}) {
  return {std::move(variables), owner, std::move(rules)};
}
inline program::Slice every_rank() {
  program::Slice slice;
  slice.exchange.order = program::Versions{0, program::UpdateAt::kEveryRank};
  return slice;
}
inline program::Slice exchanged(const program::Payload& payload, const program::Order& order = {}) {
  program::Slice slice;
  slice.exchange = {payload, order};
  return slice;
}
inline program::Slice by_route(program::Route route) {
  program::Slice slice = every_rank();
  slice.exchange.payload = program::Dense{route};
  return slice;
}

}  // namespace autodist::protocol
