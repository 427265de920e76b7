// What a strategy may say of every variable on a cluster, as data: the choices, and for each
// whether it is legal and, if not, why. Zhang et al., "AutoSync: learning to synchronize for
// data-parallel distributed deep learning", NeurIPS 2020, section 3; ours adds the place of the
// update and the size of slices.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autodist/cluster/cluster.h"
#include "autodist/ir/graph.h"
#include "autodist/passes/exchange_choice.h"
#include "autodist/strategy/strategy.h"

namespace autodist::search {

enum class ChoiceKind : std::uint8_t { kServers, kAllReduce };

// How one variable is synchronised.
struct Choice {
  ChoiceKind kind = ChoiceKind::kServers;
  std::uint32_t axis = 0;  // along which it is split, where it is
  // One per shard: of kServers an index into Space::servers(), of kAllReduce a group.
  std::vector<std::uint32_t> places{0};
  bool proxy = false;          // kServers: a full local copy of a sparse variable
  std::int32_t staleness = 0;  // kServers
  strategy::AllReduceAlgorithm algorithm = strategy::AllReduceAlgorithm::kDirect;
  program::UpdateAt update_at = program::UpdateAt::kEveryRank;  // kAllReduce
  program::Compression compression = {};

  friend bool operator==(const Choice&, const Choice&);
};

// A strategy as a point of the space.
struct Point {
  std::vector<Choice> choices;             // by variable of the graph
  Bytes slice_bytes;                       // 0: the passes' default
  std::vector<std::int64_t> batch_shares;  // by replica; empty: equal

  friend bool operator==(const Point&, const Point&);
};

// What a search may use. Nothing by default that changes what a step computes.
struct Allowed {
  std::int64_t most_shards = 40;  // AutoSync's
  std::vector<Bytes> slice_bytes{Bytes(200'000), Bytes(100'000), Bytes(400'000), Bytes(800'000),
                                 Bytes(1'600'000)};
  // A further algorithm is one entry here and one row in space.cc's table of what each needs.
  std::vector<strategy::AllReduceAlgorithm> algorithms{
      strategy::AllReduceAlgorithm::kDirect, strategy::AllReduceAlgorithm::kLibrary,
      // where replicas share a node, and there is another one
      strategy::AllReduceAlgorithm::kHierarchical,
      // of three replicas or more
      strategy::AllReduceAlgorithm::kRing, strategy::AllReduceAlgorithm::kTree,
      // where it pays (ir/factors.h)
      strategy::AllReduceAlgorithm::kSufficientFactors};
  std::vector<program::Compression> compressions;  // beside none
  std::int32_t most_staleness = 0;

  [[nodiscard]] bool has(strategy::AllReduceAlgorithm algorithm) const {
    return std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end();
  }
};

class Space {
 public:
  // Both must outlive the space. `batch`: samples of each replica; 0: as captured.
  Space(const ir::Graph& graph, const cluster::Cluster& cluster, Allowed allowed = {},
        std::int64_t batch = 0);

  [[nodiscard]] const ir::Graph& graph() const { return graph_; }
  [[nodiscard]] const cluster::Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const Allowed& allowed() const { return allowed_; }
  // The servers of cluster::servers_of, one per node: CPUs beyond a node's first are the same
  // rank's.
  [[nodiscard]] const std::vector<std::string>& servers() const { return servers_; }
  // Payload that a server's card carries, bytes/s.
  [[nodiscard]] double rate(std::uint32_t server) const { return rates_[server]; }

  // Nothing: it may be chosen. Else one line that names the variable and what to use instead.
  [[nodiscard]] std::optional<std::string> why_not(ir::VariableId variable,
                                                   const Choice& choice) const;

  // The legal choices that a search tries of a variable: whole on every server; split evenly over
  // servers, by every count worth trying, along the first and the longest axis; all-reduced in a
  // group of its own (numbered as the variable), by every algorithm and place of the update; these
  // again with what was opted into. Never empty.
  [[nodiscard]] std::vector<Choice> options(ir::VariableId variable) const;

  // log10 of the number of points: per variable every split, every destination of every shard, and
  // every group of every shard (20 of them, as in AutoSync), by every algorithm and place of
  // update.
  [[nodiscard]] double log10_points() const;

  [[nodiscard]] strategy::Strategy strategy_of(const Point& point) const;
  // How a variable with these properties is exchanged, wherever its places are.
  [[nodiscard]] static program::Exchange exchange_of(const Choice& choice,
                                                     const passes::ExchangeFacts& facts) {
    return passes::exchange_of(synchronizer_of(choice), facts);
  }
  // Nothing where the space cannot say what the strategy says (sync=false, results that are asked
  // for, shards that differ).
  [[nodiscard]] std::optional<Point> point_of(const strategy::Strategy& strategy) const;

 private:
  // Without a place: no server is named, and the group is 0.
  [[nodiscard]] static strategy::Synchronizer synchronizer_of(const Choice& choice);
  [[nodiscard]] strategy::Synchronizer synchronizer_at(const Choice& choice,
                                                       std::uint32_t place) const;
  [[nodiscard]] std::optional<std::string> why_not_split(ir::VariableId variable,
                                                         const Choice& choice) const;
  [[nodiscard]] std::optional<std::string> why_not_reduce(ir::VariableId variable,
                                                          const Choice& choice) const;
  [[nodiscard]] std::optional<std::string> why_not_late(ir::VariableId variable,
                                                        const Choice& choice) const;
  [[nodiscard]] std::vector<std::int64_t> shard_counts(std::int64_t rows) const;
  [[nodiscard]] std::vector<std::uint32_t> axes(ir::VariableId variable) const;
  // What options() begins with: without what is opted into, legal or not.
  [[nodiscard]] std::vector<Choice> plain_choices(ir::VariableId variable) const;
  void forbid(strategy::AllReduceAlgorithm algorithm);

  const ir::Graph& graph_;
  const cluster::Cluster& cluster_;
  Allowed allowed_;
  std::vector<std::string> servers_;
  std::vector<double> rates_;
  std::uint32_t replicas_ = 0;
  std::vector<bool> clipped_;      // by variable
  std::vector<bool> has_factors_;  // by variable: its gradient is smaller as two matrices
};

}  // namespace autodist::search
