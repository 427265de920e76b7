#include "autodist/program/state.h"

#include <algorithm>
#include <iterator>

#include "autodist/program/loads.h"
#include "autodist/program/slice_layout.h"

namespace autodist::program {
namespace {

using Ranks = std::vector<Rank>;

Ranks with(Ranks ranks, Rank rank) {
  const auto place = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (place == ranks.end() || *place != rank) ranks.insert(place, rank);
  return ranks;
}

// `needed`: as the next step begins, else as the last one has ended.
Ranks ranks_of(const Slice& slice, State state, bool needed) {
  const bool at_owner = makes_parameters(slice.exchange);
  switch (state) {
    case State::kParameters: {
      const bool has_copies =
          needed ? keeps_whole_copies(slice.exchange) : keeps_newest_copies(slice.exchange);
      const Ranks copies = has_copies ? slice.members : Ranks{};
      return at_owner ? with(copies, slice.owner) : copies;
    }
    case State::kRule:
      return at_owner && !goes_to_all(slice.exchange) ? Ranks{slice.owner} : slice.members;
    case State::kOwed:
      return feeds_back(slice) ? slice.members : Ranks{};
    case State::kOwedAverage:
      return feeds_back(slice) && loses_averages(slice) ? Ranks{slice.owner} : Ranks{};
  }
  return {};
}

// Of a variable that no slice carries.
Ranks ranks_of_whole(const Program& program, ir::VariableId variable, State state) {
  const VariablePlan& plan = program.plan(variable);
  const bool trained = program.graph->variable(variable).gradient.has_value();
  switch (state) {
    case State::kParameters:
      return program.computing_ranks();
    case State::kRule:
      return trained ? program.computing_ranks() : Ranks{};
    case State::kOwed:
      if (!plan.collective) return {};
      return program.collectives[plan.collective->value].exchange.codec.error_feedback
                 ? program.collectives[plan.collective->value].members
                 : Ranks{};
    case State::kOwedAverage:
      return {};
  }
  return {};
}

std::vector<Stretch> stretches_of(const PieceLayout& piece) {
  std::vector<Stretch> stretches;
  for (const ElementRun& run : piece.runs) {
    stretches.push_back({run.variable_begin, run.variable_begin + run.count});
  }
  return stretches;
}

std::vector<Holding> all_of(const Program& program, State state, bool needed) {
  std::vector<Holding> all;
  for (std::size_t i = 0; i < program.variables.size(); ++i) {
    if (!program.variables[i].slices.empty()) continue;
    const ir::VariableId variable(i);
    Ranks ranks = ranks_of_whole(program, variable, state);
    if (ranks.empty()) continue;
    all.push_back({variable, {{0, ir::element_count(*program.graph, variable)}}, std::move(ranks)});
  }
  for (const Slice& slice : program.slices) {
    const Ranks ranks = ranks_of(slice, state, needed);
    if (ranks.empty()) continue;
    for (const PieceLayout& piece : layout_of(program, slice)) {
      all.push_back({piece.variable, stretches_of(piece), ranks});
    }
  }
  return all;
}

}  // namespace

std::string name_of(State state) {
  switch (state) {
    case State::kParameters:
      return "parameters";
    case State::kRule:
      return "rule";
    case State::kOwed:
      return "owed";
    case State::kOwedAverage:
      return "owed_average";
  }
  return "";
}

std::vector<Rank> holders_of(const Slice& slice, State state) {
  return ranks_of(slice, state, /*needed=*/false);
}

std::vector<Holding> held_in(const Program& program, State state) {
  return all_of(program, state, /*needed=*/false);
}

std::vector<Holding> needed_in(const Program& program, State state) {
  return all_of(program, state, /*needed=*/true);
}

bool feeds_back(const Slice& slice) {
  const Compression codec = contribution_form(slice.exchange).codec;
  return codec.error_feedback && encodes(codec, slice.dtype);
}

bool loses_averages(const Slice& slice) {
  const Compression codec = result_form(slice.exchange).codec;
  return codec.error_feedback && encodes(codec, slice.dtype) && codec.codec != Codec::kTopK;
}

}  // namespace autodist::program
