#include "autodist/search/autosync/judge.h"

#include "autodist/base/error.h"

namespace autodist::search {

Judge::Judge(std::shared_ptr<const ir::Graph> graph, const cluster::Cluster& cluster,
             passes::Options options, Costs costs, sim::SimulationOptions how, Correct correct)
    : graph_(std::move(graph)),
      cluster_(cluster),
      options_(std::move(options)),
      costs_(std::move(costs)),
      how_(how),
      correct_(std::move(correct)) {
  options_.verify_each = false;
  options_.dump = nullptr;
}

program::Program Judge::program_of(strategy::Strategy strategy) const {
  strategy::fix_priorities(strategy, *graph_);
  return passes::rewrite(graph_, strategy, cluster_, options_, "search");
}

std::optional<Judgement> Judge::operator()(const strategy::Strategy& strategy, std::string& why_not,
                                           Seconds hopeless) const {
  program::Program program;
  try {
    program = program_of(strategy);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInfeasible) throw;
    why_not = error.what();
    return {};
  }
  sim::SimulationOptions how = how_;
  how.hopeless = hopeless;
  const sim::Simulation simulation = sim::simulate(program, cluster_, costs_(program), how);
  Judgement judgement;
  judgement.in_full = !simulation.abandoned;
  judgement.by_library = !program.collectives.empty();
  judgement.symmetric = simulation.simulated_ranks < program.ranks.size();
  judgement.simulated = simulation.step;
  judgement.step = correct_ ? correct_(strategy, program, simulation) : judgement.simulated;
  judgement.plan_bound = simulation.bounds.plan;
  judgement.problem_bound = simulation.bounds.problem;
  judgement.bound = sim::bound_name(simulation.bounds);
  judgement.peak = sim::peak_bytes(simulation.memory);
  judgement.missing = sim::missing_bytes(simulation.memory);
  judgement.waits.resize(graph_->variables.size());
  for (const sim::Waited& wait : simulation.waits) {
    judgement.waits[wait.variable.value] = wait.seconds.value;
  }
  return judgement;
}

}  // namespace autodist::search
