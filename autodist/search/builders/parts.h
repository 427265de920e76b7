// What builders and the search (autosync/) make strategies of: options as values, the replicas, the
// servers' loads, a variable's node in one piece or in shards. Private to search/.

#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/base/id.h"
#include "autodist/base/nearest.h"
#include "autodist/base/units.h"
#include "autodist/search/builders/builders.h"

namespace autodist::search {

// An option as a value; all throw Error(kUsage) naming the option.
bool truth(const BuilderOptions& options, const std::string& key);
std::int32_t whole(const BuilderOptions& options, const std::string& key, std::int32_t least);
// A size in MiB, above 0, in bytes.
double mebibytes(const BuilderOptions& options, const std::string& key);
// A time in ms, above 0.
Seconds milliseconds(const BuilderOptions& options, const std::string& key);

template <typename Value>
Value one_of(const BuilderOptions& options, const std::string& key,
             const std::vector<std::pair<std::string, Value>>& known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    if (name == options.at(key)) return value;
    names.push_back(name);
  }
  fail(ErrorCode::kUsage, "builder: {}='{}', one of {} expected{}", key, options.at(key),
       fmt::join(names, ", "), nearest_hint(options.at(key), names));
}

bool is_compressor(const std::string& name);
// From compressor and density, and local_proxy_variable, sync and staleness where the builder has
// them; without a destination.
strategy::PsSynchronizer ps_of(const BuilderOptions& options);
// From compressor, density, rank, warm_start and algorithm, and all_reduce_spec where the builder
// has it; of group 0.
strategy::AllReduceSynchronizer all_reduce_of(const BuilderOptions& options);

// A strategy without nodes: every GPU is a replica, then the CPUs of nodes without GPUs.
strategy::Strategy with_replicas(const cluster::Cluster& cluster);

// The bytes given to every server so far.
class Loads {
 public:
  explicit Loads(const cluster::Cluster& cluster);
  // A server takes bytes in proportion to its weight, above 0 for at least one; those of weight 0
  // take nothing.
  Loads(std::vector<std::string> servers, std::vector<double> weights);

  // The `count` least loaded servers for their weight, the first of equals first, cycled where
  // there are fewer; each takes an equal share of `bytes`.
  std::vector<std::string> give(double bytes, std::int64_t count);

 private:
  std::vector<std::string> servers_;
  std::vector<double> weights_;
  std::vector<double> bytes_;
};

// How a variable is cut.
struct Cut {
  std::size_t axis = 0;
  std::int64_t shards = 1;
};

// The node of a variable: whole, or in as many shards as `cut` says. `synchronizer_of` is asked
// once for the whole, or for every shard in order.
strategy::NodeConfig node_of(
    const ir::Graph& graph, ir::VariableId variable, const Cut& cut,
    const std::function<strategy::Synchronizer(std::int64_t shard)>& synchronizer_of);

// Calls `visit` with every variable's id, in graph order.
template <typename Visit>
void for_each_variable(const ir::Graph& graph, Visit visit) {
  for (std::size_t i = 0; i < graph.variables.size(); ++i) visit(ir::VariableId(i));
}

// ir::bytes_of() as a number to calculate with.
inline double byte_count(const ir::Graph& graph, ir::VariableId variable) {
  return static_cast<double>(ir::bytes_of(graph, variable).value);
}

}  // namespace autodist::search
