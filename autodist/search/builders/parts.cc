#include "autodist/search/builders/parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "autodist/base/numbers.h"

namespace autodist::search {

using strategy::NodeConfig;
using strategy::PsSynchronizer;
using strategy::Strategy;

bool truth(const BuilderOptions& options, const std::string& key) {
  const std::string& value = options.at(key);
  if (value == "true" || value == "True" || value == "1") return true;
  if (value == "false" || value == "False" || value == "0") return false;
  fail(ErrorCode::kUsage, "builder: {}='{}', true or false expected. Write {}=true, say.", key,
       value, key);
}

std::int32_t whole(const BuilderOptions& options, const std::string& key, std::int32_t least) {
  const std::string& text = options.at(key);
  const auto value = as_number<std::int32_t>(text);
  if (!value || *value < least) {
    fail(ErrorCode::kUsage,
         "builder: {}='{}', a whole number of at least {} expected. Write {}={}, say.", key, text,
         least, key, std::max(least, 1));
  }
  return *value;
}

namespace {

double above_zero(const BuilderOptions& options, const std::string& key, const char* unit) {
  const std::string& text = options.at(key);
  const auto value = as_number<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0) {
    fail(ErrorCode::kUsage, "builder: {}='{}', a number of {} above 0 expected. Write {}=5, say.",
         key, text, unit, key);
  }
  return *value;
}

// AutoDist's names stand in AutoDist's field of the file, for its readers; ours in the other one.
using Compressed = std::pair<strategy::Compressor, program::Compression>;
const std::vector<std::pair<std::string, Compressed>> kCompressors{
    {"NoneCompressor", {strategy::Compressor::kNone, {}}},
    {"HorovodCompressor", {strategy::Compressor::kHorovod, {}}},
    {"HorovodCompressorEF", {strategy::Compressor::kHorovodEf, {}}},
    {"PowerSGDCompressor", {strategy::Compressor::kPowerSgd, {}}},
    {"fp16", {{}, {program::Codec::kFp16, false, 0}}},
    {"fp16+ef", {{}, {program::Codec::kFp16, true, 0}}},
    {"bf16", {{}, {program::Codec::kBf16, false, 0}}},
    {"bf16+ef", {{}, {program::Codec::kBf16, true, 0}}},
    {"topk", {{}, {program::Codec::kTopK, true, 0}}},
    {"powersgd", {{}, {program::Codec::kPowerSgd, true, 0, 1}}}};

double density(const BuilderOptions& options) {
  const std::string& text = options.at("density");
  const auto value = as_number<double>(text);
  if (!value || !(*value > 0 && *value <= 1)) {
    fail(ErrorCode::kUsage,
         "builder: density='{}', a share above 0 and up to 1 expected. Write density=0.01, say.",
         text);
  }
  return *value;
}

void set_compression(const BuilderOptions& options, strategy::AllReduceSynchronizer& to) {
  std::tie(to.compressor, to.compression) = one_of<Compressed>(options, "compressor", kCompressors);
  if (to.compression.codec == program::Codec::kTopK) to.compression.density = density(options);
  if (to.compression.codec == program::Codec::kPowerSgd && options.count("rank") > 0) {
    to.compression.rank = whole(options, "rank", 1);
    to.compression.warm_start = truth(options, "warm_start");
  }
}

// One of an enumeration's values, by name.
template <typename Value, std::size_t count>
Value named(const BuilderOptions& options, const std::string& key, const Value (&values)[count]) {
  std::vector<std::pair<std::string, Value>> choices;
  for (const Value value : values) choices.emplace_back(name_of(value), value);
  return one_of<Value>(options, key, choices);
}

}  // namespace

double mebibytes(const BuilderOptions& options, const std::string& key) {
  return above_zero(options, key, "MiB") * (1 << 20);
}

Seconds milliseconds(const BuilderOptions& options, const std::string& key) {
  return Seconds(above_zero(options, key, "ms") * 1e-3);
}

bool is_compressor(const std::string& name) {
  return std::any_of(kCompressors.begin(), kCompressors.end(),
                     [&](const auto& each) { return each.first == name; });
}

