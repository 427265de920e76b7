// What a variable loads: cards, owners and cores.

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "autodist/base/check.h"
#include "autodist/search/autosync/analytic.h"

namespace autodist::search {
namespace {

using sim::seconds_for;

double to_double(Bytes bytes) { return static_cast<double>(bytes.value); }

// Calls visit(first, last) for the shards of each group, in the order of their variables. Those of
// one variable in one group are equal.
template <typename Visit>
void for_each_group(std::vector<Analytic::Loads::Scratch::Shard>& shards, Visit visit) {
  const auto group = [](const auto& shard) { return std::pair(shard.group, shard.at_every_rank); };
  std::sort(shards.begin(), shards.end(), [&](const auto& a, const auto& b) {
    return std::tuple(group(a), a.variable) < std::tuple(group(b), b.variable);
  });
  for (auto first = shards.begin(); first != shards.end();) {
    const auto last = std::find_if(
        first, shards.end(), [&](const auto& shard) { return group(shard) != group(*first); });
    visit(first, last);
    first = last;
  }
}

}  // namespace

Analytic::Traffic Analytic::traffic_of(const VariableFacts& facts, const Choice& choice,
                                       Bytes slice) const {
  const program::Exchange exchange = Space::exchange_of(choice, facts.exchange);
  const program::Loads each = program::loads_of(exchange, facts.size);
  Traffic traffic;
  traffic.by_library = !goes_in_slices(exchange);
  traffic.sums_products = sums_products(exchange);
  traffic.up = to_double(each.contribution);  // questions count as messages: numbers are few bytes
  traffic.down = to_double(each.result + each.fetched);
  traffic.fetched = to_double(each.fetched);
  traffic.with_rows = open_steps(exchange) == 1 && !updates_on_arrival(exchange);
  traffic.slice = to_double(largest_slice(exchange, slice));
  traffic.at_owner = makes_parameters(exchange);
  traffic.at_server = choice.kind == ChoiceKind::kServers;
  traffic.by_node = meets_on_nodes(exchange);
  traffic.to_all = goes_to_all(exchange);
  const auto relay = relays_.find(route_of(exchange));
  if (relay != relays_.end()) traffic.relay = &relay->second;
  traffic.work = work_of(facts, each, traffic.relay != nullptr);
  return traffic;
}

// What an owner of all of the variable adds up, updates and hands out, in seconds.
double Analytic::work_of(const VariableFacts& facts, const program::Loads& each,
                         bool relayed) const {
  const sim::EngineCost& engine = costs_.engine;
  const double summed = relayed ? 0 : to_double(each.summed) * members_count_;
  const double coded = to_double(each.decoded) * members_count_ + to_double(each.encoded);
  return seconds_for(summed, engine.sum_bytes_per_s) +
         seconds_for(coded, engine.encode_bytes_per_s) +
         seconds_for(to_double(each.updated) * facts.weight, engine.update_bytes_per_s) +
         seconds_for(to_double(each.fetched) * members_count_, engine.install_bytes_per_s);
}

// Every member sends its part of what a rank owns there and gets the result back.
void Analytic::add_variable(std::size_t variable, Loads& loads) const {
  const VariableFacts& facts = variables_[variable];
  const Traffic& traffic = loads.traffic[variable];
  const std::size_t n = nodes_.size();
  const std::size_t ranks = node_of_rank_.size();
  const double* owned = &loads.owned[variable * ranks];
  std::vector<double>& own = loads.scratch.own;
  std::vector<double>& messages = loads.scratch.messages;
  own.assign(n, 0);
  messages.assign(n, 0);
  double all_messages = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (owned[rank] <= 0) continue;
    const double pieces = is_small(facts, owned[rank])
                              ? loads.fused[rank]
                              : std::ceil(owned[rank] * facts.bytes / traffic.slice - 1e-9);
    own[node_of_rank_[rank]] += owned[rank];
    messages[node_of_rank_[rank]] += pieces;
    all_messages += pieces;
    const double work = traffic.work * owned[rank];
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
  const double install = traffic.at_owner ? facts.install : facts.install_updating;
  const double summed = traffic.relay ? traffic.relay->summed * facts.bytes : 0;
  const double work = install + seconds_for(summed, costs_.engine.sum_bytes_per_s);
  for (std::uint32_t rank : members_) {
    loads.at(variable, 3 * n + rank) += work;
    loads.core(variable, node_of_rank_[rank]) += work;
  }
  const double there = traffic.relay ? traffic.relay->hops : traffic.by_node ? 2 : 1;
  const bool asks_late = traffic.fetched > 0 && !traffic.with_rows;
  loads.trip[variable] = 2 * (asks_late ? 2 : there) * worst + install;
}

// Every member sends `bytes` in so many messages to all others, and works with everyone's.
void Analytic::add_to_all(std::size_t variable, double bytes, double messages, double work,
                          Loads& loads) const {
  double worst = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const double others = members_count_ - node.members;
    const double mates = node.members - 1;
    const double pairs = node.members * others;
    const double inside = node.members * mates;
    add_traffic(i, variable,
                {pairs * bytes,
                 pairs * bytes,
                 {pairs * messages, others * messages},
                 inside * bytes,
                 {inside * messages, mates * messages}},
                loads);
    loads.core(variable, i) += node.members * work;
    worst = std::max(worst, loads.at(variable, i) + node.latency);
  }
  for (std::uint32_t rank : members_) loads.at(variable, 3 * nodes_.size() + rank) += work;
  loads.trip[variable] = worst + work;
}

