#include "autodist/search/autosync/analytic.h"

#include <fmt/format.h>

#include <algorithm>

#include "autodist/base/check.h"
#include "autodist/ir/factors.h"
#include "autodist/program/slice_size.h"

namespace autodist::search {
namespace {

constexpr double kPlateau = 0.02;  // the weight of all loads beside the largest

using sim::seconds_for;

}  // namespace

Analytic::Analytic(const Space& space, const program::Program& program, const sim::CostModel& costs,
                   const passes::Options& passes)
    : space_(space),
      costs_(costs),
      slice_(passes.slice_bytes),
      fuse_below_(static_cast<double>(passes.fuse_below.value)) {
  std::map<std::string, std::uint32_t> by_address;
  for (const cluster::Node& node : space.cluster().nodes) {
    by_address.emplace(node.address, static_cast<std::uint32_t>(nodes_.size()));
    Node own;
    own.rate = node.bandwidth_bytes_per_s * costs.engine.goodput;
    if (costs.engine.goodput_bytes_per_s > 0) {
      own.rate = std::min(own.rate, costs.engine.goodput_bytes_per_s);
    }
    own.latency = node.latency.value;
    own.intra = node.intra_node_bytes_per_s;
    own.lowest = static_cast<std::uint32_t>(program.ranks.size());
    own.name = node.address;
    nodes_.push_back(own);
  }
  for (std::uint32_t rank = 0; rank < program.ranks.size(); ++rank) {
    const std::uint32_t node = by_address.at(program.ranks[rank].node);
    node_of_rank_.push_back(node);
    nodes_[node].lowest = std::min(nodes_[node].lowest, rank);
    if (!program.computes(program::Rank(rank))) continue;
    members_.push_back(rank);
    if (nodes_[node].members == 0) nodes_with_members_ += 1;
    nodes_[node].members += 1;
  }
  members_count_ = static_cast<double>(members_.size());
  // Servers stand in the cluster's order, as nodes do.
  for (std::size_t i = 0; i < space.servers().size(); ++i) {
    AD_CHECK(nodes_[i].lowest < program.ranks.size()) << "no rank on " << nodes_[i].name;
    rank_of_server_.push_back(nodes_[i].lowest);
  }
  read_variables(program);
  read_library_links();
  relays_ = program::relays_of(program, members_, node_of_rank_, nodes_.size());
  read_times(program);
}

void Analytic::read_variables(const program::Program& program) {
  const ir::Graph& graph = *program.graph;
  const double staging = sim::staging_bytes_per_s(costs_, program);
  const double updating = sim::update_bytes_per_s(costs_, program);
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& variable = graph.variables[i];
    VariableFacts facts;
    facts.bytes = static_cast<double>(ir::bytes_of(graph, id).value);
    facts.trained = variable.gradient.has_value();
    facts.weight = sim::update_weight(variable.update);
    const auto members = static_cast<std::int64_t>(members_.size());
    facts.exchange = passes::facts_of(graph, id, members, costs_.micro_batches, costs_.batch);
    facts.size = program::size_of(graph, id, members, costs_.batch * costs_.micro_batches);
    double copied = facts.bytes;
    if (facts.exchange.by_rows) {
      const double touched = static_cast<double>(facts.size.touched_rows * facts.size.row_elements);
      copied = touched * static_cast<double>(size_of(facts.size.dtype));
    }
    if (facts.exchange.factors_pay) {
      facts.multiply_seconds = multiply_seconds(costs_, graph, *ir::factors_of(graph, id),
                                                program::Rank(members_.front()))
                                   .value;
    }
    facts.install =
        seconds_for(copied, costs_.engine.install_bytes_per_s) + seconds_for(copied, staging);
    facts.install_updating =
        seconds_for(facts.bytes * facts.weight, updating) + seconds_for(copied, staging);
    variables_.push_back(facts);
  }
}

void Analytic::read_library_links() {
  library_links_.ranks = static_cast<std::uint32_t>(members_.size());
  library_links_.nodes = 0;
  for (const Node& node : nodes_) {
    if (node.members == 0) continue;
    sim::CollectiveLinks& all = library_links_;
    const bool first = all.nodes++ == 0;
    all.node_bytes_per_s = first ? node.rate : std::min(all.node_bytes_per_s, node.rate);
    if (node.members > 1) all.intra_bytes_per_s = std::min(all.intra_bytes_per_s, node.intra);
    all.node_latency = std::max(all.node_latency, Seconds(node.latency));
  }
}

// Ops one after another on the slowest rank.
void Analytic::read_times(const program::Program& program) {
  const ir::Graph& graph = *program.graph;
  const program::Rank slowest = sim::slowest_rank(program, costs_);
  compute_ = sim::compute_seconds(costs_, slowest).value;
  const std::vector<Seconds>& ops = costs_.device(slowest).ops;
  std::vector<double> starts{0};
  for (const Seconds& op : ops) starts.push_back(starts.back() + op.value);
  const double earlier = compute_ - starts.back();  // micro-batches before the last
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    VariableFacts& facts = variables_[i];
    if (variable.gradient_complete) {
      facts.complete = earlier + starts[variable.gradient_complete->value + 1];
    }
    facts.needed = variable.first_use ? starts[variable.first_use->value] : facts.complete;
    if (facts.trained) by_need_.push_back(static_cast<std::uint32_t>(i));
  }
  std::stable_sort(by_need_.begin(), by_need_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return variables_[a].needed < variables_[b].needed;
  });
}

