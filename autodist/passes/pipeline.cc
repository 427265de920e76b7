// The ordered list of passes, and the runner.

#include "autodist/passes/pipeline.h"

#include "autodist/passes/pass.h"

namespace autodist::passes {
namespace {

constexpr Pass kPasses[] = {
    {"partition", partition}, {"replicate", replicate}, {"synchronise", synchronise},
    {"fuse", fuse},           {"order", order},         {"lower", lower},
};

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

ir::Program rewrite(std::shared_ptr<const ir::Graph> graph, const strategy::Strategy& strategy,
                    const cluster::Cluster& cluster, const Options& options,
                    const std::string& where) {
  strategy::check(strategy, *graph, cluster, where);
  State state{*graph, strategy, cluster, options, where, {}, {}, {}, {}};
  state.program.graph = graph;
  state.program.variables.resize(graph->variables.size());
  for (const Pass& pass : kPasses) {
    pass.run(state);
    if (options.dump) options.dump(pass.name, ir::to_text(state.program));
  }
  ir::verify(state.program);
  return std::move(state.program);
}

}  // namespace autodist::passes
