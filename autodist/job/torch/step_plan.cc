#include "autodist/job/torch/step_plan.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autodist/base/clock.h"
#include "autodist/comm/agreement.h"
#include "autodist/comm/link_probe.h"
#include "autodist/ir/own_ops.h"
#include "autodist/job/torch/job_search.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/planning.h"

namespace autodist::job {
namespace {

passes::Options pass_options(const JoinedJob& job, const Captured& step) {
  passes::Options options;
  options.cpu_only = job.options().cpu_only;
  options.micro_batches = job.options().accumulate;
  options.loss_scaling = step.scaling;
  options.encrypted = job.encrypts();
  return options;
}

planning::StrategyRequest request_of(const JoinedJob& job, const Captured& step) {
  const std::string& own = step.named.builder.empty() ? job.options().builder : step.named.builder;
  return {own, step.named.builder.empty() ? job.options().strategy_file : "",
          job.options().builders, !step.name().empty()};
}

// What a supervised job remembers a plan by.
std::string memory_of(const JoinedJob& job, const Captured& step) {
  return fmt::format("{} {} {}", step.name(), to_string(ir::structural_digest(*step.graph)),
                     job.size());
}

// The plan that the generation before had, as this one's machines carry it out; empty: there was
// none, or they cannot. At the chief.
std::string kept_plan(JoinedJob& job, const Captured& step) {
  const auto kept =
      job.memory() == nullptr ? std::nullopt : job.memory()->plan(memory_of(job, step));
  if (!kept) return "";
  const strategy::Strategy plan =
      strategy::on_machines(strategy::deserialize(*kept, "the plan before"), job.stand_ins());
  try {
    strategy::check(plan, *step.graph, job.cluster(), "the plan before");
  } catch (const Error&) {
    return "";  // other devices than those whose place they have taken
  }
  return strategy::serialize(plan);
}

// A builder's or a file's, by the chief; or `kept`, where that is not empty.
strategy::Strategy build_together(JoinedJob& job, const Captured& step, const StepPlan& plan,
                                  const planning::StrategyRequest& request,
                                  const std::string& kept) {
  std::string document = kept;
  if (job.is_chief() && kept.empty()) {
    document = strategy::serialize(choose_by_chief(job, step, plan, request));
  }
  return strategy::deserialize(job.of_chief("strategy", document), "the chief's strategy");
}

// The first plan of a file that another run has written, if all are plans of this job.
void choose_as_before(JoinedJob& job, const Captured& step, StepPlan& plan) {
  plan.chosen_by = job.options().plans_file;
  std::string first;
  if (job.is_chief()) {
    const strategy::StrategyHistory history = history_of(job, plan.chosen_by);
    for (const strategy::ScheduledStrategy& each : history) {
      strategy::check(each.strategy, *step.graph, job.cluster(), plan.chosen_by);
    }
    first = strategy::serialize(history.front().strategy);
    plan.name = history.front().name;
  }
  plan.strategy = build_together(job, step, plan, {}, first);
}

// Sets the strategy and where it came from.
void choose_together(JoinedJob& job, const Captured& step, StepPlan& plan) {
  planning::StrategyRequest request = request_of(job, step);
  // Ranks of one machine have no link to be careful with, and a standby's links carry the job.
  if (!job.stands_by() && job.options().tune_links && job.cluster().nodes.size() > 1 &&
      job.size() > 1) {
    plan.links = comm::probe_links(job.transport(), job.clock(), ProcessCpuClock(),
                                   job.options().join_limit);
  }
  if (!job.options().plans_file.empty()) return choose_as_before(job, step, plan);
  // Of the generation before: another search might find another plan, and what comes after a loss
  // would not be what it had been without one.
  const std::string kept = kept_plan(job, step);
  const bool searches =
      request.builder == planning::kSearch && request.file.empty() && job.size() > 1;
  const bool is_kept = searches && job.chief_says("kept plan", !kept.empty());
  if (searches && !is_kept) {
    const TrialStep what{step.graph, &step.step, &step.bindings, plan.passes, step.seed};
    plan.strategy = search_together(job, what, step.name().empty(), plan);
  } else {
    if (request.builder == planning::kSearch && !searches)
      request.builder = planning::kDefaultBuilder;  // nobody to talk to
    plan.strategy = build_together(job, step, plan, request, kept);
  }
  if (kept.empty()) keep_plan(job, step, plan.strategy);
  plan.chosen_by = planning::source_of(request);
  if (job.is_chief()) plan.name = plan.rivals ? plan.rivals->plans.front().name : name_of(request);
}

// What needs the whole graph, or all variables, at every rank.
void check_placed(const JobOptions& options, const Captured& step) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::kUsage,
         "{}: a placed graph, and {}. Leave that out, or take a plan without a placement.",
         options.strategy_file, what);
  };
  if (options.verify_every > 0) refuse("verify_every; its steps cannot be compared at a rank");
  if (!step.name().empty()) refuse("a job of several steps; one expected");
  if (!step.trains()) refuse("a step that trains nothing");
  if (!ir::booleans_of(*step.graph).empty()) {
    refuse(
        "a step whose host reads Booleans of data; what it reads may change which ops there are");
  }
  if (ir::has_number_guards(*step.graph)) {
    refuse("a step with numbers or sizes that follow from data");
  }
}

}  // namespace

strategy::StrategyHistory history_of(const JoinedJob& job, const std::string& file) {
  strategy::StrategyHistory history = strategy::read_history(file);
  for (strategy::ScheduledStrategy& each : history) {
    each.strategy = strategy::on_machines(std::move(each.strategy), job.stand_ins());
  }
  return history;
}

strategy::Strategy choose_by_chief(JoinedJob& job, const Captured& step, const StepPlan& plan,
                                   const planning::StrategyRequest& request) {
  std::vector<std::string> warnings;
  strategy::Strategy chosen =
      planning::choose_strategy(request, *step.graph, job.cluster(), warnings);
  if (plan.links) planning::put_tuning(*plan.links, *step.graph, chosen);
  for (const std::string& warning : warnings) job.say(warning);
  return chosen;
}

void keep_plan(JoinedJob& job, const Captured& step, const strategy::Strategy& strategy) {
  if (job.memory() == nullptr || job.stands_by()) return;  // a standby's when its turn has come
  job.memory()->keep_plan(memory_of(job, step), strategy::serialize(strategy));
}

StepPlan plan_step(JoinedJob& job, const Captured& step) {
  const ir::Graph& graph = *step.graph;
  job.show(fmt::format("captured {}: {} ops, {} variables; choosing a strategy", graph.name,
                       graph.ops.size(), graph.variables.size()));
  StepPlan plan;
  plan.passes = pass_options(job, step);
  plan.library = comm::library_for(job.transport(), capture::device_of(step.step).str(),
                                   job.options().join_limit);
  choose_together(job, step, plan);
  plan.program = std::make_shared<const program::Program>(
      passes::rewrite(step.graph, plan.strategy, job.cluster(), plan.passes, plan.chosen_by));
  if (plan.program->is_placed()) check_placed(job.options(), step);
  job.show("");
  const std::string what =
      step.name().empty() ? "program" : fmt::format("program of '{}'", step.name());
  comm::agree(job.transport(), what, program::digest_of(*plan.program),
              fmt::format("graph '{}' {}, strategy {}", graph.name,
                          to_string(ir::structural_digest(graph)).substr(0, 8), plan.strategy.id),
              job.options().join_limit);
  return plan;
}

}  // namespace autodist::job
