#include "autodist/passes/supported.h"

#include <cmath>
#include <unordered_map>
#include <vector>

#include "autodist/base/error.h"
#include "autodist/passes/exchange_choice.h"

namespace autodist::passes {
namespace {

const char* name_of(SynchronizerKind kind) {
  switch (kind) {
    case SynchronizerKind::kParameterServer:
      return "a parameter server";
    case SynchronizerKind::kDirect:
      return "a direct all-reduce";
    case SynchronizerKind::kLibrary:
      return "a library's all-reduce";
  }
  return "";
}

[[noreturn]] void refuse(const strategy::NodeConfig& node, const std::string& what,
                         const std::string& where) {
  fail(ErrorCode::kInfeasible, "{}: '{}' asks for {}", where, strategy::variable_name(node.name),
       what);
}

// Factors are summed by a library; everything else is encoded for an owner, who decodes it.
void check_compression(const strategy::NodeConfig& node,
                       const strategy::AllReduceSynchronizer& all_reduce,
                       const std::string& where) {
  using strategy::AllReduceAlgorithm;
  const program::Compression compression = strategy::compression_of(node.synchronizer);
  if (compression.codec == program::Codec::kNone ||
      all_reduce.algorithm == AllReduceAlgorithm::kBySpec) {
    return;
  }
  const bool factors = strategy::sums_factors(node.synchronizer);
  const AllReduceAlgorithm fitting =
      factors ? AllReduceAlgorithm::kLibrary : AllReduceAlgorithm::kDirect;
  if (all_reduce.algorithm == fitting) return;
  refuse(node,
         fmt::format("{} of an all-reduce with algorithm={}, which {}; use algorithm={}",
                     program::to_string(compression), name_of(all_reduce.algorithm),
                     factors ? "does not sum factors" : "sums what it is given", name_of(fitting)),
         where);
}

void check_synchronizer(const strategy::NodeConfig& node, const std::string& where) {
  if (const auto* ps = std::get_if<strategy::PsSynchronizer>(&node.synchronizer)) {
    if (ps->staleness > kMostStaleness) {
      fail(ErrorCode::kInfeasible, "{}: '{}' has staleness={}, at most {} expected", where,
           strategy::variable_name(node.name), ps->staleness, kMostStaleness);
    }
    if (ps->local_replication && ps->delivery == program::Delivery::kAsked) {
      refuse(node,
             "results that are asked for and a proxy, to which they are pushed; use "
             "local_proxy_variable=false or results=pushed",
             where);
    }
  }
  if (const auto* all_reduce = std::get_if<strategy::AllReduceSynchronizer>(&node.synchronizer)) {
    if (kind_of(node.synchronizer) == SynchronizerKind::kLibrary &&
        all_reduce->update_at == program::UpdateAt::kOwner) {
      refuse(node,
             "a library's all-reduce with update_at=owner, and a library's sums have no owner; use "
             "algorithm=direct",
             where);
    }
    check_compression(node, *all_reduce, where);
  }
}

// How far a variable's ranks may be apart: "" for not at all.
std::string lag_of(const strategy::Synchronizer& synchronizer) {
  const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer);
  if (ps == nullptr) return "";
  if (!ps->sync) return "sync=false";
  return ps->staleness == 0 ? "" : fmt::format("staleness={}", ps->staleness);
}

std::string lag_of(const strategy::NodeConfig& node) {
  return lag_of(node.parts.empty() ? node.synchronizer : node.parts.front().synchronizer);
}

// A norm over all of a step's gradients is a barrier, which a lag is there to avoid.
void check_norm(const std::string& variable, const std::string& lag, const std::string& what,
                const std::string& where) {
  if (lag.empty()) return;
  fail(ErrorCode::kInfeasible,
       "{}: '{}' has {}, and {} needs every step's gradients at once. Use sync=true and "
       "staleness=0, or leave that out.",
       where, variable, lag, what);
}

bool asks(const strategy::Synchronizer& synchronizer) {
  const auto* ps = std::get_if<strategy::PsSynchronizer>(&synchronizer);
  return ps != nullptr && ps->delivery == program::Delivery::kAsked;
}

void check_node(const strategy::NodeConfig& node, const std::string& where) {
  if (node.needed && !(std::isfinite(node.needed->value) && node.needed->value >= 0)) {
    fail(ErrorCode::kUsage, "{}: '{}' is needed at {} s, a time from 0 on expected", where,
         node.name, node.needed->value);
  }
  if (node.parts.empty()) return check_synchronizer(node, where);
  const strategy::NodeConfig& first = node.parts.front();
  const SynchronizerKind kind = kind_of(first.synchronizer);
  for (const strategy::NodeConfig& part : node.parts) {
    check_synchronizer(part, where);
    const SynchronizerKind other = kind_of(part.synchronizer);
    if (other != kind) {
      fail(ErrorCode::kInfeasible,
           "{}: shard '{}' goes to {}, '{}' to {}. Use one way for all shards of a variable.",
           where, part.name, name_of(other), first.name, name_of(kind));
    }
    if (lag_of(part.synchronizer) != lag_of(node)) {
      const auto or_none = [](const std::string& lag) { return lag.empty() ? "no lag" : lag; };
      fail(ErrorCode::kInfeasible,
           "{}: shard '{}' has {}, '{}' has {}. Use one for all shards of a variable.", where,
           part.name, or_none(lag_of(part.synchronizer)), first.name, or_none(lag_of(node)));
    }
    const auto expect = [&](bool alike, const char* of, const char* fault) {
      if (alike) return;
      fail(ErrorCode::kInfeasible, "{}: {}shards '{}' and '{}' are {}", where, of, part.name,
           first.name, fault);
    };
    expect(strategy::updates_at_owner(part.synchronizer) ==
               strategy::updates_at_owner(first.synchronizer),
           "", "updated at different places. Use one update_at for all shards of a variable.");
    expect(asks(part.synchronizer) == asks(first.synchronizer), "the results of ",
           "asked for in part. Use results=asked for all shards of a variable or for none.");
    expect(
        strategy::compression_of(part.synchronizer) == strategy::compression_of(first.synchronizer),
        "", "compressed differently. Use one way for all shards of a variable.");
  }
}

}  // namespace

