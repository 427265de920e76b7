#include "autodist/planning/searching.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autodist/base/clock.h"
#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/planning/history.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/measured.h"
#include "autodist/search/builders/builders.h"

namespace autodist::planning {
namespace {

// Fewer say more about noise than about plans.
constexpr std::size_t kLeastPlans = 12;

SimulatedPlan simulated(const std::shared_ptr<const ir::Graph>& graph,
                        const cluster::Cluster& cluster, const SearchRequest& request,
                        const search::Judge::Costs& costs, const search::Candidate& candidate) {
  SimulatedPlan result;
  result.name = candidate.name;
  result.strategy = candidate.strategy;
  strategy::fix_priorities(result.strategy, *graph);
  result.program = passes::rewrite(graph, result.strategy, cluster, request.passes, candidate.name);
  result.costs = costs(result.program);
  result.simulation = sim::simulate(result.program, cluster, result.costs);
  const auto& correct = request.options.correct;
  result.expected = correct ? correct(result.strategy, result.program, result.simulation)
                            : result.simulation.step;
  return result;
}

void take(SimulatedPlan taken, SearchedPlan& plan) {
  static_cast<SimulatedPlan&>(plan) = std::move(taken);
}

constexpr double kWorthPlacing = 0.95;  // more is within what a simulation is off by
constexpr double kLeastShare = 0.2;     // of a budget, to begin with placing

// Whether a placement may be faster: where ranks wait for links more than they compute. Where they
// do not, stages only add waiting.
bool waits_for_links(const sim::Simulation& simulation) {
  const sim::Bounds& bounds = simulation.bounds;
  return simulation.nodes.size() > 1 && std::max(bounds.card, bounds.chain) > bounds.compute &&
         simulation.step.value * kWorthPlacing > bounds.compute.value;
}

// Simulates the search's answer and the best builder, and makes the better one the plan.
void take_best(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
               const SearchRequest& request, const search::Judge::Costs& costs,
               SearchedPlan& plan) {
  SimulatedPlan answer = simulated(graph, cluster, request, costs, plan.found.best());
  if (plan.found.best_builder) {
    const search::Candidate& builder = plan.found.candidates[*plan.found.best_builder];
    plan.builder = builder.name;
    if (*plan.found.best_builder == 0) {
      plan.builder_simulation = answer.simulation;
      plan.builder_expected = answer.expected;
    } else {
      SimulatedPlan other = simulated(graph, cluster, request, costs, builder);
      plan.builder_simulation = other.simulation;
      plan.builder_expected = other.expected;
      // One by a library may be a little ahead of what the search has chosen in its place.
      const bool is_left_out = builder.judgement->by_library &&
                               !plan.found.best().judgement->by_library && !request.options.correct;
      if (other.expected < answer.expected && !is_left_out) answer = std::move(other);
    }
  }
  take(std::move(answer), plan);
}

// Adds a placement that is faster, or why there is none. `left` of the budget `limit` in seconds; a
// limit of 0: the budget is one in simulations.
void add_placement(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
                   const SearchRequest& request, Seconds limit, Seconds left, SearchedPlan& plan) {
  if (!waits_for_links(plan.simulation)) {
    plan.not_placed_because = "ranks hardly wait for links";
    return;
  }
  const bool timed = limit > Seconds{};
  if (timed ? left < limit * kLeastShare : *request.placing_share <= 0) {
    plan.not_placed_because = "the search has used up the budget";
    return;
  }
  const auto costs_in = [&](const program::Program& program, std::int64_t micro_batches) {
    sim::CostOptions options = request.costs;
    options.micro_batches = micro_batches;
    return sim::calibrated_costs(program, cluster, options, request.calibration);
  };
  plan.placement = faster_by_placement(graph, cluster, request.passes, costs_in,
                                       plan.simulation.step * kWorthPlacing,
                                       timed ? left : Seconds{}, request.options.stop);
  if (!plan.placement) plan.not_placed_because = "none of those that were tried is faster";
}

}  // namespace

SearchRequest search_request(const SearchSettings& settings, const std::string& cluster,
                             bool has_library) {
  SearchRequest request;
  request.options.budget = search::parse_budget(settings.budget);
  request.options.seed = settings.seed;
  request.options.stop = settings.stop;
  request.library = settings.library && has_library;
  request.calibration =
      settings.calibration ? *settings.calibration : sim::read_calibration(cluster);
  request.history = settings.history;
  request.ranker = settings.ranker;
  return request;
}

SearchRequest with_links(SearchRequest request, const ir::Graph& graph,
                         const cluster::Cluster& cluster) {
  request.passes.batch = request.costs.batch;
  request.passes.micro_batches = request.costs.micro_batches;
  if (request.passes.encrypted || !request.library) {
    std::erase(request.options.allowed.algorithms, strategy::AllReduceAlgorithm::kLibrary);
  }
  if (!request.links) request.links = declared_links(cluster);
  if (!request.links) return request;
  tune_to(request.links, graph, request.passes);
  request.options.allowed.slice_bytes.clear();
  return request;
}

Learned learn(const ir::Graph& graph, const cluster::Cluster& cluster,
              const SearchRequest& request) {
  Learned learned;
  const std::vector<DataCell> cells = history_on(request.history, cluster);
  const DataCell own = history_cell(graph, cluster);
  for (const DataCell& cell : cells) {
    if (cell.model != own.model || cell.cluster != own.cluster) continue;
    for (const DataPoint& point : cell.points) {
      if (learned.best_measured && *learned.best_measured <= point.step()) continue;
      learned.best_measured = point.step();
      learned.best_id = point.id;
    }
  }
  std::vector<std::string> passed_over;
  const MeasuredPlans plans = measured_plans(
      cells, passed_over, [&](const program::Program& program, const cluster::Cluster& machines) {
        return sim::calibrated_costs(program, machines, {}, request.calibration);
      });
  std::size_t simulated = 0;
  for (const search::Sample& sample : plans.samples) simulated += sample.simulated > 0 ? 1 : 0;
  std::optional<search::Residual> residual;
  if (simulated >= kLeastPlans) {
    residual = search::Residual::fit(plans.samples);
    learned.from = "this cluster's history";
  } else if (!request.ranker.empty()) {
    residual = search::Residual::parse(read_file(request.ranker), request.ranker);
    learned.from = request.ranker;
  }
  if (!residual) return learned;
  learned.correct = correction(*residual, residual->bias(plans.samples), cluster);
  learned.plans = residual->samples();
  return learned;
}

SearchedPlan search_plan(const std::shared_ptr<const ir::Graph>& graph,
                         const cluster::Cluster& cluster, const SearchRequest& asked) {
  SearchRequest request = with_links(asked, *graph, cluster);
  const search::Judge::Costs costs = [&](const program::Program& program) {
    return sim::calibrated_costs(program, cluster, request.costs, request.calibration);
  };
  Seconds& budget = request.options.budget.seconds;
  budget = budget * (1 - request.placing_share.value_or(0));
  const SteadyClock clock;
  const Seconds begun = clock.now();
  SearchedPlan plan;
  plan.left_out_library = asked.library && request.passes.encrypted &&
                          asked.options.allowed.algorithms != request.options.allowed.algorithms;
  plan.learned = learn(*graph, cluster, request);
  request.options.correct = plan.learned.correct;
  try {
    plan.found = search::search(graph, cluster, request.passes, costs, request.options, clock);
  } catch (const Error& error) {
    const std::size_t computing = cluster::computing_ranks_of(cluster).size();
    if (error.code() != ErrorCode::kInfeasible || computing < 2) throw;
    take(plan_by_placement(graph, cluster, request.passes, costs, error.what()), plan);
    plan.placed_because = fmt::format("no replica can have the whole graph: {}", error.what());
    return plan;
  }
  take_best(graph, cluster, request, costs, plan);
  strategy::check(plan.strategy, *graph, cluster, "search");
  if (request.placing_share) {
    const Seconds limit = asked.options.budget.seconds;
    add_placement(graph, cluster, request, limit, limit - (clock.now() - begun), plan);
  }
  return plan;
}

void take_placement(SearchedPlan& plan) {
  if (!plan.placement) return;
  const std::string than = search::shown_name(plan.name);
  const Seconds slower = plan.simulation.step;
  take(std::move(*plan.placement), plan);
  plan.placement.reset();
  plan.placed_because = fmt::format(
      "it is {:.2f} times as fast as {}, {}; train it with --accumulate {}",
      slower / plan.simulation.step, than, to_string(slower), plan.program.micro_batches);
}

std::string search_lines(const SearchedPlan& plan) {
  const search::Found& found = plan.found;
  std::string text;
  if (!plan.placed_because.empty()) {
    return fmt::format("placed         because {}\n", plan.placed_because);
  }
  if (plan.placement) {
    text += fmt::format("placement      {} takes {}, {:.2f} times as fast; --placed takes it\n",
                        plan.placement->name, to_string(plan.placement->simulation.step),
                        plan.simulation.step / plan.placement->simulation.step);
  }
  if (plan.learned.correct) {
    text += fmt::format("expected       {}, learned from {} measured plans ({})\n",
                        to_string(plan.expected), plan.learned.plans, plan.learned.from);
  }
  if (plan.builder_simulation) {
    const double speedup = plan.speedup();
    text += fmt::format("best builder   {}, {}", to_string(plan.builder_expected),
                        search::shown_name(plan.builder));
    text += plan.name == plan.builder ? std::string("; this plan is its\n")
            : speedup > 1 ? fmt::format("; this plan is {:.2f} times as fast\n", speedup)
                          : std::string("; this plan is hardly told from it\n");
  }
  if (plan.left_out_library) {
    text +=
        "not searched   all-reduces by a library, which cannot be encrypted; --encrypt off has "
        "them\n";
  }
  text += fmt::format(
      "search         {} simulations ({} of {} builders) and {} scores in {}; about 10^{:.0f} "
      "strategies{}{}\n",
      found.simulations, found.builders_judged, found.builders, found.scores,
      to_string(found.elapsed), found.log10_points,
      found.exhausted ? "; every basic one was scored" : "",
      found.finished ? "" : "; stopped by the budget");
  if (found.builders_judged < found.builders) {
    text += found.builders_judged == 1
                ? std::string("               the other builders scored worse by arithmetic\n")
                : fmt::format(
                      "               no other of these {} is faster by more than 3 %; the "
                      "rest scored worse by arithmetic\n",
                      found.builders_judged);
  }
  return text;
}

nlohmann::ordered_json search_json(const SearchedPlan& plan) {
  const search::Found& found = plan.found;
  nlohmann::ordered_json json{{"chosen", plan.name},
                              {"best_builder", plan.builder},
                              {"speedup_over_best_builder", plan.speedup()},
                              {"simulations", found.simulations},
                              {"scores", found.scores},
                              {"builders", found.builders},
                              {"builders_simulated", found.builders_judged},
                              {"search_seconds", found.elapsed.value},
                              {"log10_strategies", found.log10_points},
                              {"exhausted", found.exhausted},
                              {"finished", found.finished},
                              {"left_out_library", plan.left_out_library}};
  if (plan.builder_simulation) {
    json["best_builder_step_seconds"] = plan.builder_expected.value;
  }
  if (!plan.placed_because.empty()) json["placed_because"] = plan.placed_because;
  if (plan.placement) {
    json["placement"] = {{"stages", plan.placement->program.stages},
                         {"micro_batches", plan.placement->program.micro_batches},
                         {"step_seconds", plan.placement->simulation.step.value}};
  }
  json["expected_step_seconds"] = plan.expected.value;
  json["measured_plans"] = plan.learned.plans;
  if (plan.learned.best_measured) {
    json["best_measured_step_seconds"] = plan.learned.best_measured->value;
    json["best_measured_strategy"] = plan.learned.best_id;
  }
  json["candidates"] = nlohmann::ordered_json::array();
  for (const search::Candidate& candidate : found.candidates) {
    nlohmann::ordered_json row{{"name", candidate.name}, {"builder", candidate.builder}};
    if (candidate.point) row["score_seconds"] = candidate.scored.value;
    if (candidate.judgement) {
      row["step_seconds"] = candidate.judgement->step.value;
      row["peak_bytes"] = candidate.judgement->peak.value;
      row["in_full"] = candidate.judgement->in_full;
    }
    if (!candidate.refused.empty()) row["refused"] = candidate.refused;
    json["candidates"].push_back(std::move(row));
  }
  return json;
}

std::string progress_line(const search::Progress& progress) {
  return fmt::format("{:.1f} s, best {}: {}; {} simulated, {} scored", progress.elapsed.value,
                     to_string(progress.best), search::shown_name(progress.best_name),
                     progress.simulations, progress.scores);
}

}  // namespace autodist::planning
