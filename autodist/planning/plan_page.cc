#include "autodist/planning/plan_page.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/planning/alternatives.h"
#include "autodist/planning/defaults.h"
#include "autodist/planning/explanation.h"
#include "autodist/planning/prediction.h"
#include "autodist/search/builders/builders.h"

namespace autodist::planning {
namespace {

constexpr Seconds kBudget{4};              // for simulating the alternatives
constexpr std::size_t kMostRows = 20'000;  // of a simulated step: seconds of simulation, no more
constexpr std::uint32_t kStepsOfTimeline = 4;
constexpr std::size_t kRowsPerSliceAndRank = 6;  // queue and wire both ways, merge, installation

const std::string kBuilderPrefix = "builder ";

// "PS:staleness=3" of "builder PS:staleness=3"; "" of what no builder chose.
std::string builder_of(const std::string& chosen_by) {
  if (chosen_by.rfind(kBuilderPrefix, 0) != 0) return "";
  const std::string name = chosen_by.substr(kBuilderPrefix.size());
  return name == kSearch ? "" : name;
}

std::string description_of(const search::Candidate& candidate) {
  if (!candidate.builder) return "Found by the search.";
  const std::string name = candidate.name.substr(0, candidate.name.find(':'));
  for (const search::Builder& builder : search::builders()) {
    if (builder.name == name) return builder.description;
  }
  return "";
}

report::Alternative alternative_of(const search::Candidate& candidate,
                                   const std::shared_ptr<const ir::Graph>& graph,
                                   const cluster::Cluster& cluster, passes::Options options,
                                   std::int64_t batch) {
  report::Alternative each;
  each.name = search::shown_name(candidate.name);
  each.description = description_of(candidate);
  each.refused = candidate.refused;
  if (!each.refused.empty()) return each;
  if (candidate.judgement) {
    each.step = candidate.judgement->step;
    each.peak = candidate.judgement->peak;
    each.remark = candidate.judgement->fits() ? "bounded by " + candidate.judgement->bound
                                              : "does not fit in memory";
    if (!candidate.judgement->in_full) each.remark += "; simulated until it was seen to be slower";
  } else {
    each.remark =
        fmt::format("{}not simulated within the budget",
                    candidate.point ? "by arithmetic " + to_string(candidate.scored) + "; " : "");
  }
  options.verify_each = false;
  options.dump = nullptr;
  try {
    each.busiest = report::busiest_rank(
        passes::rewrite(graph, candidate.strategy, cluster, options, candidate.name), batch);
  } catch (const Error& error) {
    each.refused = error.what();
  }
  return each;
}

class PlanPage {
 public:
  PlanPage(report::PageInputs& page, const cluster::Cluster& cluster,
           const PlanPageRequest& request)
      : page_(page), cluster_(cluster), request_(request) {}

  void fill(const program::Program& program) {
    SearchRequest how = request_.how;
    how.passes.dump = nullptr;
    how.options.budget = {kBudget, 0};
    const Explanation explanation =
        explain(page_.graph, cluster_, *page_.strategy, how, request_.found);
    page_.batch = explanation.costs.batch * explanation.costs.micro_batches;
    page_.prediction = report::prediction_of(
        prediction_json(explanation.simulation, explanation.program, explanation.costs));
    for (const Explained& row : explanation.variables) {
      if (row.next_best.empty()) continue;
      page_.next_best[page_.graph->variable(row.variable).name] = {row.next_best, row.cost, row.why,
                                                                   row.waited};
    }
    add_alternatives(explanation);
    if (request_.timeline) add_timeline(program, explanation.costs);
  }

 private:
  // The plan of the page and every builder and system beside it; of what a search went through on
  // its way only the answer.
  void add_alternatives(const Explanation& explanation) {
    report::Alternative own;
    own.name =
        request_.found != nullptr ? request_.found->best().name : builder_of(request_.chosen_by);
    own.step = explanation.simulation.step;
    own.peak = sim::peak_bytes(explanation.simulation.memory);
    own.chosen = true;
    own.busiest = report::busiest_rank(explanation.program, page_.batch);
    own.description = own.name.empty() ? "The plan of this page." : "";
    std::vector<report::Alternative> others;
    for (const search::Candidate& candidate : explanation.alternatives) {
      if (candidate.name == own.name) {
        own.description = description_of(candidate);
        if (candidate.judgement) own.remark = "bounded by " + candidate.judgement->bound;
        continue;
      }
      if (!candidate.builder) continue;
      others.push_back(
          alternative_of(candidate, page_.graph, cluster_, request_.how.passes, page_.batch));
    }
    if (own.name.empty()) own.name = request_.chosen_by.empty() ? "this plan" : request_.chosen_by;
    own.name = search::shown_name(own.name);
    page_.alternatives = {std::move(own)};
    std::move(others.begin(), others.end(), std::back_inserter(page_.alternatives));
  }

  void add_timeline(const program::Program& program, const sim::CostModel& costs) {
    const std::size_t rows = program.ranks.size() * (page_.graph->ops.size() +
                                                     kRowsPerSliceAndRank * program.slices.size());
    if (rows > kMostRows) {
      page_.remarks.push_back(
          fmt::format("No predicted timeline: a step has some {} rows. `autodist simulate --trace "
                      "FILE` writes it, and `autodist report --predicted FILE` shows it.",
                      rows));
      return;
    }
    sim::SimulationOptions how;
    how.least_steps = kStepsOfTimeline;
    how.most_steps = kStepsOfTimeline;
    how.trace = true;
    how.symmetry = false;  // a timeline shows every rank
    const sim::Simulation simulation = sim::simulate(program, cluster_, costs, how);
    page_.traces.push_back({"simulation", program::to_chrome_json(simulation.trace), true});
  }

  report::PageInputs& page_;
  const cluster::Cluster& cluster_;
  const PlanPageRequest& request_;
};

}  // namespace

PlanPageRequest page_request(const std::string& chosen_by, const passes::Options& passes,
                             bool library, const sim::Calibration& calibration,
                             const std::string& calibration_file) {
  PlanPageRequest request;
  request.chosen_by = chosen_by;
  request.how.passes = passes;
  request.how.library = library;
  request.how.calibration = calibration;
  request.calibration_file = calibration_file;
  return request;
}

void add_plan(report::PageInputs& page, const std::shared_ptr<const ir::Graph>& graph,
              const cluster::Cluster& cluster, const strategy::Strategy& strategy,
              const program::Program& program, const PlanPageRequest& request) {
  page.chosen_by = search::shown_name(request.chosen_by);
  page.graph = graph;
  page.strategy = strategy;
  page.program = program;
  if (!request.calibration_file.empty()) {
    page.sources.push_back(std::filesystem::path(request.calibration_file).filename().string());
  }
  page.batch = request.how.costs.batch * request.how.costs.micro_batches;
  sim::check_devices(program, cluster);
  try {
    PlanPage(page, cluster, request).fill(program);
  } catch (const Error& error) {
    // A graph without times, devices without figures, a strategy that has no simulated form.
    page.remarks.push_back(fmt::format("No prediction: {}", error.what()));
    page.prediction = nullptr;
    page.alternatives = alternatives_of(graph, cluster, request.how.passes,
                                        builder_of(request.chosen_by), page.batch);
  }
}

}  // namespace autodist::planning