PsSynchronizer ps_of(const BuilderOptions& options) {
  PsSynchronizer ps;
  strategy::AllReduceSynchronizer compressed;
  set_compression(options, compressed);
  ps.compression = strategy::compression_of(compressed);
  if (strategy::sums_factors(ps)) {
    fail(ErrorCode::kUsage,
         "builder: compressor={} sums factors of a matrix, which takes an all-reduce. Take "
         "AllReduce, or compressor=fp16, bf16 or topk.",
         options.at("compressor"));
  }
  if (options.count("sync") == 0) return ps;
  ps.local_replication = truth(options, "local_proxy_variable");
  ps.sync = truth(options, "sync");
  ps.staleness = whole(options, "staleness", 0);
  ps.delivery = named(options, "results", program::kDeliveries);
  if (ps.staleness > 0 && !ps.sync) {
    fail(ErrorCode::kUsage,
         "builder: staleness={} needs sync=true. Leave one of staleness and sync=false out.",
         ps.staleness);
  }
  return ps;
}

strategy::AllReduceSynchronizer all_reduce_of(const BuilderOptions& options) {
  using strategy::AllReduceSpec;
  strategy::AllReduceSynchronizer all_reduce;
  if (options.count("all_reduce_spec") > 0) {
    all_reduce.spec = one_of<AllReduceSpec>(options, "all_reduce_spec",
                                            {{"AUTO", AllReduceSpec::kAuto},
                                             {"NCCL", AllReduceSpec::kNccl},
                                             {"RING", AllReduceSpec::kRing}});
  }
  set_compression(options, all_reduce);
  all_reduce.algorithm = named(options, "algorithm", strategy::kAllReduceAlgorithms);
  all_reduce.update_at = named(options, "update_at", program::kUpdatePlaces);
  return all_reduce;
}

Strategy with_replicas(const cluster::Cluster& cluster) {
  Strategy strategy;
  std::vector<std::string> cpus;
  // Ranks begin with the chief's; replicas are listed in file order.
  std::vector<cluster::Place> places = cluster::ranks_of(cluster);
  std::stable_sort(
      places.begin(), places.end(),
      [](const cluster::Place& a, const cluster::Place& b) { return a.node < b.node; });
  for (const cluster::Place& place : places) {
    if (place.serves_only) continue;
    const bool gpu = place.device.kind == cluster::DeviceKind::kGpu;
    (gpu ? strategy.replicas : cpus).push_back(cluster::device_name(cluster, place));
  }
  strategy.replicas.insert(strategy.replicas.end(), cpus.begin(), cpus.end());
  return strategy;
}

Loads::Loads(const cluster::Cluster& cluster) : servers_(cluster::servers_of(cluster)) {
  weights_.assign(servers_.size(), 1);
  bytes_.resize(servers_.size());
}

Loads::Loads(std::vector<std::string> servers, std::vector<double> weights) {
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (weights[i] <= 0) continue;
    servers_.push_back(std::move(servers[i]));
    weights_.push_back(weights[i]);
  }
  bytes_.resize(servers_.size());
}

std::vector<std::string> Loads::give(double bytes, std::int64_t count) {
  std::vector<std::size_t> order(servers_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytes_[a] * weights_[b] < bytes_[b] * weights_[a];
  });
  std::vector<std::string> chosen;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t server = order[static_cast<std::size_t>(i) % order.size()];
    bytes_[server] += bytes / static_cast<double>(count);
    chosen.push_back(servers_[server]);
  }
  return chosen;
}

NodeConfig node_of(const ir::Graph& graph, ir::VariableId variable, const Cut& cut,
                   const std::function<strategy::Synchronizer(std::int64_t)>& synchronizer_of) {
  const std::string& name = graph.variable(variable).name;
  NodeConfig node;
  node.name = strategy::node_name(name);
  if (cut.shards == 1) {
    node.synchronizer = synchronizer_of(0);
    return node;
  }
  const std::size_t axes = ir::shape_of(graph, variable).size();
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (axis > 0) node.partitioner += ",";
    node.partitioner += std::to_string(axis == cut.axis ? cut.shards : 1);
  }
  for (std::int64_t i = 0; i < cut.shards; ++i) {
    const std::string part = strategy::node_name(fmt::format("{}/part_{}", name, i));
    node.parts.push_back({part, synchronizer_of(i), "", {}, {}});
  }
  return node;
}

}  // namespace autodist::search
