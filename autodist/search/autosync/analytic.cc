#include "autodist/search/autosync/analytic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "autodist/base/check.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/pipeline.h"

namespace autodist::search {
namespace {

constexpr double kPlateau = 0.02;  // the weight of all loads beside the largest
constexpr double kRowNumber = 8;   // bytes
// Smaller pieces are fused with others of their owner, up to this (passes::Options).
const double kFused = static_cast<double>(passes::Options{}.fuse_below.value);
constexpr double kMostBlock = 32 << 20;  // of rows in one slice

using sim::seconds_for;

bool reduces_by(const Choice& choice, strategy::AllReduceAlgorithm algorithm) {
  return choice.way == Way::kAllReduce && choice.algorithm == algorithm;
}

bool by_library(const Choice& choice) {
  return reduces_by(choice, strategy::AllReduceAlgorithm::kLibrary);
}

// Rows that one replica touches of a table in a step, and bytes of one.
std::pair<double, double> touched(const ir::Graph& graph, ir::VariableId id, std::int64_t batch,
                                  double bytes) {
  const std::vector<std::int64_t> shape = ir::shape_of(graph, id);
  const double rows = shape.empty() ? 1 : static_cast<double>(std::max<std::int64_t>(1, shape[0]));
  const auto read = ir::rows_read(graph, id);
  if (!read) return {rows, bytes / rows};
  double lookups = 0;
  for (ir::ValueId numbers : *read) {
    double count = 1;
    for (const ir::Affine& size : graph.value(numbers).type.sizes) {
      count *= static_cast<double>(size.at(batch));
    }
    lookups += count;
  }
  return {std::min(rows, lookups), bytes / rows};
}

}  // namespace

Analytic::Analytic(const Space& space, const ir::Program& program, const sim::CostModel& costs,
                   Bytes slice)
    : space_(space), costs_(costs), slice_(slice) {
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
    if (!program.computes(ir::Rank(rank))) continue;
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
  read_relays(program);
  read_times(program);
}

void Analytic::read_variables(const ir::Program& program) {
  const ir::Graph& graph = *program.graph;
  const double staging = costs_.device(ir::Rank(members_.front())).staging_bytes_per_s;
  const double updating = sim::update_bytes_per_s(costs_, program);
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& variable = graph.variables[i];
    Fixed fixed;
    fixed.bytes = static_cast<double>(ir::bytes_of(graph, id).value);
    fixed.trained = variable.gradient.has_value();
    fixed.weight = sim::update_weight(variable.update);
    double copied = fixed.bytes;
    if (fixed.trained && ir::trained_by_rows(variable)) {
      const auto [rows, row] = touched(graph, id, costs_.batch * costs_.micro_batches, fixed.bytes);
      fixed.row_bytes = rows * (row + kRowNumber);
      fixed.fetched = rows * row;
      fixed.fetchable = costs_.micro_batches == 1 && ir::rows_read(graph, id).has_value();
      copied = fixed.fetched;
    }
    if (space_.has_factors(id) && costs_.micro_batches == 1) {
      const ir::Factors factors = *ir::factors_of(graph, id);
      fixed.factor_bytes = static_cast<double>(bytes_of(graph, factors, costs_.batch).value);
      fixed.multiply_seconds =
          multiply_seconds(costs_, graph, factors, ir::Rank(members_.front())).value;
    }
    fixed.install =
        seconds_for(copied, costs_.engine.install_bytes_per_s) + seconds_for(copied, staging);
    fixed.install_updating =
        seconds_for(fixed.bytes * fixed.weight, updating) + seconds_for(copied, staging);
    variables_.push_back(fixed);
  }
}

void Analytic::read_relays(const ir::Program& program) {
  if (members_.size() < 3) return;  // nobody would pass anything on
  for (const auto& [algorithm, route] :
       {std::pair(strategy::AllReduceAlgorithm::kRing, ir::Route::kRing),
        std::pair(strategy::AllReduceAlgorithm::kTree, ir::Route::kTree)}) {
    relays_.emplace(algorithm, relay_of(program, route, members_, node_of_rank_, nodes_.size()));
  }
}

