#include "autodist/search/autosync/space.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <tuple>

#include "autodist/base/check.h"
#include "autodist/ir/factors.h"
#include "autodist/ir/rows.h"
#include "autodist/passes/supported.h"
#include "autodist/search/builders/parts.h"

namespace autodist::search {
namespace {

using strategy::AllReduceAlgorithm;
using strategy::AllReduceSynchronizer;
using strategy::PsSynchronizer;

constexpr double kGroups = 20;  // AutoSync, section 3

bool by_rows(const ir::Graph& graph, ir::VariableId id) {
  return ir::trained_by_rows(graph.variable(id));
}

// A variable, as algorithms of all-reduce ask for it.
struct Reduced {
  bool by_rows = false;
  bool has_factors = false;
};

// What an algorithm needs of a variable; "" where it has it.
struct AlgorithmRow {
  AllReduceAlgorithm algorithm;
  const char* (*lacks)(const Choice& choice, Reduced variable);
};

const char* lacks_for_whole(const Choice& choice, Reduced variable) {
  if (variable.by_rows) return "a dense gradient";
  if (choice.places.size() > 1) return "the variable in one piece";
  if (choice.update_at == program::UpdateAt::kOwner) return "update_at=every_rank";
  return choice.compression.codec == program::Codec::kNone ? "" : "no compression";
}

// Where gradients are added on the way.
const char* lacks_for_adding(const Choice& choice, Reduced variable) {
  if (variable.by_rows) return "a dense gradient";
  return choice.compression.codec == program::Codec::kNone ? "" : "no compression";
}

const AlgorithmRow kAlgorithms[] = {
    {AllReduceAlgorithm::kDirect, [](const Choice&, Reduced) { return ""; }},
    {AllReduceAlgorithm::kLibrary, lacks_for_whole},
    {AllReduceAlgorithm::kHierarchical, lacks_for_adding},
    {AllReduceAlgorithm::kRing, lacks_for_adding},
    {AllReduceAlgorithm::kTree, lacks_for_adding},
    {AllReduceAlgorithm::kSufficientFactors,
     [](const Choice& choice, Reduced variable) {
       if (!variable.has_factors) return "a gradient that is a product of two small matrices";
       return lacks_for_whole(choice, variable);
     }},
};

Choice choice_of(const strategy::Synchronizer& synchronizer) {
  Choice choice;
  choice.compression = strategy::compression_of(synchronizer);
  if (const auto* ps = std::get_if<PsSynchronizer>(&synchronizer)) {
    choice.proxy = ps->local_replication;
    choice.staleness = ps->staleness;
    return choice;
  }
  const auto& all_reduce = std::get<AllReduceSynchronizer>(synchronizer);
  choice.kind = ChoiceKind::kAllReduce;
  const bool by_spec = all_reduce.algorithm == AllReduceAlgorithm::kBySpec;
  choice.algorithm = by_spec ? AllReduceAlgorithm::kDirect : all_reduce.algorithm;
  choice.update_at = all_reduce.update_at;
  return choice;
}

bool is_beyond_choices(const strategy::Synchronizer& synchronizer) {
  const auto* ps = std::get_if<PsSynchronizer>(&synchronizer);
  return ps != nullptr && (!ps->sync || ps->delivery != program::Delivery{});
}

}  // namespace

bool operator==(const Choice& a, const Choice& b) {
  const auto tied = [](const Choice& c) {
    return std::tie(c.kind, c.axis, c.places, c.proxy, c.staleness, c.algorithm, c.update_at);
  };
  return tied(a) == tied(b) && a.compression == b.compression;
}

bool operator==(const Point& a, const Point& b) {
  return a.slice_bytes == b.slice_bytes && a.batch_shares == b.batch_shares &&
         a.choices == b.choices;
}

Space::Space(const ir::Graph& graph, const cluster::Cluster& cluster, Allowed allowed,
             std::int64_t batch)
    : graph_(graph), cluster_(cluster), allowed_(std::move(allowed)) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    servers_.push_back(cluster::device_name(cluster, {i, cluster::Device{}, 0, true}));
    rates_.push_back(cluster.nodes[i].bandwidth_bytes_per_s);
  }
  std::set<std::size_t> nodes;
  for (const cluster::Place& place : cluster::ranks_of(cluster)) {
    if (place.serves_only) continue;
    ++replicas_;
    nodes.insert(place.node);
  }
  // What would be the direct one.
  if (nodes.size() == 1 || nodes.size() == replicas_) forbid(AllReduceAlgorithm::kHierarchical);
  if (replicas_ < 3) {
    forbid(AllReduceAlgorithm::kRing);
    forbid(AllReduceAlgorithm::kTree);
  }
  for_each_variable(graph, [&](ir::VariableId id) {
    has_factors_.push_back(
        ir::factors_pay(graph, id, replicas_, batch == 0 ? graph.example_batch : batch));
  });
  if (replicas_ < 2 || std::count(has_factors_.begin(), has_factors_.end(), true) == 0) {
    forbid(AllReduceAlgorithm::kSufficientFactors);
  }
  clipped_.resize(graph.variables.size());
  for (const ir::Clip& clip : graph.clips) {
    for (ir::VariableId variable : clip.variables) clipped_[variable.value] = true;
  }
}

