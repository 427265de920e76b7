// The part of the tables that says what lies between ranks.

#include <algorithm>
#include <map>

#include "autodist/base/check.h"
#include "autodist/program/slice_size.h"
#include "autodist/sim/job_tables.h"

namespace autodist::sim {
namespace {

constexpr double kLeastLatency = 1e-9;  // nothing happens at two nodes at one moment

}  // namespace

void JobTables::add_nodes(const program::Program& program, const cluster::Cluster& cluster,
                          const CostModel& costs) {
  std::map<std::string, std::uint32_t> by_address;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const cluster::Node& node = cluster.nodes[i];
    by_address.emplace(node.address, static_cast<std::uint32_t>(i));
    NodeTable table;
    table.bytes_per_s = node.bandwidth_bytes_per_s * costs.engine.goodput;
    if (costs.engine.goodput_bytes_per_s > 0) {
      table.bytes_per_s = std::min(table.bytes_per_s, costs.engine.goodput_bytes_per_s);
    }
    table.latency = std::max(node.latency.value, kLeastLatency);
    table.intra_bytes_per_s = node.intra_node_bytes_per_s;
    nodes.push_back(std::move(table));
  }
  std::vector<double> ports;
  for (const NodeTable& node : nodes) ports.push_back(node.bytes_per_s);
  uplinks = Uplinks(cluster, ports);
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const auto found = by_address.find(program.ranks[r].node);
    AD_CHECK(found != by_address.end()) << "rank " << r << " is on " << program.ranks[r].node;
    node_of_rank.push_back(found->second);
    nodes[found->second].ranks.push_back(static_cast<std::uint32_t>(r));
  }
  for (NodeTable& node : nodes) {
    const auto computing = std::count_if(node.ranks.begin(), node.ranks.end(), [&](auto rank) {
      return program.computes(program::Rank(rank)) && costs.device(program::Rank(rank)).on_host;
    });
    node.cores = costs.cores != 0 ? costs.cores : static_cast<std::uint32_t>(computing);
  }
}

CollectiveLinks JobTables::links_between(const std::vector<program::Rank>& members) const {
  std::vector<std::uint32_t> ring;
  for (program::Rank member : members) ring.push_back(node_of_rank[member.value]);
  std::vector<NodeLinks> of_nodes;
  for (const NodeTable& node : nodes) {
    of_nodes.push_back({node.bytes_per_s, Seconds(node.latency), node.intra_bytes_per_s});
  }
  return links_of(ring, of_nodes, uplinks);
}

void JobTables::add_collectives(const program::Program& program, const CostModel& costs) {
  CollectiveLinks links;  // of the members before: most plans have the same everywhere
  for (const program::Collective& collective : program.collectives) {
    CollectiveTable table;
    for (ir::VariableId variable : collective.variables) table.variables.push_back(variable.value);
    const program::LibraryLoads loads = loads_of(*program.graph, collective);
    const auto element = static_cast<std::int64_t>(size_of(collective.dtype));
    table.bytes = loads.first * element;
    table.second_bytes = loads.second * element;
    const auto factored = static_cast<double>(loads.factored * element);
    table.members = &collective.members;
    if (collectives.empty() || collective.members != *collectives.back().members) {
      links = links_between(collective.members);
    }
    table.wire_seconds = all_reduce_seconds(costs.collectives, links, Bytes(table.bytes)).value;
    if (table.second_bytes > 0) {
      table.wire_seconds +=
          all_reduce_seconds(costs.collectives, links, Bytes(table.second_bytes)).value;
    }
    const bool on_host = costs.device(collective.members.front()).on_host;
    const auto size = static_cast<double>(table.bytes + table.second_bytes);
    if (on_host) {
      table.copy_seconds = 2 * seconds_for(size, costs.engine.install_bytes_per_s) +
                           2 * seconds_for(factored, costs.engine.encode_bytes_per_s);
      if (links.ranks > 1) table.cpu_seconds = 2 * size * costs.collectives.cpu_s_per_byte;
    }
    collectives.push_back(std::move(table));
  }
}

}  // namespace autodist::sim
