#include "autodist/search/builders/builders.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "autodist/base/error.h"
#include "autodist/base/nearest.h"
#include "autodist/search/builders/algorithms.h"

namespace autodist::search {
namespace {

std::vector<std::string> names_of(const std::vector<std::pair<std::string, std::string>>& options) {
  std::vector<std::string> names;
  for (const auto& [name, value] : options) names.push_back(name);
  return names;
}

const Builder& find_builder(const std::string& name) {
  std::vector<std::string> names;
  for (const Builder& builder : builders()) {
    if (builder.name == name) return builder;
    names.push_back(builder.name);
  }
  const std::string meant = nearest(name, names);
  fail(ErrorCode::kUsage, "builder: '{}' is unknown, one of {} expected{}", name,
       fmt::join(names, ", "), meant.empty() ? "" : fmt::format(". Nearest: '{}'.", meant));
}

// "key=value,…" over the builder's defaults.
BuilderOptions parse_options(const Builder& builder, const std::string& text) {
  BuilderOptions options(builder.options.begin(), builder.options.end());
  std::set<std::string> given;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, comma - begin);
    begin = comma + 1;
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    if (equals == std::string::npos || options.count(key) == 0) {
      const std::string meant = nearest(key, names_of(builder.options));
      fail(ErrorCode::kUsage, "builder {}: '{}': one of {} as key=value expected{}", builder.name,
           item, fmt::join(names_of(builder.options), ", "),
           meant.empty() ? "" : fmt::format(". Nearest: '{}'.", meant));
    }
    if (!given.insert(key).second) {
      fail(ErrorCode::kUsage, "builder {}: the option '{}' stands twice", builder.name, key);
    }
    options[key] = item.substr(equals + 1);
  }
  return options;
}

const std::vector<std::pair<std::string, std::string>> kPsOptions{
    {"local_proxy_variable", "false"}, {"sync", "true"}, {"staleness", "0"}};
const std::vector<std::pair<std::string, std::string>> kAllReduceOptions{
    {"chunk_size", "128"},
    {"all_reduce_spec", "NCCL"},
    {"compressor", "NoneCompressor"},
    {"algorithm", "by_spec"}};
const std::vector<std::pair<std::string, std::string>> kPartitionedArOptions{
    {"chunk_size", "128"}, {"algorithm", "by_spec"}};

}  // namespace

const std::vector<Builder>& builders() {
  static const std::vector<Builder> table{
      {"PS", "every variable on the first CPU device", kPsOptions, build_ps},
      {"PSLoadBalancing", "each variable whole, on the server with the fewest bytes so far",
       kPsOptions, build_ps_load_balancing},
      {"PartitionedPS",
       "each variable in as many shards as its first dimension's least divisor, over "
       "the servers in order of load",
       kPsOptions, build_partitioned_ps},
      {"UnevenPartitionedPS",
       "like PartitionedPS, in the least number of shards that does not divide", kPsOptions,
       build_uneven_partitioned_ps},
      {"AllReduce", "all-reduce, chunk_size variables to a group", kAllReduceOptions,
       build_all_reduce},
      {"PartitionedAR", "shards as PartitionedPS, each all-reduced; groups count shards",
       kPartitionedArOptions, build_partitioned_all_reduce},
  };
  return table;
}

strategy::Strategy build_strategy(const std::string& specification, const ir::Graph& graph,
                                  const cluster::Cluster& cluster) {
  const std::size_t colon = specification.find(':');
  const Builder& builder = find_builder(specification.substr(0, colon));
  const std::string options = colon == std::string::npos ? "" : specification.substr(colon + 1);
  return builder.build(graph, cluster, parse_options(builder, options));
}

}  // namespace autodist::search