void Space::forbid(AllReduceAlgorithm algorithm) { std::erase(allowed_.algorithms, algorithm); }

std::optional<std::string> Space::why_not_split(ir::VariableId variable,
                                                const Choice& choice) const {
  const std::string& name = graph_.variable(variable).name;
  const auto shards = static_cast<std::int64_t>(choice.places.size());
  if (shards == 0) return fmt::format("'{}': no shard has a place, one expected", name);
  if (shards == 1) return {};
  const std::vector<std::int64_t> shape = ir::shape_of(graph_, variable);
  if (choice.axis >= shape.size()) {
    return fmt::format("'{}' has {} axes, no axis {}", name, shape.size(), choice.axis);
  }
  if (shape[choice.axis] < shards) {
    return fmt::format("'{}' has {} rows along axis {}, cannot be split in {}", name,
                       shape[choice.axis], choice.axis, shards);
  }
  if (shards > allowed_.most_shards) {
    return fmt::format("'{}' in {} shards, at most {} allowed", name, shards, allowed_.most_shards);
  }
  if (choice.axis != 0 && graph_.variable(variable).sparse_gradient) {
    return fmt::format("'{}' has a sparse gradient, whose rows travel whole: split axis 0", name);
  }
  return {};
}

std::optional<std::string> Space::why_not_reduce(ir::VariableId variable,
                                                 const Choice& choice) const {
  const std::string& name = graph_.variable(variable).name;
  if (choice.staleness != 0 || choice.proxy) {
    return fmt::format("'{}': staleness and proxies are of parameter servers", name);
  }
  const auto row =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                   [&](const auto& each) { return each.algorithm == choice.algorithm; });
  if (row == std::end(kAlgorithms) || !allowed_.has(choice.algorithm)) {
    return fmt::format("'{}': algorithm={} is not among those allowed", name,
                       strategy::name_of(choice.algorithm));
  }
  const bool rows = by_rows(graph_, variable);
  if (rows && choice.update_at == program::UpdateAt::kOwner) {
    return fmt::format("'{}' is trained by rows, which their owners update anyway", name);
  }
  const std::string lacks = row->lacks(choice, {rows, has_factors_[variable.value]});
  if (!lacks.empty()) return fmt::format("'{}': this algorithm needs {}", name, lacks);
  return {};
}

std::optional<std::string> Space::why_not_late(ir::VariableId variable,
                                               const Choice& choice) const {
  if (choice.staleness == 0) return {};
  const ir::Variable& of = graph_.variable(variable);
  const std::int32_t most = std::min(allowed_.most_staleness, passes::kMostStaleness);
  if (choice.staleness < 0 || choice.staleness > most) {
    return fmt::format("'{}' with staleness {}, at most {} allowed", of.name, choice.staleness,
                       most);
  }
  if (clipped_[variable.value] || of.update.rule == ir::Rule::kLamb) {
    return fmt::format("'{}' is in a norm over all of a step's gradients, which cannot be stale",
                       of.name);
  }
  return {};
}

