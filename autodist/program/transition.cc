#include "autodist/program/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "autodist/base/check.h"
#include "autodist/base/error.h"
#include "autodist/base/sort_unique.h"
#include "autodist/ir/graph.h"

namespace autodist::program {
namespace {

// Elements in a row that the same ranks have.
struct Interval {
  Stretch stretch;
  const std::vector<Rank>* ranks = nullptr;  // of a Holding, which outlives it
};
using Intervals = std::map<ir::VariableId, std::vector<Interval>>;  // ascending, none overlaps

Intervals intervals_of(const std::vector<Holding>& all) {
  Intervals intervals;
  for (const Holding& held : all) {
    for (const Stretch& each : held.stretches) {
      intervals[held.variable].push_back({each, &held.ranks});
    }
  }
  for (auto& [variable, list] : intervals) {
    std::sort(list.begin(), list.end(), [](const Interval& a, const Interval& b) {
      return a.stretch.begin < b.stretch.begin;
    });
  }
  return intervals;
}

void append(std::vector<Stretch>& stretches, const Stretch& next) {
  if (!stretches.empty() && stretches.back().end == next.begin) {
    stretches.back().end = next.end;
  } else {
    stretches.push_back(next);
  }
}

Rank giver(const Program& program, const std::vector<Rank>& ranks, Rank to) {
  for (const Rank each : ranks) {
    if (program.ranks[each.value].node == program.ranks[to.value].node) return each;
  }
  return ranks[to.value % ranks.size()];
}

using Moves = std::map<std::pair<Rank, Rank>, Move>;  // of one state and variable, by from and to

void add_moves(const Program& program, const Stretch& stretch, const std::vector<Rank>& there,
               const std::vector<Rank>& needed, const Move& like, Moves& moves) {
  for (const Rank to : needed) {
    if (std::binary_search(there.begin(), there.end(), to)) continue;
    const Rank from = giver(program, there, to);
    Move& move = moves.try_emplace({from, to}, like).first->second;
    move.from = from;
    move.to = to;
    append(move.stretches, stretch);
  }
}

// What `needed` has and `held` has not at the same ranks. What no rank holds begins anew.
void add_moves(const Program& program, State state, const std::vector<Holding>& held,
               const std::vector<Holding>& needed, std::vector<Move>& all) {
  const Intervals there = intervals_of(held);
  for (const auto& [variable, wanted] : intervals_of(needed)) {
    const auto found = there.find(variable);
    if (found == there.end()) continue;
    Moves moves;
    auto next = found->second.begin();
    for (const Interval& want : wanted) {
      while (next != found->second.end() && next->stretch.end <= want.stretch.begin) ++next;
      for (auto each = next; each != found->second.end() && each->stretch.begin < want.stretch.end;
           ++each) {
        const Stretch common{std::max(each->stretch.begin, want.stretch.begin),
                             std::min(each->stretch.end, want.stretch.end)};
        add_moves(program, common, *each->ranks, *want.ranks, {state, variable, {}, {}, {}}, moves);
      }
    }
    for (auto& [between, move] : moves) all.push_back(std::move(move));
  }
}

// By variable: when the step that follows first uses it.
std::vector<Seconds> first_uses(const Program& program) {
  std::vector<Seconds> needed(program.variables.size());
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::vector<SliceId>& slices = program.variables[i].slices;
    if (slices.empty()) continue;
    needed[i] = program.slice(slices.front()).needed;
    for (const SliceId each : slices) needed[i] = std::min(needed[i], program.slice(each).needed);
  }
  return needed;
}

std::vector<ir::VariableId> variables_with(const Program& program, State state) {
  std::vector<ir::VariableId> variables;
  for (const Holding& each : held_in(program, state)) variables.push_back(each.variable);
  sort_unique(variables);
  return variables;
}

// Variables of which `from` owes something, of gradients or of averages, that `to` does not.
std::vector<ir::VariableId> forgotten_by(const Program& from, const Program& to) {
  std::set<ir::VariableId> forgotten;
  for (const State state : {State::kOwed, State::kOwedAverage}) {
    const std::vector<ir::VariableId> still = variables_with(to, state);
    for (const ir::VariableId each : variables_with(from, state)) {
      if (!std::binary_search(still.begin(), still.end(), each)) forgotten.insert(each);
    }
  }
  return {forgotten.begin(), forgotten.end()};
}

void check_same_job(const Program& from, const Program& to) {
  const auto refuse = [](const char* what) {
    fail(ErrorCode::kInfeasible, "transition: {}; a plan changes between steps of one job", what);
  };
  if (from.is_placed() || to.is_placed()) {
    refuse("a graph that is placed in stages, whose ranks have other parts of it");
  }
  if (from.ranks != to.ranks) refuse("the plans are for other ranks");
  if (from.graph != to.graph &&
      ir::structural_digest(*from.graph) != ir::structural_digest(*to.graph)) {
    refuse("the plans are of different graphs");
  }
}

// Elements of one state of one variable at one rank.
using AtRank = std::tuple<State, ir::VariableId, Rank>;
using Coverage = std::map<AtRank, std::vector<Stretch>>;

void add(const std::vector<Stretch>& stretches, const AtRank& where, Coverage& coverage) {
  std::vector<Stretch>& all = coverage[where];
  all.insert(all.end(), stretches.begin(), stretches.end());
}

Coverage coverage_of(const Program& program, bool needed) {
  Coverage coverage;
  for (const State state : kStates) {
    for (const Holding& each : needed ? needed_in(program, state) : held_in(program, state)) {
      for (const Rank rank : each.ranks) {
        add(each.stretches, {state, each.variable, rank}, coverage);
      }
    }
  }
  return coverage;
}

// Ascending and joined; whether some elements were named twice.
bool join(std::vector<Stretch>& stretches) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  bool twice = false;
  std::vector<Stretch> joined;
  for (const Stretch& each : stretches) {
    twice |= !joined.empty() && each.begin < joined.back().end;
    append(joined, each);
  }
  stretches = std::move(joined);
  return twice;
}

