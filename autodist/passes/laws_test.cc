// What holds for every Program, over random graphs, strategies and clusters.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "autodist/ir/testing/random_graph.h"
#include "autodist/passes/pipeline.h"
#include "autodist/passes/testing/small_jobs.h"

namespace autodist::passes {
namespace {

constexpr int kRounds = 200;

enum class Mix { kAnything, kParameterServers, kDirect };

struct Job {
  GraphPointer graph;
  cluster::Cluster cluster;
  strategy::Strategy strategy;
  Options options;

  [[nodiscard]] program::Program program() const {
    return rewrite(graph, strategy, cluster, options, "random");
  }
};

class Random {
 public:
  explicit Random(std::uint32_t seed) : random_(seed) {}

  Job job(Mix mix) {
    Job job;
    job.graph = std::make_shared<const ir::Graph>(ir::random_graph(random_));
    job.cluster = hosts(1 + below(4));
    for (cluster::Node& node : job.cluster.nodes) node.slots = static_cast<unsigned>(below(3));
    if (job.cluster.nodes.size() > 1 && below(3) == 0) {
      job.cluster.nodes.back().role = cluster::NodeRole::kServer;
      job.cluster.nodes.back().slots = 0;
    }
    servers_ = cluster::servers_of(job.cluster);
    job.strategy = plan(*job.graph, job.cluster, [&](auto) { return synchronizer(mix); });
    for (std::size_t i = 0; i < job.strategy.nodes.size(); ++i) {
      refine(*job.graph, ir::VariableId(i), mix, job.strategy.nodes[i]);
    }
    if (job.strategy.replicas.size() > 1 && below(4) == 0) job.strategy.replicas.pop_back();
    job.options.slice_bytes = Bytes{4 + below(60)};
    job.options.fuse_below = Bytes{below(40)};
    return job;
  }

  ir::Graph with_other_costs(ir::Graph graph) {
    for (ir::Op& op : graph.ops) op.cost = {Seconds(below(100) * 1e-3), Seconds(0.5)};
    return graph;
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  strategy::Synchronizer synchronizer(Mix mix) {
    const int kind = mix == Mix::kAnything ? below(3) : mix == Mix::kDirect ? 1 : 0;
    if (kind == 0) return ps(servers_[random_() % servers_.size()]);
    return kind == 1 ? direct(below(3)) : library(below(2));
  }

  void refine(const ir::Graph& graph, ir::VariableId id, Mix mix, strategy::NodeConfig& node) {
    if (below(3) == 0) node.needed = Seconds(below(20) * 1e-3);
    const auto rows = ir::shape_of(graph, id)[0];
    if (rows < 2 || below(2) == 0) return;
    const auto one = synchronizer(mix);
    const bool servers = std::holds_alternative<strategy::PsSynchronizer>(one);
    const int shards = 2 + below(static_cast<int>(rows) - 1);
    split(node, 0, 2, shards,
          [&](int) { return servers ? synchronizer(Mix::kParameterServers) : one; });
  }

  std::mt19937 random_;
  std::vector<std::string> servers_;
};

// REQUIRES: no library collective.
std::map<program::Rank, std::int64_t> owned_bytes(const program::Program& program) {
  std::map<program::Rank, std::int64_t> owned;
  for (const program::Slice& slice : program.slices)
    owned[slice.owner] += program::bytes_of(slice).value;
  return owned;
}

TEST(Programs, CoverEveryElementOfEveryTrainedVariableExactlyOnce) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    const Job job = random.job(Mix::kAnything);
    const program::Program program = job.program();
    const auto replicas = program.replica_count();
    for (std::size_t i = 0; i < job.graph->variables.size(); ++i) {
      const ir::VariableId id(i);
      const program::VariablePlan& plan = program.plan(id);
      std::vector<int> covered(static_cast<std::size_t>(ir::element_count(*job.graph, id)));
      const auto row = covered.size() / static_cast<std::size_t>(ir::shape_of(*job.graph, id)[0]);
      for (const program::Slice& slice : program.slices) {
        for (const program::Piece& piece : slice.pieces) {
          const program::Shard& shard = program.shard(piece.shard);
          if (shard.variable != id) continue;
          for (auto e = piece.begin; e < piece.end; ++e) {
            ++covered[static_cast<std::size_t>(shard.begin) * row + static_cast<std::size_t>(e)];
          }
        }
      }
      const bool trained = job.graph->variables[i].gradient.has_value();
      const int times = plan.slices.empty() ? 0 : 1;
      EXPECT_EQ(std::count(covered.begin(), covered.end(), times),
                static_cast<std::ptrdiff_t>(covered.size()));
      if (!trained) {
        EXPECT_TRUE(plan == program::VariablePlan{});
      } else if (replicas > 1) {
        EXPECT_NE(plan.slices.empty(), !plan.collective.has_value());
      }
    }
  }
}

TEST(Programs, AreTheSameWhateverTheOpsCost) {
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    Job job = random.job(Mix::kAnything);
    const program::Program program = job.program();
    EXPECT_EQ(program::to_text(job.program()), program::to_text(program));
    job.graph = std::make_shared<const ir::Graph>(random.with_other_costs(*job.graph));
    const program::Program other = job.program();
    EXPECT_EQ(program::digest_of(other), program::digest_of(program));
    EXPECT_TRUE(other.slices == program.slices);
    EXPECT_TRUE(other.roles == program.roles);
  }
}