void Analytic::add_factors(std::size_t variable, Loads& loads) const {
  const VariableFacts& facts = variables_[variable];
  const double work = facts.multiply_seconds * members_count_ + facts.install_updating;
  add_to_all(variable, loads.traffic[variable].up, 1, work, loads);
}

// Rows that every member adds up and updates for itself.
void Analytic::add_gathered(const Point& point, std::size_t variable, Loads& loads) const {
  const VariableFacts& facts = variables_[variable];
  const Traffic& traffic = loads.traffic[variable];
  const auto shards = static_cast<double>(point.choices[variable].places.size());
  const double blocks = shards * std::ceil(facts.bytes / shards / traffic.slice - 1e-9);
  const double work = traffic.work + facts.install;
  add_to_all(variable, traffic.up, blocks, work, loads);
}

// `own`: the part of the variable that the node owns, in so many messages of all.
void Analytic::add_card(std::size_t i, const Traffic& traffic, double own, double messages,
                        double all_messages, std::size_t variable, Loads& loads) const {
  const Node& node = nodes_[i];
  const double here = traffic.by_node ? std::min(node.members, 1.0) : node.members;
  const double others = (traffic.by_node ? nodes_with_members_ : members_count_) - here;
  // Messages of a member and its owner. Up: a contribution, and where rows are fetched an ask for
  // them. Down: the result, and rows by themselves where it does not go with them.
  const double up = traffic.fetched > 0 ? 2 : 1;
  const double down = traffic.fetched > 0 && !traffic.with_rows ? 2 : 1;
  const double away = all_messages - messages;
  const double mates = std::max(0.0, node.members - 1);
  const double meeting = mates * (traffic.by_node ? all_messages : messages);  // one way
  // The owners are the server, or every member alike, who then also asks others. Where all meet at
  // one of them, members take turns from slice to slice, as they do as owners: as many turns each,
  // as if all nodes had as many members.
  const bool one = traffic.at_server || node.members < 2;
  const double owners = one ? 1 : node.members;
  const double from_one = here > 0 ? away / (traffic.by_node ? owners : 1) : 0;
  const double to_one = others * messages / owners;
  const Messages crossing{
      (up + down) / 2 * (here * away + others * messages),
      std::max(up * from_one + down * to_one, down * from_one + up * to_one),
  };
  add_traffic(i, variable,
              {here * (1 - own) * traffic.up + others * own * traffic.down,
               here * (1 - own) * traffic.down + others * own * traffic.up,
               crossing,
               (traffic.by_node ? 1 : own) * mates * (traffic.up + traffic.down),
               {2 * meeting, (one ? 1 : 2) * meeting / owners}},
              loads);
}

// What others pass on crosses a node's card, whoever owns it.
void Analytic::add_relayed(std::size_t i, const Traffic& traffic, double messages,
                           std::size_t variable, Loads& loads) const {
  const program::Relay::Node& way = traffic.relay->nodes[i];
  const double inside = way.inside * messages;  // one way
  add_traffic(i, variable,
              {way.sent * traffic.up + way.received * traffic.down,
               way.received * traffic.up + way.sent * traffic.down,
               {(way.sent + way.received) * messages, way.busiest_across * messages},
               way.inside * (traffic.up + traffic.down),
               {2 * inside, way.busiest_inside * messages}},
              loads);
}

