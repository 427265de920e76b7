#include "autodist/search/autosync/seeds.h"

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/search/builders/builders.h"

namespace autodist::search {

using strategy::AllReduceAlgorithm;

std::vector<std::string> seeds(const Allowed& allowed) {
  std::string by;  // what the systems' sums travel by here; empty: neither is allowed
  for (const AllReduceAlgorithm each : {AllReduceAlgorithm::kLibrary, AllReduceAlgorithm::kRing}) {
    if (by.empty() && allowed.has(each)) by = strategy::name_of(each);
  }
  std::vector<std::string> specifications;
  for (const Builder& builder : builders()) {
    const auto has = [&](const char* name) {
      return std::any_of(builder.options.begin(), builder.options.end(),
                         [&](const auto& option) { return option.first == name; });
    };
    const bool capped = has("max_shards");
    specifications.push_back(builder.name + (capped ? ":max_shards=40" : ""));
    const bool groups = has("chunk_size") || has("bucket_mib") || has("fusion_mib");
    if (groups && !capped && !by.empty()) {
      specifications.push_back(builder.name + ":algorithm=" + by);
    }
  }
  if (allowed.has(AllReduceAlgorithm::kSufficientFactors)) {
    specifications.push_back(kRecommended);
  }
  if (allowed.has(AllReduceAlgorithm::kHierarchical)) {
    specifications.emplace_back(kForSharedNodes);
  }
  return specifications;
}

program::Program seed_program(const Judge& judge, const ir::Graph& graph,
                              const cluster::Cluster& cluster) {
  std::string reason;
  for (const std::string& specification : seeds()) {
    try {
      return judge.program_of(build_strategy(specification, graph, cluster));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInfeasible) throw;
      reason = error.what();
    }
  }
  fail(ErrorCode::kInfeasible, "search: no builder's strategy can be carried out: {}", reason);
}

std::vector<Candidate> seed_candidates(const ir::Graph& graph, const cluster::Cluster& cluster,
                                       const Space& space) {
  std::vector<Candidate> candidates;
  for (const std::string& specification : seeds(space.allowed())) {
    Candidate candidate;
    candidate.name = specification;
    candidate.builder = true;
    candidate.strategy = build_strategy(specification, graph, cluster);
    candidate.point = space.point_of(candidate.strategy);
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

}  // namespace autodist::search