TEST(Programs, KeepSlicesWithinTheLimitAndSortedByNeed) {
  Random random(3);
  for (int round = 0; round < kRounds; ++round) {
    const Job job = random.job(Mix::kAnything);
    const program::Program program = job.program();
    std::vector<program::Rank> members;
    for (std::size_t i = 0; i < program.ranks.size(); ++i) {
      if (program.ranks[i].replica) members.emplace_back(i);
    }
    Seconds last;
    for (const program::Slice& slice : program.slices) {
      if (!std::holds_alternative<program::Rows>(
              slice.exchange.payload)) {  // rows stay in one block
        EXPECT_LE(program::bytes_of(slice), job.options.slice_bytes);
      }
      EXPECT_LE(last, slice.needed);
      EXPECT_EQ(slice.members, members);
      last = slice.needed;
    }
  }
}

TEST(DirectAllReduce, GivesEveryReplicaTheSameShareButForOneElementOfADtype) {
  Random random(4);
  for (int round = 0; round < kRounds; ++round) {
    const Job job = random.job(Mix::kDirect);
    const program::Program program = job.program();
    if (program.replica_count() < 2) continue;
    std::map<DType, std::map<program::Rank, std::int64_t>> elements;
    for (const program::Slice& slice : program.slices) {
      EXPECT_TRUE(program.ranks[slice.owner.value].replica.has_value());
      // Whole rows are shared out by themselves.
      if (std::holds_alternative<program::Rows>(slice.exchange.payload)) continue;
      elements[slice.dtype][slice.owner] += program::element_count(slice);
    }
    for (auto& [dtype, owned] : elements) {
      for (std::size_t i = 0; i < program.ranks.size(); ++i) {
        if (program.ranks[i].replica) owned[program::Rank(i)];
      }
      const auto [least, most] =
          std::minmax_element(owned.begin(), owned.end(),
                              [](const auto& a, const auto& b) { return a.second < b.second; });
      EXPECT_LE(most->second - least->second, 1);
    }
  }
}

// A member that owns o of M bytes sends what it does not own once and what it owns to each of the
// other members: (M - o) + (N - 1) o. A server that is no member sends N o.
TEST(Programs, SendWhatTheClosedFormSays) {
  Random random(5);
  for (int round = 0; round < kRounds; ++round) {
    const Job job = random.job(round % 2 == 0 ? Mix::kDirect : Mix::kParameterServers);
    const program::Program program = job.program();
    const std::int64_t members = program.replica_count();
    if (members < 2) continue;
    std::int64_t all = 0;
    for (std::size_t i = 0; i < job.graph->variables.size(); ++i) {
      if (job.graph->variables[i].gradient) {
        all += ir::bytes_of(*job.graph, ir::VariableId(i)).value;
      }
    }
    std::map<program::Rank, std::int64_t> sent;
    for (const program::Slice& slice : program.slices) {
      for (program::Rank member : slice.members) {
        if (member == slice.owner) continue;
        sent[member] += program::bytes_of(slice).value;
        sent[slice.owner] += program::bytes_of(slice).value;
      }
    }
    auto owned = owned_bytes(program);
    for (std::size_t i = 0; i < program.ranks.size(); ++i) {
      const std::int64_t own = owned[program::Rank(i)];
      const std::int64_t expected =
          program.ranks[i].replica ? (all - own) + (members - 1) * own : members * own;
      EXPECT_EQ(sent[program::Rank(i)], expected) << "rank " << i;
    }
  }
}

TEST(Programs, OpenEveryGateBeforeTheFirstReadAndReleaseAfterTheLast) {
  Random random(6);
  for (int round = 0; round < kRounds; ++round) {
    const Job job = random.job(Mix::kAnything);
    const program::Program program = job.program();
    std::vector<std::optional<std::size_t>> gate(job.graph->variables.size());
    std::vector<std::optional<std::size_t>> release(job.graph->variables.size());
    std::vector<std::size_t> computed(job.graph->ops.size());
    const auto& stream = program.roles[0].streams[0].instructions;
    for (std::size_t i = 0; i < stream.size(); ++i) {
      if (const auto* op = std::get_if<program::Compute>(&stream[i])) computed[op->op.value] = i;
      if (const auto* g = std::get_if<program::Gate>(&stream[i])) gate[g->variable.value] = i;
      if (const auto* r = std::get_if<program::Release>(&stream[i])) release[r->variable.value] = i;
    }
    for (std::size_t i = 0; i < job.graph->variables.size(); ++i) {
      const ir::Variable& variable = job.graph->variables[i];
      const program::VariablePlan& plan = program.variables[i];
      const bool synchronised = !plan.slices.empty() || plan.collective;
      EXPECT_EQ(gate[i].has_value(), synchronised);
      EXPECT_EQ(release[i].has_value(), variable.gradient.has_value());
      if (!synchronised) continue;
      if (variable.first_use) {
        EXPECT_LT(*gate[i], computed[variable.first_use->value]);
      }
      if (variable.last_read) {
        EXPECT_GT(*release[i], computed[variable.last_read->value]);
      }
    }
  }
}

}  // namespace
}  // namespace autodist::passes
