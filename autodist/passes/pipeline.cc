#include "autodist/passes/pipeline.h"

#include <utility>

#include "autodist/passes/pass.h"
#include "autodist/passes/supported.h"

namespace autodist::passes {

const std::vector<Pass>& passes() {
  static const std::vector<Pass> list{
      {"partition", partition, false},
      {"replicate", replicate, false},
      {"place", place, false},
      {"synchronise", synchronise, true},
      {"fuse", fuse, true},
      {"order", order, true},
      {"lower", lower, false},  // rewrite() verifies the result itself
  };
  return list;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : passes()) names.emplace_back(pass.name);
  return names;
}

program::Program rewrite(std::shared_ptr<const ir::Graph> graph, const strategy::Strategy& strategy,
                         const cluster::Cluster& cluster, const Options& options,
                         const std::string& where) {
  strategy::check(strategy, *graph, cluster, where);
  check_supported(strategy, *graph, where);
  if (options.loss_scaling) check_loss_scaling(strategy, where);

  State state{strategy, cluster, options, where, {}, {}, {}, {}, {}, {}, {}};
  state.program.graph = std::move(graph);
  state.program.variables.resize(state.graph().variables.size());
  state.program.window = state.window();
  for (const Pass& pass : passes()) {
    pass.function(state);
    if (pass.complete && options.verify_each) {
      State whole = state;
      lower(whole);
      program::verify(whole.program);
    }
    if (options.dump) options.dump(pass.name, program::to_text(state.program));
  }
  program::verify(state.program);
  if (options.encrypted) check_encrypted(state.program, where);
  return std::move(state.program);
}

}  // namespace autodist::passes