// Ops one after another on the slowest rank.
void Analytic::read_times(const ir::Program& program) {
  const ir::Graph& graph = *program.graph;
  std::uint32_t slowest = members_.front();
  for (std::uint32_t rank : members_) {
    const double seconds = sim::compute_seconds(costs_, ir::Rank(rank)).value;
    if (seconds <= compute_) continue;
    compute_ = seconds;
    slowest = rank;
  }
  const std::vector<Seconds>& ops = costs_.device(ir::Rank(slowest)).ops;
  std::vector<double> starts{0};
  for (const Seconds& op : ops) starts.push_back(starts.back() + op.value);
  const double earlier = compute_ - starts.back();  // micro-batches before the last
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::Variable& variable = graph.variables[i];
    Fixed& fixed = variables_[i];
    if (variable.gradient_complete) {
      fixed.complete = earlier + starts[variable.gradient_complete->value + 1];
    }
    fixed.needed = variable.first_use ? starts[variable.first_use->value] : fixed.complete;
    if (fixed.trained) by_need_.push_back(static_cast<std::uint32_t>(i));
  }
  std::stable_sort(by_need_.begin(), by_need_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return variables_[a].needed < variables_[b].needed;
  });
}

Analytic::Traffic Analytic::traffic_of(const Point& point, std::size_t variable) const {
  const Fixed& fixed = variables_[variable];
  const Choice& choice = point.choices[variable];
  Traffic traffic;
  traffic.rows = fixed.row_bytes > 0;
  const bool reduces = choice.way == Way::kAllReduce;
  traffic.gathers = traffic.rows && reduces && (!fixed.fetchable || members_count_ <= 2);
  traffic.by_node = reduces_by(choice, strategy::AllReduceAlgorithm::kHierarchical);
  const auto relay = relays_.find(choice.algorithm);
  if (reduces && !traffic.rows && relay != relays_.end()) traffic.relay = &relay->second;
  const bool copies = choice.way == Way::kServers && choice.proxy;
  traffic.fetches = traffic.rows && !traffic.gathers && !copies && fixed.fetchable;
  traffic.at_owner = !reduces || traffic.rows || choice.update_at == ir::UpdateAt::kOwner;
  traffic.codes = choice.compression.codec != ir::Codec::kNone;
  traffic.up = traffic.rows ? fixed.row_bytes : fixed.bytes;
  if (choice.compression.codec == ir::Codec::kTopK) {
    traffic.up *= 2 * choice.compression.density;
  } else if (traffic.codes) {
    traffic.up /= 2;
  }
  traffic.down = fixed.bytes;
  if (traffic.rows) traffic.down = std::min(fixed.bytes, fixed.row_bytes * members_count_);
  if (traffic.fetches) traffic.down = fixed.fetched;
  const Bytes slice = point.slice_bytes > Bytes{0} ? point.slice_bytes : slice_;
  traffic.slice = traffic.rows ? kMostBlock : static_cast<double>(slice.value);
  return traffic;
}

bool Analytic::by_factors(std::size_t variable, const Choice& choice) const {
  return variables_[variable].factor_bytes > 0 &&
         reduces_by(choice, strategy::AllReduceAlgorithm::kSufficientFactors);
}

// What an owner adds up, updates and hands out, in seconds.
double Analytic::work_of(const Fixed& fixed, const Traffic& traffic, double part) const {
  const sim::EngineCost& engine = costs_.engine;
  const double whole = part * (traffic.rows ? traffic.up : fixed.bytes);
  double work = 0;
  if (!traffic.relay) work += seconds_for(whole * members_count_, engine.sum_bytes_per_s);
  if (traffic.codes) work += seconds_for(whole * members_count_, engine.encode_bytes_per_s);
  if (traffic.at_owner) work += seconds_for(whole * fixed.weight, engine.update_bytes_per_s);
  if (traffic.fetches) {
    work += seconds_for(part * fixed.fetched * members_count_, engine.install_bytes_per_s);
  }
  return work;
}