std::optional<std::string> Space::why_not(ir::VariableId variable, const Choice& choice) const {
  const ir::Variable& of = graph_.variable(variable);
  if (auto reason = why_not_split(variable, choice)) return reason;
  const auto& codecs = allowed_.compressions;
  if (choice.compression.codec != program::Codec::kNone &&
      std::find(codecs.begin(), codecs.end(), choice.compression) == codecs.end()) {
    return fmt::format("'{}': {} changes what is computed and was not allowed", of.name,
                       program::to_string(choice.compression));
  }
  if (choice.kind == ChoiceKind::kAllReduce) return why_not_reduce(variable, choice);
  for (std::uint32_t place : choice.places) {
    if (place >= servers_.size()) {
      return fmt::format("'{}': server {}, there are {}", of.name, place, servers_.size());
    }
  }
  if (choice.proxy && !by_rows(graph_, variable)) {
    return fmt::format("'{}' is dense: every replica has a copy of it anyway", of.name);
  }
  return why_not_late(variable, choice);
}

std::vector<std::int64_t> Space::shard_counts(std::int64_t rows) const {
  const auto n = static_cast<std::int64_t>(servers_.size());
  std::set<std::int64_t> counts{2, n, 2 * n, 4 * n, allowed_.most_shards};
  std::vector<std::int64_t> kept;
  for (std::int64_t count : counts) {
    if (count >= 2 && count <= std::min(rows, allowed_.most_shards)) kept.push_back(count);
  }
  return kept;
}

std::vector<std::uint32_t> Space::axes(ir::VariableId variable) const {
  const std::vector<std::int64_t> shape = ir::shape_of(graph_, variable);
  if (shape.empty() || ir::element_count(graph_, variable) == 0) return {};
  const auto longest =
      static_cast<std::uint32_t>(std::max_element(shape.begin(), shape.end()) - shape.begin());
  if (longest == 0 || graph_.variable(variable).sparse_gradient) return {0};
  return {0, longest};
}

std::vector<Choice> Space::plain_choices(ir::VariableId variable) const {
  std::vector<Choice> plain;
  const auto n = static_cast<std::uint32_t>(servers_.size());
  for (std::uint32_t server = 0; server < n; ++server) {
    Choice whole;
    whole.places = {server};
    plain.push_back(whole);
  }
  const std::vector<std::int64_t> shape = ir::shape_of(graph_, variable);
  for (std::uint32_t axis : axes(variable)) {
    if (n < 2) break;
    for (std::int64_t count : shard_counts(shape[axis])) {
      Choice split;
      split.axis = axis;
      split.places.clear();
      for (std::int64_t i = 0; i < count; ++i) {
        split.places.push_back(static_cast<std::uint32_t>(i) % n);
      }
      plain.push_back(split);
    }
  }
  for (AllReduceAlgorithm algorithm : allowed_.algorithms) {
    for (const program::UpdateAt at : program::kUpdatePlaces) {
      Choice reduce;
      reduce.kind = ChoiceKind::kAllReduce;
      reduce.algorithm = algorithm;
      reduce.update_at = at;
      reduce.places = {variable.value};
      plain.push_back(reduce);
    }
  }
  return plain;
}

std::vector<Choice> Space::options(ir::VariableId variable) const {
  std::vector<Choice> all;
  const auto keep = [&](const Choice& choice) {
    if (!why_not(variable, choice)) all.push_back(choice);
  };
  for (const Choice& choice : plain_choices(variable)) {
    keep(choice);
    Choice changed = choice;
    changed.proxy = true;
    keep(changed);
    changed = choice;
    for (const program::Compression& compression : allowed_.compressions) {
      changed.compression = compression;
      keep(changed);
    }
    changed = choice;
    changed.staleness = allowed_.most_staleness;
    if (changed.staleness > 0) keep(changed);
  }
  AD_CHECK(!all.empty()) << graph_.variable(variable).name;
  return all;
}

double Space::log10_points() const {
  double digits = 0;
  const double ways = 2 * static_cast<double>(allowed_.algorithms.size());
  for (std::size_t i = 0; i < graph_.variables.size(); ++i) {
    const std::vector<std::int64_t> shape = ir::shape_of(graph_, ir::VariableId(i));
    // A sum of powers, kept as its largest term and the rest relative to it.
    double largest = 0;
    std::vector<double> terms;
    for (std::size_t axis = 0; axis < std::max<std::size_t>(1, shape.size()); ++axis) {
      const std::int64_t rows = shape.empty() ? 1 : shape[axis];
      const bool split = axis == 0 || !graph_.variables[i].sparse_gradient;
      const std::int64_t most = split ? std::min(rows, allowed_.most_shards) : 0;
      for (std::int64_t k = axis == 0 ? 1 : 2; k <= most; ++k) {
        terms.push_back(static_cast<double>(k) * std::log10(static_cast<double>(servers_.size())));
        terms.push_back(static_cast<double>(k) * std::log10(kGroups) + std::log10(ways));
      }
    }
    for (double term : terms) largest = std::max(largest, term);
    double sum = 0;
    for (double term : terms) sum += std::pow(10.0, term - largest);
    if (sum > 0) digits += largest + std::log10(sum);
  }
  return digits;
}