void Analytic::add_traffic(std::size_t i, std::size_t variable, const NodeTraffic& traffic,
                           Loads& loads) const {
  const Node& node = nodes_[i];
  const sim::EngineCost& engine = costs_.engine;
  const double message = engine.message.value;
  const std::size_t n = nodes_.size();
  loads.at(variable, i) += traffic.bytes_out / node.rate + traffic.crossing.most * message;
  loads.at(variable, n + i) += traffic.bytes_in / node.rate + traffic.crossing.most * message;
  loads.at(variable, 2 * n + i) +=
      seconds_for(traffic.bytes_inside, node.intra) + traffic.inside.most * message;
  // Both ends of what stays on a node are there.
  loads.core(variable, i) +=
      2 * (traffic.crossing.all + traffic.inside.all) * message +
      (traffic.bytes_out + traffic.bytes_inside) * engine.send_cpu_s_per_byte +
      (traffic.bytes_in + traffic.bytes_inside) * engine.receive_cpu_s_per_byte;
}

// The shards of a group, one after another, in as many contiguous parts as there are members.
void Analytic::share_groups(const Point& point, Loads& loads) const {
  auto& shards = loads.scratch.shards;
  shards.clear();
  shards.reserve(variables_.size());
  for (std::uint32_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (choice.kind != ChoiceKind::kAllReduce || !variables_[i].trained) continue;
    const Traffic& traffic = loads.traffic[i];
    if (traffic.by_library || traffic.sums_products) continue;
    const double part = 1 / static_cast<double>(choice.places.size());
    const bool at_every_rank = !traffic.at_owner;
    for (std::uint32_t place : choice.places) shards.push_back({place, at_every_rank, i, part});
  }
  const std::size_t ranks = node_of_rank_.size();
  for_each_group(shards, [&](auto first, auto last) {
    double total = 0;
    for (auto shard = first; shard != last; ++shard) {
      total += variables_[shard->variable].bytes * shard->part;
    }
    const double each = total / members_count_;
    double before = 0;
    for (; first != last; ++first) {
      double* own = &loads.scratch.owned[first->variable * ranks];
      const double bytes = variables_[first->variable].bytes * first->part;
      if (variables_[first->variable].exchange.by_rows || total <= 0) {  // rows: a block per member
        for (std::uint32_t rank : members_) own[rank] += first->part / members_count_;
        continue;
      }
      for (auto m = static_cast<std::size_t>(before / each); m < members_.size(); ++m) {
        const double begin = std::max(before, each * static_cast<double>(m));
        const double end = std::min(before + bytes, each * static_cast<double>(m + 1));
        if (end <= begin) break;
        own[members_[m]] += (end - begin) / variables_[first->variable].bytes;
      }
      before += bytes;
    }
  });
}

// Library collectives have no owners: every card carries them, one after another.
void Analytic::add_library(std::size_t variable, Loads& loads) const {
  const VariableFacts& facts = variables_[variable];
  const double group = loads.library[variable];
  const Bytes bytes(static_cast<std::int64_t>(group));
  const double all = sim::all_reduce_seconds(costs_.collectives, library_links_, bytes).value;
  const double seconds = group > 0 ? all * facts.bytes / group : 0;
  const std::size_t n = nodes_.size();
  for (std::size_t node = 0; node < n; ++node) {
    if (nodes_[node].members == 0) continue;
    loads.at(variable, node) += seconds;
    loads.at(variable, n + node) += seconds;
  }
  for (std::uint32_t rank : members_) {
    loads.at(variable, 3 * n + rank) += facts.install_updating;
    loads.core(variable, node_of_rank_[rank]) +=
        facts.install_updating + 2 * facts.bytes * costs_.collectives.cpu_s_per_byte;
  }
  loads.trip[variable] = all + facts.install_updating;
}

void Analytic::find_owners(const Point& point, Loads& loads) const {
  const std::size_t ranks = node_of_rank_.size();
  std::vector<double>& owned = loads.scratch.owned;
  owned.assign(variables_.size() * ranks, 0);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const Choice& choice = point.choices[i];
    if (!variables_[i].trained || choice.kind != ChoiceKind::kServers) continue;
    for (std::uint32_t place : choice.places) {
      owned[i * ranks + rank_of_server_[place]] += 1 / static_cast<double>(choice.places.size());
    }
  }
  share_groups(point, loads);
}

