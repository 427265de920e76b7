// Where a search begins, and its candidates in order when it ends.

#include <algorithm>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/search/autosync/autosync.h"
#include "autodist/search/builders/builders.h"

namespace autodist::search {
namespace {

bool comes_before(const Candidate& a, const Candidate& b) {
  if (a.judgement.has_value() != b.judgement.has_value()) return a.judgement.has_value();
  if (a.judgement) return *a.judgement < *b.judgement;
  if (a.refused.empty() != b.refused.empty()) return a.refused.empty();
  return a.scored < b.scored;
}

}  // namespace

Found::Found(std::vector<Candidate> all) : candidates(std::move(all)) {
  std::stable_sort(candidates.begin(), candidates.end(), comes_before);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].builder) continue;
    ++builders;
    if (!candidates[i].judgement) continue;
    ++builders_judged;
    if (!best_builder) best_builder = i;
  }
  if (candidates.empty() || !best().judgement) {
    std::string reason;
    for (const Candidate& candidate : candidates) reason = std::max(reason, candidate.refused);
    fail(ErrorCode::kInfeasible, "search: no strategy can be carried out: {}", reason);
  }
  if (!best().judgement->fits()) {
    fail(ErrorCode::kInfeasible,
         "search: no strategy fits in memory; '{}' lacks least: {} on a device. Use a smaller "
         "batch, or devices with more.",
         best().name, to_string(best().judgement->missing));
  }
}

double Found::speedup() const {
  if (!best_builder) return 1;
  return candidates[*best_builder].judgement->step / best().judgement->step;
}

std::vector<std::string> seeds() {
  std::vector<std::string> specifications;
  for (const Builder& builder : builders()) {
    const auto has = [&](const char* name) {
      return std::any_of(builder.options.begin(), builder.options.end(),
                         [&](const auto& option) { return option.first == name; });
    };
    const bool capped = has("max_shards");
    specifications.push_back(builder.name + (capped ? ":max_shards=40" : ""));
    // What is all-reduced may be so by a library, too.
    if (has("chunk_size") || has("bucket_mib") || has("fusion_mib")) {
      if (!capped) specifications.push_back(builder.name + ":algorithm=library");
    }
  }
  return specifications;
}

std::vector<Candidate> seed_candidates(const ir::Graph& graph, const cluster::Cluster& cluster,
                                       const Space& space) {
  std::vector<Candidate> candidates;
  for (const std::string& specification : seeds()) {
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