void check_supported(const strategy::Strategy& strategy, const ir::Graph& graph,
                     const std::string& where) {
  std::unordered_map<std::string, std::string> lags;
  for (const strategy::NodeConfig& node : strategy.nodes) {
    check_node(node, where);
    lags[strategy::variable_name(node.name)] = lag_of(node);
  }
  for (const ir::Variable& variable : graph.variables) {
    if (variable.update.rule != ir::Rule::kLamb) continue;
    check_norm(variable.name, lags[variable.name], "LAMB", where);
  }
  std::vector<bool> clipped(graph.variables.size());
  for (const ir::Clip& clip : graph.clips) {
    for (ir::VariableId variable : clip.variables) {
      if (clipped[variable.value]) {
        fail(ErrorCode::kUsage, "graph '{}': two clips name the variable '{}', one expected",
             graph.name, graph.variable(variable).name);
      }
      clipped[variable.value] = true;
      const std::string& name = graph.variable(variable).name;
      check_norm(name, lags[name], "clipping by a norm", where);
    }
  }
}

void check_loss_scaling(const strategy::Strategy& strategy, const std::string& where) {
  const auto check = [&](const strategy::NodeConfig& node) {
    const std::string name = strategy::variable_name(node.name);
    check_norm(name, lag_of(node), "loss scaling", where);
    if (strategy::compression_of(node.synchronizer).error_feedback) {
      fail(ErrorCode::kInfeasible,
           "{}: '{}' is compressed with error feedback; a step that loss scaling skips would lose "
           "what earlier ones owe. Use a codec without feedback.",
           where, name);
    }
  };
  for (const strategy::NodeConfig& node : strategy.nodes) {
    check(node);
    for (const strategy::NodeConfig& part : node.parts) check(part);
  }
}

void check_encrypted(const program::Program& program, const std::string& where) {
  for (const program::Collective& collective : program.collectives) {
    if (collective.members.size() < 2) continue;
    fail(ErrorCode::kInfeasible,
         "{}: '{}' asks for a library's all-reduce, which sends in clear what this job encrypts. "
         "Use algorithm=direct; on a trusted network --encrypt off (in a program: "
         "JobOptions::encryption, in Python encrypt='off')",
         where, program.graph->variable(collective.variables.front()).name);
  }
}

}  // namespace autodist::passes