// REQUIRES: `all` is joined.
bool contains(const std::vector<Stretch>& all, const Stretch& part) {
  const auto behind = std::upper_bound(
      all.begin(), all.end(), part.begin,
      [](std::int64_t element, const Stretch& each) { return element < each.begin; });
  return behind != all.begin() && part.end <= std::prev(behind)->end;
}

}  // namespace

std::int64_t element_count(const Move& move) {
  std::int64_t count = 0;
  for (const Stretch& each : move.stretches) count += each.end - each.begin;
  return count;
}

Transition transition(const Program& from, const Program& to) {
  check_same_job(from, to);
  Transition transition;
  // What a rank owes of its own gradients stays there.
  for (const State state : {State::kParameters, State::kRule, State::kOwedAverage}) {
    add_moves(from, state, held_in(from, state), needed_in(to, state), transition.moves);
  }
  const std::vector<Seconds> first_use = first_uses(to);
  std::stable_sort(transition.moves.begin(), transition.moves.end(),
                   [&](const Move& a, const Move& b) {
                     return std::pair(a.state, first_use[a.variable.value]) <
                            std::pair(b.state, first_use[b.variable.value]);
                   });
  transition.forgotten = forgotten_by(from, to);
  return transition;
}

Transition gathering(const Program& program, State state, Rank to) {
  Transition transition;
  for (const Holding& each : held_in(program, state)) {
    if (std::binary_search(each.ranks.begin(), each.ranks.end(), to)) continue;
    transition.moves.push_back({state, each.variable, each.ranks.front(), to, each.stretches});
  }
  return transition;
}

void verify(const Transition& transition, const Program& from, const Program& to) {
  Coverage there = coverage_of(from, /*needed=*/false);
  for (auto& [where, stretches] : there) join(stretches);
  const auto name = [&](ir::VariableId variable) { return from.graph->variable(variable).name; };
  Coverage after = there;
  for (const Move& move : transition.moves) {
    for (const Stretch& each : move.stretches) {
      AD_CHECK(contains(there[{move.state, move.variable, move.from}], each))
          << name_of(move.state) << " of " << name(move.variable) << " from rank " << move.from
          << ", which has not got it";
    }
    add(move.stretches, {move.state, move.variable, move.to}, after);
  }
  for (auto& [where, stretches] : after) {
    AD_CHECK(!join(stretches)) << name_of(std::get<State>(where)) << " of "
                               << name(std::get<ir::VariableId>(where)) << " comes twice to rank "
                               << std::get<Rank>(where);
  }
  for (const auto& [where, stretches] : coverage_of(to, /*needed=*/true)) {
    const auto [state, variable, rank] = where;
    if (state == State::kOwed || state == State::kOwedAverage) continue;  // may begin anew
    for (const Stretch& each : stretches) {
      AD_CHECK(contains(after[where], each))
          << name_of(state) << " of " << name(variable) << " does not come to rank " << rank;
    }
  }
}

std::map<std::pair<Rank, Rank>, Bytes> bytes_between(const Transition& transition,
                                                     const BytesOfMove& bytes_of) {
  std::map<std::pair<Rank, Rank>, Bytes> bytes;
  for (const Move& move : transition.moves) bytes[{move.from, move.to}] += bytes_of(move);
  return bytes;
}

std::string to_text(const Transition& transition, const Program& program) {
  const ir::Graph& graph = *program.graph;
  std::string text;
  for (const Move& move : transition.moves) {
    text += fmt::format("{} {} {} -> {}:", name_of(move.state), graph.variable(move.variable).name,
                        move.from, move.to);
    for (const Stretch& each : move.stretches)
      text += fmt::format(" [{}, {})", each.begin, each.end);
    text += "\n";
  }
  for (const ir::VariableId each : transition.forgotten) {
    text += fmt::format("drops what is owed of {}\n", graph.variable(each).name);
  }
  return text;
}

}  // namespace autodist::program