// Every member sends its part of what a rank owns there and gets the result back.
void Analytic::add_variable(const Point& point, std::size_t variable,
                            const std::vector<double>& owned, const std::vector<double>& fused,
                            Loads& loads) const {
  const Fixed& fixed = variables_[variable];
  const Traffic traffic = traffic_of(point, variable);
  const std::size_t n = nodes_.size();
  std::vector<double> own(n);
  std::vector<double> messages(n);
  double all_messages = 0;
  for (std::size_t rank = 0; rank < owned.size(); ++rank) {
    if (owned[rank] <= 0) continue;
    const double bytes = owned[rank] * fixed.bytes;
    const bool is_small = !traffic.rows && bytes < kFused;
    const double pieces = is_small ? fused[rank] : std::ceil(bytes / traffic.slice - 1e-9);
    own[node_of_rank_[rank]] += owned[rank];
    messages[node_of_rank_[rank]] += pieces;
    all_messages += pieces;
    const double work = work_of(fixed, traffic, owned[rank]);
    loads.at(variable, 3 * n + rank) += work;
    loads.core(variable, node_of_rank_[rank]) += work;
  }
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (traffic.relay) {
      add_relayed(i, traffic, all_messages, variable, loads);
    } else {
      add_card(i, traffic, own[i], messages[i], all_messages, variable, loads);
    }
    const double last = std::min(traffic.slice, own[i] * std::max(traffic.up, traffic.down));
    worst =
        std::max(worst, last / nodes_[i].rate + costs_.engine.message.value + nodes_[i].latency);
  }
  const double install = traffic.at_owner ? fixed.install : fixed.install_updating;
  const double summed = traffic.relay ? traffic.relay->summed * fixed.bytes : 0;
  const double work = install + seconds_for(summed, costs_.engine.sum_bytes_per_s);
  for (std::uint32_t rank : members_) {
    loads.at(variable, 3 * n + rank) += work;
    loads.core(variable, node_of_rank_[rank]) += work;
  }
  const double there = traffic.relay ? traffic.relay->hops : traffic.by_node ? 2 : 1;
  loads.trip[variable] = 2 * (traffic.fetches ? 2 : there) * worst + install;
}

// Every member sends its factors to all others and multiplies everyone's.
void Analytic::add_factors(std::size_t variable, Loads& loads) const {
  const Fixed& fixed = variables_[variable];
  const std::size_t n = nodes_.size();
  const double message = costs_.engine.message.value;
  const double work = fixed.multiply_seconds * members_count_ + fixed.install_updating;
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Node& node = nodes_[i];
    const double pairs = node.members * (members_count_ - node.members);
    const double across = pairs * (fixed.factor_bytes / node.rate + message);
    loads.at(variable, i) += across;
    loads.at(variable, n + i) += across;
    const double inside = node.members * (node.members - 1) * fixed.factor_bytes;
    loads.at(variable, 2 * n + i) += seconds_for(inside, node.intra);
    loads.core(variable, i) +=
        node.members * work +
        moving(pairs, pairs * fixed.factor_bytes, pairs, pairs * fixed.factor_bytes) +
        moved_inside(node.members * (node.members - 1), inside);
    worst = std::max(worst, across + node.latency);
  }
  for (std::uint32_t rank : members_) loads.at(variable, 3 * n + rank) += work;
  loads.trip[variable] = worst + work;
}

