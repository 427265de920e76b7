#include "autodist/search/autosync/analytic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "autodist/base/check.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/pipeline.h"

namespace autodist::search {
namespace {

constexpr double kPlateau = 0.02;        // the weight of all loads beside the largest
constexpr double kRowNumber = 8;         // bytes
constexpr double kMostBlock = 32 << 20;  // of rows in one slice

double seconds_for(double bytes, double bytes_per_s) {
  return bytes_per_s > 0 ? bytes / bytes_per_s : 0;
}

// Streams of memory that an update reads or writes, against those of plain SGD.
double update_weight(const ir::UpdateRule& rule) {
  switch (rule.rule) {
    case ir::Rule::kSgd:
      return rule.options.count("momentum") > 0 && rule.options.at("momentum") != 0 ? 5.0 / 3 : 1;
    case ir::Rule::kAdagrad:
    case ir::Rule::kRmsProp:
    case ir::Rule::kUser:
      return 5.0 / 3;
    default:
      return 7.0 / 3;
  }
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

Analytic::Analytic(const Space& space, const ir::Program& program, const sim::CostModel& costs)
    : space_(space), costs_(costs) {
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
    nodes_[node].members += 1;
  }
  members_count_ = static_cast<double>(members_.size());
  // Servers stand in the cluster's order, as nodes do.
  for (std::size_t i = 0; i < space.servers().size(); ++i) {
    AD_CHECK(nodes_[i].lowest < program.ranks.size()) << "no rank on " << nodes_[i].name;
    rank_of_server_.push_back(nodes_[i].lowest);
  }
  read_variables(program);
  read_times(program);
}

void Analytic::read_variables(const ir::Program& program) {
  const ir::Graph& graph = *program.graph;
  const double staging = costs_.device(ir::Rank(members_.front())).staging_bytes_per_s;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    const ir::VariableId id(i);
    const ir::Variable& variable = graph.variables[i];
    Fixed fixed;
    fixed.bytes = static_cast<double>(ir::bytes_of(graph, id).value);
    fixed.trained = variable.gradient.has_value();
    fixed.weight = update_weight(variable.update);
    double copied = fixed.bytes;
    if (fixed.trained && ir::trained_by_rows(variable)) {
      const auto [rows, row] = touched(graph, id, costs_.batch * costs_.micro_batches, fixed.bytes);
      fixed.row_bytes = rows * (row + kRowNumber);
      fixed.fetched = rows * row;
      fixed.fetchable = costs_.micro_batches == 1 && ir::rows_read(graph, id).has_value();
      copied = fixed.fetched;
    }
    fixed.install =
        seconds_for(copied, costs_.engine.install_bytes_per_s) + seconds_for(copied, staging);
    fixed.install_updating =
        seconds_for(fixed.bytes * fixed.weight, costs_.engine.update_bytes_per_s) +
        seconds_for(copied, staging);
    variables_.push_back(fixed);
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

// Every member sends its part of what a rank owns there and gets the result back.
void Analytic::add_owned(const Point& point, std::size_t variable, std::vector<double>& owned,
                         Loads& loads) const {
  const Fixed& fixed = variables_[variable];
  const Choice& choice = point.choices[variable];
  const sim::EngineCost& engine = costs_.engine;
  const bool rows = fixed.row_bytes > 0;
  const bool gathers =
      rows && choice.way == Way::kAllReduce && (!fixed.fetchable || members_count_ <= 2);
  const bool fetches =
      rows && !gathers && !(choice.way == Way::kServers && choice.proxy) && fixed.fetchable;
  double up = rows ? fixed.row_bytes : fixed.bytes;
  if (choice.compression.codec == ir::Codec::kTopK) {
    up *= 2 * choice.compression.density;
  } else if (choice.compression.codec != ir::Codec::kNone) {
    up /= 2;
  }
  double down = fixed.bytes;
  if (rows) down = std::min(fixed.bytes, fixed.row_bytes * members_count_);
  if (fetches) down = fixed.fetched;
  const double slice =
      rows ? kMostBlock
           : static_cast<double>(
                 (point.slice_bytes > Bytes{0} ? point.slice_bytes : passes::Options{}.slice_bytes)
                     .value);
  const double fused = static_cast<double>(passes::Options{}.fuse_below.value);
  const bool at_owner =
      choice.way == Way::kServers || rows || choice.update_at == ir::UpdateAt::kOwner;

  const std::size_t n = nodes_.size();
  std::vector<double> own_bytes(n);
  std::vector<double> own_messages(n);
  double all_messages = 0;
  for (std::size_t rank = 0; rank < owned.size(); ++rank) {
    if (owned[rank] <= 0) continue;
    const double bytes = owned[rank] * fixed.bytes;
    const double pieces = rows || bytes > fused ? std::ceil(bytes / slice - 1e-9) : bytes / fused;
    const std::uint32_t node = node_of_rank_[rank];
    own_bytes[node] += owned[rank];
    own_messages[node] += pieces;
    all_messages += pieces;
    const double whole = rows ? up * owned[rank] : bytes;
    double work = seconds_for(whole * members_count_, engine.sum_bytes_per_s);
    if (choice.compression.codec != ir::Codec::kNone) {
      work += seconds_for(bytes * members_count_, engine.encode_bytes_per_s);
    }
    if (at_owner) work += seconds_for(whole * fixed.weight, engine.update_bytes_per_s);
    if (fetches) {
      work += seconds_for(fixed.fetched * owned[rank] * members_count_, engine.install_bytes_per_s);
    }
    loads.at(variable, 3 * n + rank) += work;
  }
  const double trips = fetches ? 2 : 1;  // asking for rows is a message, too
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Node& node = nodes_[i];
    const double here = node.members;
    const double others = members_count_ - here;
    const double away = 1 - own_bytes[i];
    const double away_messages = (all_messages - own_messages[i]) * engine.message.value;
    const double own_time = own_messages[i] * engine.message.value;
    const auto share = [&](double count, double part, double bytes, double messages) {
      return count * (part * bytes / node.rate + messages);
    };
    double out =
        share(here, away, up, trips * away_messages) + share(others, own_bytes[i], down, own_time);
    double in =
        share(here, away, down, away_messages) + share(others, own_bytes[i], up, trips * own_time);
    if (gathers) out = in = here * others * (up / node.rate + engine.message.value);
    loads.at(variable, i) += out;
    loads.at(variable, n + i) += in;
    const double inside = own_bytes[i] * std::max(0.0, here - 1) * (up + down);
    loads.at(variable, 2 * n + i) += seconds_for(inside, node.intra);
    worst = std::max(worst, std::min(slice, own_bytes[i] * std::max(up, down)) / node.rate +
                                engine.message.value + node.latency);
    const double moved = (out + in) * node.rate * engine.send_cpu_s_per_byte;
    loads.stolen[i] += moved;
  }
  const double install = at_owner ? fixed.install : fixed.install_updating;
  for (std::uint32_t rank : members_) {
    loads.at(variable, 3 * n + rank) += install;
    loads.stolen[node_of_rank_[rank]] += install;
  }
  loads.trip[variable] = (fetches ? 4 : 2) * worst + install;
  std::fill(owned.begin(), owned.end(), 0.0);
}

void Analytic::add_servers(const Point& point, std::size_t variable, Loads& loads) const {
  const Choice& choice = point.choices[variable];
  std::vector<double> owned(node_of_rank_.size());
  for (std::uint32_t place : choice.places) {
    owned[rank_of_server_[place]] += 1 / static_cast<double>(choice.places.size());
  }
  add_owned(point, variable, owned, loads);
}

// The shards of a group, one after another, in as many contiguous parts as there are members.
void Analytic::add_groups(const Point& point, Loads& loads) const {
  struct Shard {
    std::uint32_t variable = 0;
    double part = 1;
  };
  std::map<std::pair<std::uint32_t, ir::UpdateAt>, std::vector<Shard>> groups;
  for (std::uint32_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (choice.way != Way::kAllReduce || !variables_[i].trained) continue;
    for (std::uint32_t place : choice.places) {
      groups[{place, choice.update_at}].push_back(
          {i, 1 / static_cast<double>(choice.places.size())});
    }
  }
  std::map<std::uint32_t, std::vector<double>> owned;  // by variable
  for (const auto& [group, shards] : groups) {
    double total = 0;
    for (const Shard& shard : shards) total += variables_[shard.variable].bytes * shard.part;
    double before = 0;
    for (const Shard& shard : shards) {
      std::vector<double>& own = owned[shard.variable];
      own.resize(node_of_rank_.size());
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
  for (auto& [variable, own] : owned) add_owned(point, variable, own, loads);
}

Analytic::Loads Analytic::loads_of(const Point& point) const {
  Loads loads;
  loads.sides = 3 * nodes_.size() + node_of_rank_.size();
  loads.of.resize(loads.sides * variables_.size());
  loads.trip.resize(variables_.size());
  loads.stolen.resize(nodes_.size());
  if (members_.size() < 2) return loads;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].trained && point.choices[i].way == Way::kServers) {
      add_servers(point, i, loads);
    }
  }
  add_groups(point, loads);
  return loads;
}

std::string Analytic::name_of(std::size_t side) const {
  const std::size_t n = nodes_.size();
  if (side < n) return nodes_[side].name + " sends";
  if (side < 2 * n) return nodes_[side - n].name + " receives";
  if (side < 3 * n) return "inside " + nodes_[side - 2 * n].name;
  return fmt::format("the owner's work at rank {}", side - 3 * n);
}

Score Analytic::score(const Point& point) const {
  Loads loads = loads_of(point);
  double worst = compute_;
  std::size_t where = loads.sides;
  std::uint32_t chain = 0;
  double all = 0;
  for (std::size_t side = 0; side < loads.sides; ++side) {
    double sum = 0;
    double first = compute_;  // the first gradient among those needed so far
    for (std::uint32_t v : by_need_) {
      const double load = loads.at(v, side);
      if (load <= 0) continue;
      const Fixed& fixed = variables_[v];
      // What is late may lag by so many steps.
      const double slack = 1.0 + point.choices[v].staleness;
      sum += load;
      first = std::min(first, fixed.complete);
      const double step = std::max(sum, (sum + first - fixed.needed) / slack);
      if (step > worst) {
        worst = step;
        where = side;
      }
    }
    all += sum;
  }
  for (std::uint32_t v : by_need_) {
    const Fixed& fixed = variables_[v];
    const double round =
        (fixed.complete - fixed.needed + loads.trip[v]) / (1.0 + point.choices[v].staleness);
    if (round <= worst) continue;
    worst = round;
    where = loads.sides + 1;
    chain = v;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {  // the engine's work on the ranks' own cores
    if (nodes_[i].members == 0 || !costs_.device(ir::Rank(nodes_[i].lowest)).on_host) continue;
    const double cores = costs_.cores != 0 ? costs_.cores : nodes_[i].members;
    const double step =
        compute_ * nodes_[i].members / std::max(cores, nodes_[i].members) + loads.stolen[i] / cores;
    if (step <= worst) continue;
    worst = step;
    where = loads.sides;
  }
  Score score;
  score.step = Seconds(worst);
  score.rank = worst + kPlateau * all / static_cast<double>(loads.sides);
  if (where == loads.sides) {
    score.bound = "compute";
  } else if (where > loads.sides) {
    score.bound = fmt::format("the way round '{}'", space_.graph().variables[chain].name);
  } else {
    score.bound = name_of(where);
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
