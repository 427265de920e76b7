#include "autodist/planning/alternatives.h"

#include "autodist/base/error.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/planning.h"
#include "autodist/search/builders/builders.h"

namespace autodist::planning {

std::vector<report::Alternative> alternatives_of(std::shared_ptr<const ir::Graph> graph,
                                                 const cluster::Cluster& cluster,
                                                 const passes::Options& asked,
                                                 const std::string& chosen, std::int64_t batch) {
  passes::Options options = declared_options(cluster, *graph, asked.cpu_only);
  options.verify_each = false;
  options.batch = asked.batch;
  std::vector<report::Alternative> alternatives;
  for (const search::Builder& builder : search::builders()) {
    report::Alternative each;
    each.name = builder.name;
    each.description = builder.description;
    each.chosen = chosen.substr(0, chosen.find(':')) == builder.name;
    // With its own options where it is the chosen one.
    const StrategyRequest request{each.chosen ? chosen : builder.name, "", {}};
    std::vector<std::string> warnings;
    try {
      const strategy::Strategy strategy = choose_strategy(request, *graph, cluster, warnings);
      each.busiest = report::busiest_rank(
          passes::rewrite(graph, strategy, cluster, options, source_of(request)), batch);
    } catch (const Error& error) {
      each.refused = error.what();
    }
    alternatives.push_back(std::move(each));
  }
  return alternatives;
}

}  // namespace autodist::planning