void Analytic::count_fused_messages(Loads& loads) const {
  const std::size_t ranks = node_of_rank_.size();
  const std::vector<double>& owned = loads.scratch.owned;
  std::vector<double>& fused = loads.scratch.fused;  // bytes, and then messages per piece
  std::vector<double>& pieces = loads.scratch.pieces;
  fused.assign(ranks, 0);
  pieces.assign(ranks, 0);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double part = owned[i * ranks + rank];
      if (!is_small(variables_[i], part)) continue;
      fused[rank] += part * variables_[i].bytes;
      pieces[rank] += 1;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (pieces[rank] > 0) fused[rank] = std::ceil(fused[rank] / fuse_below_) / pieces[rank];
  }
}

void Analytic::sum_library_groups(const Point& point, Loads& loads) const {
  std::vector<double>& of = loads.scratch.library;
  of.assign(variables_.size(), 0);
  auto& shards = loads.scratch.shards;  // whole variables
  shards.clear();
  for (std::uint32_t i = 0; i < variables_.size(); ++i) {
    if (!variables_[i].trained || !loads.traffic[i].by_library) continue;
    shards.push_back({point.choices[i].places.front(), true, i, 1});
  }
  for_each_group(shards, [&](auto first, auto last) {
    double bytes = 0;
    for (auto shard = first; shard != last; ++shard) bytes += variables_[shard->variable].bytes;
    for (; first != last; ++first) of[first->variable] = bytes;
  });
}

// Puts into `loads` what its rows follow from besides choices: what these mean, the parts that
// ranks own, what is fused there, and the library's groups. Notes which rows must be made again.
void Analytic::take_inputs(const Point& point, Loads& loads) const {
  const std::size_t ranks = node_of_rank_.size();
  const Bytes slice = point.slice_bytes > Bytes{0} ? point.slice_bytes : slice_;
  const bool all = loads.choices.empty() || loads.slice != slice;
  Loads::Scratch& next = loads.scratch;
  std::vector<bool>& changed = next.changed;
  changed.assign(variables_.size(), all);
  bool any = all;
  loads.traffic.resize(variables_.size());
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (!all && loads.choices[i] == point.choices[i]) continue;
    loads.traffic[i] = traffic_of(variables_[i], point.choices[i], slice);
    changed[i] = any = true;
  }
  if (!any) return;
  find_owners(point, loads);
  count_fused_messages(loads);
  sum_library_groups(point, loads);
  for (std::size_t i = 0; i < variables_.size() && !all; ++i) {
    if (next.library[i] != loads.library[i]) changed[i] = true;
    for (std::size_t rank = 0; rank < ranks && !changed[i]; ++rank) {
      const double part = next.owned[i * ranks + rank];
      changed[i] = part != loads.owned[i * ranks + rank] ||
                   (is_small(variables_[i], part) && next.fused[rank] != loads.fused[rank]);
    }
  }
  loads.slice = slice;
  std::swap(loads.owned, next.owned);
  std::swap(loads.fused, next.fused);
  std::swap(loads.library, next.library);
}

void Analytic::load(const Point& point, Loads& loads) const {
  AD_CHECK(loads.filled_by == nullptr || loads.filled_by == this) << "loads of another judge";
  if (loads.filled_by == nullptr) {
    loads.filled_by = this;
    loads.sides = 3 * nodes_.size() + node_of_rank_.size();
    loads.of.resize(loads.sides * variables_.size());
    loads.trip.resize(variables_.size());
    loads.nodes = nodes_.size();
    loads.cores.resize(loads.nodes * variables_.size());
  }
  if (members_.size() < 2) return;
  take_inputs(point, loads);
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (!loads.scratch.changed[i] || !variables_[i].trained) continue;
    std::fill_n(&loads.at(i, 0), loads.sides, 0.0);
    std::fill_n(&loads.core(i, 0), loads.nodes, 0.0);
    if (loads.traffic[i].by_library) {
      add_library(i, loads);
    } else if (!loads.traffic[i].to_all) {
      add_variable(i, loads);
    } else if (loads.traffic[i].sums_products) {
      add_factors(i, loads);
    } else {
      add_gathered(point, i, loads);
    }
  }
}

}  // namespace autodist::search