strategy::Synchronizer Space::synchronizer_of(const Choice& choice) {
  if (choice.kind == ChoiceKind::kAllReduce) {
    AllReduceSynchronizer reduce;
    reduce.algorithm = choice.algorithm;
    reduce.compression = choice.compression;
    reduce.update_at = choice.update_at;
    return reduce;
  }
  PsSynchronizer ps;
  ps.local_replication = choice.proxy;
  ps.staleness = choice.staleness;
  ps.compression = choice.compression;
  return ps;
}

strategy::Synchronizer Space::synchronizer_at(const Choice& choice, std::uint32_t place) const {
  strategy::Synchronizer synchronizer = synchronizer_of(choice);
  if (auto* const reduce = std::get_if<AllReduceSynchronizer>(&synchronizer)) {
    reduce->group = static_cast<std::int32_t>(place);
  } else {
    std::get<PsSynchronizer>(synchronizer).reduction_destination = servers_[place];
  }
  return synchronizer;
}

strategy::Strategy Space::strategy_of(const Point& point) const {
  strategy::Strategy strategy = with_replicas(cluster_);
  strategy.slice_bytes = point.slice_bytes;
  strategy.batch_shares = point.batch_shares;
  for_each_variable(graph_, [&](ir::VariableId id) {
    const Choice& choice = point.choices[id.value];
    const Cut cut{choice.axis, static_cast<std::int64_t>(choice.places.size())};
    strategy.nodes.push_back(
        node_of(graph_, id, cut, [&](std::int64_t shard) -> strategy::Synchronizer {
          return synchronizer_at(choice, choice.places[static_cast<std::size_t>(shard)]);
        }));
  });
  return strategy;
}

std::optional<Point> Space::point_of(const strategy::Strategy& strategy) const {
  Point point;
  point.slice_bytes = strategy.slice_bytes;
  point.batch_shares = strategy.batch_shares;
  if (strategy.nodes.size() != graph_.variables.size()) return {};
  const auto place_of = [&](const strategy::Synchronizer& each) -> std::optional<std::uint32_t> {
    if (const auto* reduce = std::get_if<AllReduceSynchronizer>(&each)) {
      return static_cast<std::uint32_t>(reduce->group);
    }
    const std::string node =
        cluster::address_of(std::get<PsSynchronizer>(each).reduction_destination);
    for (std::uint32_t i = 0; i < servers_.size(); ++i) {
      if (cluster_.nodes[i].address == node) return i;
    }
    return {};
  };
  for (std::size_t i = 0; i < strategy.nodes.size(); ++i) {
    const strategy::NodeConfig& node = strategy.nodes[i];
    if (strategy::variable_name(node.name) != graph_.variables[i].name) return {};
    std::vector<const strategy::Synchronizer*> shards;
    for (const strategy::NodeConfig& part : node.parts) shards.push_back(&part.synchronizer);
    if (shards.empty()) shards.push_back(&node.synchronizer);
    Choice choice = choice_of(*shards.front());
    if (!by_rows(graph_, ir::VariableId(i))) choice.proxy = false;
    choice.places.clear();
    for (const strategy::Synchronizer* shard : shards) {
      Choice same = choice_of(*shard);
      const auto place = place_of(*shard);
      if (is_beyond_choices(*shard) || !place || same.kind != choice.kind ||
          same.update_at != choice.update_at || same.staleness != choice.staleness ||
          !(same.compression == choice.compression)) {
        return {};
      }
      choice.places.push_back(*place);
    }
    if (!node.partitioner.empty()) {
      choice.axis =
          static_cast<std::uint32_t>(strategy::parse_partitioner(node.partitioner, node.name).axis);
    }
    point.choices.push_back(std::move(choice));
  }
  return point;
}

}  // namespace autodist::search