// `own`: the part of the variable that the node owns, in so many messages of all.
void Analytic::add_card(std::size_t i, const Traffic& traffic, double own, double messages,
                        double all_messages, std::size_t variable, Loads& loads) const {
  const Node& node = nodes_[i];
  const double here = traffic.by_node ? std::min(node.members, 1.0) : node.members;
  const double others = (traffic.by_node ? nodes_with_members_ : members_count_) - here;
  const double message = costs_.engine.message.value;
  // Asking for rows is a message, too, and so is the answer.
  const double trips = traffic.fetches ? 2 : 1;
  const double away = all_messages - messages;
  double bytes_out = here * (1 - own) * traffic.up + others * own * traffic.down;
  double bytes_in = here * (1 - own) * traffic.down + others * own * traffic.up;
  double out = trips * (here * away + others * messages);
  double in = out;
  if (traffic.gathers) {
    bytes_out = bytes_in = here * others * traffic.up;
    out = in = here * others;
  }
  const std::size_t n = nodes_.size();
  loads.at(variable, i) += bytes_out / node.rate + out * message;
  loads.at(variable, n + i) += bytes_in / node.rate + in * message;
  const double mates = std::max(0.0, node.members - 1);
  const double inside = (traffic.by_node ? 1 : own) * mates * (traffic.up + traffic.down);
  loads.at(variable, 2 * n + i) += seconds_for(inside, node.intra);
  loads.core(variable, i) +=
      moving(out, bytes_out, in, bytes_in) +
      moved_inside(2 * mates * (traffic.by_node ? all_messages : messages), inside);
}

// What others pass on crosses a node's card, whoever owns it.
void Analytic::add_relayed(std::size_t i, const Traffic& traffic, double messages,
                           std::size_t variable, Loads& loads) const {
  const Node& node = nodes_[i];
  const Relay::Node& way = traffic.relay->nodes[i];
  const double count = (way.sent + way.received) * messages;
  const double crossings = count * costs_.engine.message.value;
  const double out = way.sent * traffic.up + way.received * traffic.down;
  const double in = way.received * traffic.up + way.sent * traffic.down;
  const std::size_t n = nodes_.size();
  loads.at(variable, i) += out / node.rate + crossings;
  loads.at(variable, n + i) += in / node.rate + crossings;
  const double inside = way.inside * (traffic.up + traffic.down);
  loads.at(variable, 2 * n + i) += seconds_for(inside, node.intra);
  loads.core(variable, i) +=
      moving(count, out, count, in) + moved_inside(2 * way.inside * messages, inside);
}

// Core seconds of so many messages and bytes out of a node and into it.
double Analytic::moving(double out, double bytes_out, double in, double bytes_in) const {
  const sim::EngineCost& engine = costs_.engine;
  return (out + in) * engine.message.value + bytes_out * engine.send_cpu_s_per_byte +
         bytes_in * engine.receive_cpu_s_per_byte;
}

// And of those that stay on it: both ends are there.
double Analytic::moved_inside(double messages, double bytes) const {
  return moving(messages, bytes, messages, bytes);
}

// The shards of a group, one after another, in as many contiguous parts as there are members.
void Analytic::share_groups(const Point& point, Owned& owned) const {
  struct Shard {
    std::uint32_t variable = 0;
    double part = 1;
  };
  std::map<std::pair<std::uint32_t, ir::UpdateAt>, std::vector<Shard>> groups;
  for (std::uint32_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (choice.way != Way::kAllReduce || !variables_[i].trained) continue;
    if (by_library(choice) || by_factors(i, choice)) continue;
    for (std::uint32_t place : choice.places) {
      groups[{place, choice.update_at}].push_back(
          {i, 1 / static_cast<double>(choice.places.size())});
    }
  }
  for (const auto& [group, shards] : groups) {
    double total = 0;
    for (const Shard& shard : shards) total += variables_[shard.variable].bytes * shard.part;
    double before = 0;
    for (const Shard& shard : shards) {
      std::vector<double>& own = owned[shard.variable];
      const double bytes = variables_[shard.variable].bytes * shard.part;
      if (variables_[shard.variable].row_bytes > 0 || total <= 0) {  // rows: a block per member
        for (std::uint32_t rank : members_) own[rank] += shard.part / members_count_;
        continue;
      }
      const double each = total / members_count_;
      for (auto m = static_cast<std::size_t>(before / each); m < members_.size(); ++m) {
        const double begin = std::max(before, each * static_cast<double>(m));
        const double end = std::min(before + bytes, each * static_cast<double>(m + 1));
        if (end <= begin) break;
        own[members_[m]] += (end - begin) / variables_[shard.variable].bytes;
      }
      before += bytes;
    }
  }
}

