#include "tools/rank_rnn/plan_sequence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "autodist/base/check.h"
#include "autodist/ir/rows.h"

namespace autodist::learned {
namespace {

// Whose bytes are one queue: a server's by its device, a group's by its number.
std::string queue_of(const strategy::Synchronizer& synchronizer) {
  if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer)) {
    return ps->reduction_destination;
  }
  const auto* reduce = std::get_if<strategy::AllReduceSynchronizer>(&synchronizer);
  return reduce == nullptr ? "" : "group " + std::to_string(reduce->group);
}

struct QueuedPart {
  const strategy::Synchronizer* synchronizer;
  double bytes;
};

struct Row {
  ir::VariableId variable;
  std::vector<QueuedPart> parts;  // one where it is not partitioned
};

std::vector<Row> rows_of(const strategy::Strategy& strategy, const ir::Graph& graph) {
  std::map<std::string, ir::VariableId> by_name;
  for (std::size_t i = 0; i < graph.variables.size(); ++i) {
    by_name.emplace(graph.variables[i].name, ir::VariableId(i));
  }
  std::vector<Row> rows;
  for (const strategy::NodeConfig& node : strategy.nodes) {
    const auto found = by_name.find(strategy::variable_name(node.name));
    if (found == by_name.end()) continue;
    Row row{found->second, {}};
    const auto bytes = static_cast<double>(ir::bytes_of(graph, found->second).value);
    if (node.parts.empty()) row.parts.push_back({&node.synchronizer, bytes});
    for (const strategy::NodeConfig& part : node.parts) {
      row.parts.push_back({&part.synchronizer, bytes / static_cast<double>(node.parts.size())});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_synchronizer(const strategy::Synchronizer& synchronizer, std::vector<float>& row) {
  using strategy::AllReduceAlgorithm;
  const auto flag = [&row](bool is) { row.push_back(is ? 1.0F : 0.0F); };
  const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer);
  const auto* reduce = std::get_if<strategy::AllReduceSynchronizer>(&synchronizer);
  const auto is = [reduce](AllReduceAlgorithm algorithm) {
    return reduce != nullptr && reduce->algorithm == algorithm;
  };
  flag(ps != nullptr);
  flag(ps != nullptr && ps->local_replication);
  flag(ps != nullptr && (!ps->sync || ps->staleness > 0));
  flag(is(AllReduceAlgorithm::kLibrary));
  flag(is(AllReduceAlgorithm::kRing) ||
       (is(AllReduceAlgorithm::kBySpec) && reduce->spec == strategy::AllReduceSpec::kRing));
  flag(is(AllReduceAlgorithm::kTree));
  flag(is(AllReduceAlgorithm::kHierarchical));
  flag(is(AllReduceAlgorithm::kSufficientFactors));
  flag(reduce != nullptr && reduce->update_at == program::UpdateAt::kEveryRank);
  flag(strategy::compression_of(synchronizer).codec != program::Codec::kNone);
}

void add_cluster(const cluster::Cluster& cluster, std::vector<float>& row) {
  double slowest = cluster.nodes.front().bandwidth_bytes_per_s;
  for (const cluster::Node& node : cluster.nodes) {
    slowest = std::min(slowest, node.bandwidth_bytes_per_s);
  }
  row.push_back(static_cast<float>(std::log2(cluster.nodes.size())));
  row.push_back(static_cast<float>(std::log10(slowest)));
}

}  // namespace

std::vector<std::vector<float>> plan_sequence(const strategy::Strategy& strategy,
                                              const ir::Graph& graph,
                                              const cluster::Cluster& cluster) {
  const std::vector<Row> rows = rows_of(strategy, graph);
  std::map<std::string, double> queued;
  double all = 0;
  for (const Row& row : rows) {
    for (const QueuedPart& part : row.parts) {
      queued[queue_of(*part.synchronizer)] += part.bytes;
      all += part.bytes;
    }
  }
  std::vector<std::vector<float>> sequence;
  for (const Row& of : rows) {
    double bytes = 0;
    double fullest = 0;
    for (const QueuedPart& part : of.parts) {
      bytes += part.bytes;
      fullest = std::max(fullest, queued[queue_of(*part.synchronizer)]);
    }
    const strategy::Synchronizer& first = *of.parts.front().synchronizer;
    std::vector<float> row;
    row.push_back(static_cast<float>(std::log10(1 + bytes)));
    row.push_back(static_cast<float>(bytes / std::max(1.0, all)));
    row.push_back(static_cast<float>(ir::shape_of(graph, of.variable).size()));
    row.push_back(ir::trained_by_rows(graph.variable(of.variable)) ? 1.0F : 0.0F);
    row.push_back(static_cast<float>(std::log2(of.parts.size())));
    row.push_back(static_cast<float>(fullest / std::max(1.0, all)));
    row.push_back(static_cast<float>(sequence.size()) / static_cast<float>(rows.size()));
    row.push_back(static_cast<float>(std::log2(queued.size())));
    add_synchronizer(first, row);
    add_cluster(cluster, row);
    AD_CHECK(row.size() == kStepFeatures) << row.size();
    sequence.push_back(std::move(row));
  }
  return sequence;
}

}  // namespace autodist::learned