std::string Analytic::bound_of(const Score& score) const {
  if (score.where == Where::kCompute) return "compute";
  if (score.where == Where::kTrip) {
    return fmt::format("the way round '{}'", space_.graph().variables[score.index].name);
  }
  const std::size_t side = score.index;
  const std::size_t n = nodes_.size();
  if (side < n) return nodes_[side].name + " sends";
  if (side < 2 * n) return nodes_[side - n].name + " receives";
  if (side < 3 * n) return "inside " + nodes_[side - 2 * n].name;
  return fmt::format("the owner's work at rank {}", side - 3 * n);
}

// The longest of what a side must carry, and where.
void Analytic::raise_by_sides(const Point& point, Loads& loads, double stretch,
                              Bottleneck& bottleneck) const {
  using Side = Loads::Scratch::Side;
  std::vector<Side>& sides = loads.scratch.sides;
  sides.assign(loads.sides, Side{0, compute_, 0});
  for (std::uint32_t v : by_need_) {  // outside: loads of a variable lie together
    const double complete = variables_[v].complete;
    const double needed = variables_[v].needed;
    // What is late may lag by so many steps.
    const double share = 1 / (1.0 + point.choices[v].staleness);
    const double* load = &loads.at(v, 0);
    for (Side& side : sides) {
      const double carried = *load++;
      if (carried <= 0) continue;
      side.sum += carried;
      side.first = std::min(side.first, complete);
      side.most = std::max(side.most, share * (side.sum + stretch * (side.first - needed)));
    }
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    bottleneck.raise(std::max(sides[i].most, sides[i].sum), Where::kSide, i);
    bottleneck.all += sides[i].sum;
  }
}

// What holds the step up while the slowest rank's ops take `busy` seconds.
Analytic::Bottleneck Analytic::bottleneck_of(const Point& point, Loads& loads, double busy) const {
  Bottleneck bottleneck;
  bottleneck.seconds = busy;
  const double stretch = compute_ > 0 ? busy / compute_ : 1;
  raise_by_sides(point, loads, stretch, bottleneck);
  for (std::uint32_t v : by_need_) {
    const VariableFacts& facts = variables_[v];
    const double steps = 1.0 + point.choices[v].staleness;
    const double trip = stretch * (facts.complete - facts.needed) + loads.trip[v];
    bottleneck.raise(trip / steps, Where::kTrip, v);
  }
  return bottleneck;
}

// How long ops take beside the engine's work on their cores, in steps of `step` with ops of `busy`
// seconds. A variable travels between its gradient and its next need; what of that time ranks wait
// takes nothing from them.
double Analytic::busy_in(const Point& point, Loads& loads, double step, double busy) const {
  const double waiting = step - busy;
  std::vector<double>& works = loads.scratch.works;
  works.assign(nodes_.size(), 0);
  for (std::uint32_t v : by_need_) {
    const VariableFacts& facts = variables_[v];
    const double late = compute_ > 0 ? (facts.complete - facts.needed) * busy / compute_ : 0;
    const double travelling = step * (1.0 + point.choices[v].staleness) - late;
    const double beside = travelling > waiting ? 1 - waiting / travelling : 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) works[i] += beside * loads.core(v, i);
  }
  double most = compute_;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].members == 0 || !costs_.device(program::Rank(nodes_[i].lowest)).on_host) continue;
    const double cores = costs_.cores != 0 ? costs_.cores : nodes_[i].members;
    const double computing = compute_ * nodes_[i].members / std::max(cores, nodes_[i].members);
    most = std::max(most, computing + works[i] / cores);
  }
  return most;
}

Score Analytic::score(const Point& point) const {
  Loads loads;
  load(point, loads);
  return score_of(point, loads);
}

Score Analytic::score(const Point& point, Loads& loads) const {
  load(point, loads);
  loads.choices = point.choices;  // for the next point to be compared with
  return score_of(point, loads);
}

Score Analytic::score_of(const Point& point, Loads& loads) const {
  constexpr int kRounds = 3;  // each is nearer to the step whose waits are those that it was given
  double busy = busy_in(point, loads, compute_, compute_);
  Bottleneck bottleneck = bottleneck_of(point, loads, busy);
  for (int round = 0; round < kRounds && bottleneck.seconds > busy; ++round) {
    const double before = busy;
    busy = busy_in(point, loads, bottleneck.seconds, busy);
    if (busy == before) break;
    bottleneck = bottleneck_of(point, loads, busy);
  }
  Score score;
  score.step = Seconds(bottleneck.seconds);
  score.rank = bottleneck.seconds + kPlateau * bottleneck.all / static_cast<double>(loads.sides);
  score.where = bottleneck.where;
  score.index = bottleneck.index;
  return score;
}

std::vector<double> Analytic::exposed(const Point& point) const {
  Loads loads;
  load(point, loads);
  double most = 0;
  std::size_t busiest = 0;
  for (std::size_t side = 0; side < loads.sides; ++side) {
    double sum = 0;
    for (std::uint32_t v : by_need_) sum += loads.at(v, side);
    if (sum <= most) continue;
    most = sum;
    busiest = side;
  }
  std::vector<double> shares(variables_.size());
  if (most <= 0) return shares;
  for (std::uint32_t v : by_need_) shares[v] = loads.at(v, busiest) / most;
  return shares;
}

}  // namespace autodist::search