// Library collectives have no owners: every card carries them, one after another.
void Analytic::add_libraries(const Point& point, Loads& loads) const {
  std::map<std::uint32_t, double> groups;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (!variables_[i].trained || !by_library(point.choices[i])) continue;
    groups[point.choices[i].places.front()] += variables_[i].bytes;
  }
  if (groups.empty()) return;
  sim::CollectiveLinks links;
  links.ranks = static_cast<std::uint32_t>(members_.size());
  links.nodes = 0;
  for (const Node& node : nodes_) {
    if (node.members == 0) continue;
    const bool first = links.nodes++ == 0;
    links.node_bytes_per_s = first ? node.rate : std::min(links.node_bytes_per_s, node.rate);
    links.intra_bytes_per_s = first ? node.intra : std::min(links.intra_bytes_per_s, node.intra);
    links.node_latency = std::max(links.node_latency, Seconds(node.latency));
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Fixed& fixed = variables_[i];
    if (!fixed.trained || !by_library(point.choices[i])) continue;
    const double whole = groups.at(point.choices[i].places.front());
    const Bytes bytes(static_cast<std::int64_t>(whole));
    const double all = sim::all_reduce_seconds(costs_.collectives, links, bytes).value;
    const double seconds = whole > 0 ? all * fixed.bytes / whole : 0;
    const std::size_t n = nodes_.size();
    for (std::size_t node = 0; node < n; ++node) {
      if (nodes_[node].members == 0) continue;
      loads.at(i, node) += seconds;
      loads.at(i, n + node) += seconds;
    }
    for (std::uint32_t rank : members_) {
      loads.at(i, 3 * n + rank) += fixed.install_updating;
      loads.core(i, node_of_rank_[rank]) +=
          fixed.install_updating + 2 * fixed.bytes * costs_.collectives.cpu_s_per_byte;
    }
    loads.trip[i] = all + fixed.install_updating;
  }
}

Analytic::Owned Analytic::owners_of(const Point& point) const {
  Owned owned(variables_.size(), std::vector<double>(node_of_rank_.size()));
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (!variables_[i].trained || choice.way != Way::kServers) continue;
    for (std::uint32_t place : choice.places) {
      owned[i][rank_of_server_[place]] += 1 / static_cast<double>(choice.places.size());
    }
  }
  share_groups(point, owned);
  return owned;
}

std::vector<double> Analytic::fused_messages(const Owned& owned) const {
  std::vector<double> messages(node_of_rank_.size());
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    double bytes = 0;
    double pieces = 0;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const double piece = owned[i][rank] * variables_[i].bytes;
      if (piece <= 0 || piece >= kFused || variables_[i].row_bytes > 0) continue;
      bytes += piece;
      pieces += 1;
    }
    if (pieces > 0) messages[rank] = std::ceil(bytes / kFused) / pieces;
  }
  return messages;
}

Analytic::Loads Analytic::loads_of(const Point& point) const {
  Loads loads;
  loads.sides = 3 * nodes_.size() + node_of_rank_.size();
  loads.of.resize(loads.sides * variables_.size());
  loads.trip.resize(variables_.size());
  loads.nodes = nodes_.size();
  loads.cores.resize(loads.nodes * variables_.size());
  if (members_.size() < 2) return loads;
  const Owned owned = owners_of(point);
  const std::vector<double> fused = fused_messages(owned);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (!variables_[i].trained || by_library(choice)) continue;
    if (by_factors(i, choice)) {
      add_factors(i, loads);
    } else {
      add_variable(point, i, owned[i], fused, loads);
    }
  }
  add_libraries(point, loads);
  return loads;
}

std::string Analytic::name_of(std::size_t side) const {
  const std::size_t n = nodes_.size();
  if (side < n) return nodes_[side].name + " sends";
  if (side < 2 * n) return nodes_[side - n].name + " receives";
  if (side < 3 * n) return "inside " + nodes_[side - 2 * n].name;
  return fmt::format("the owner's work at rank {}", side - 3 * n);
}

// The longest of what a side must carry, and where.
void Analytic::raise_by_sides(const Point& point, Loads& loads, double stretch,
                              Highest& highest) const {
  std::vector<double> sums(loads.sides);
  std::vector<double> firsts(loads.sides, compute_);  // first gradients among those needed so far
  std::vector<double> most(loads.sides);
  for (std::uint32_t v : by_need_) {  // outside: loads of a variable lie together
    const Fixed& fixed = variables_[v];
    // What is late may lag by so many steps.
    const double steps = 1.0 + point.choices[v].staleness;
    const double* load = &loads.at(v, 0);
    for (std::size_t side = 0; side < loads.sides; ++side) {
      if (load[side] <= 0) continue;
      sums[side] += load[side];
      firsts[side] = std::min(firsts[side], fixed.complete);
      const double by_then = (sums[side] + stretch * (firsts[side] - fixed.needed)) / steps;
      most[side] = std::max({most[side], sums[side], by_then});
    }
  }
  for (std::size_t side = 0; side < loads.sides; ++side) {
    highest.raise(most[side], Where::kSide, side);
    highest.all += sums[side];
  }
}

// What holds the step up while the slowest rank's ops take `busy` seconds.
Analytic::Highest Analytic::highest_of(const Point& point, Loads& loads, double busy) const {
  Highest highest;
  highest.seconds = busy;
  const double stretch = compute_ > 0 ? busy / compute_ : 1;
  raise_by_sides(point, loads, stretch, highest);
  for (std::uint32_t v : by_need_) {
    const Fixed& fixed = variables_[v];
    const double steps = 1.0 + point.choices[v].staleness;
    const double trip = stretch * (fixed.complete - fixed.needed) + loads.trip[v];
    highest.raise(trip / steps, Where::kTrip, v);
  }
  return highest;
}

// How long ops take beside the engine's work on their cores, in steps of `step` with ops of `busy`
// seconds. A variable travels between its gradient and its next need; what of that time ranks wait
// takes nothing from them.
double Analytic::busy_in(const Point& point, Loads& loads, double step, double busy) const {
  const double waiting = step - busy;
  std::vector<double> works(nodes_.size());
  for (std::uint32_t v : by_need_) {
    const Fixed& fixed = variables_[v];
    const double late = compute_ > 0 ? (fixed.complete - fixed.needed) * busy / compute_ : 0;
    const double travelling = step * (1.0 + point.choices[v].staleness) - late;
    const double beside = travelling > waiting ? 1 - waiting / travelling : 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) works[i] += beside * loads.core(v, i);
  }
  double most = compute_;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].members == 0 || !costs_.device(ir::Rank(nodes_[i].lowest)).on_host) continue;
    const double cores = costs_.cores != 0 ? costs_.cores : nodes_[i].members;
    const double computing = compute_ * nodes_[i].members / std::max(cores, nodes_[i].members);
    most = std::max(most, computing + works[i] / cores);
  }
  return most;
}

Score Analytic::score(const Point& point) const {
  constexpr int kRounds = 3;  // each is nearer to the step whose waits are those that it was given
  Loads loads = loads_of(point);
  double busy = busy_in(point, loads, compute_, compute_);
  Highest highest = highest_of(point, loads, busy);
  for (int round = 0; round < kRounds && highest.seconds > busy; ++round) {
    busy = busy_in(point, loads, highest.seconds, busy);
    highest = highest_of(point, loads, busy);
  }
  Score score;
  score.step = Seconds(highest.seconds);
  score.rank = highest.seconds + kPlateau * highest.all / static_cast<double>(loads.sides);
  switch (highest.where) {
    case Where::kCompute:
      score.bound = "compute";
      break;
    case Where::kSide:
      score.bound = name_of(highest.index);
      break;
    case Where::kTrip:
      score.bound = fmt::format("the way round '{}'", space_.graph().variables[highest.index].name);
      break;
  }
  return score;
}

std::vector<double> Analytic::exposed(const Point& point) const {
  Loads loads = loads_of(point);
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
