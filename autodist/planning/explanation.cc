#include "autodist/planning/explanation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autodist/base/clock.h"
#include "autodist/planning/prediction.h"
#include "autodist/report/alike_rows.h"
#include "autodist/report/strategy.h"
#include "autodist/search/autosync/analytic.h"
#include "autodist/search/autosync/moves.h"
#include "autodist/search/autosync/seeds.h"
#include "autodist/search/builders/builders.h"

namespace autodist::planning {
namespace {

using search::Point;

constexpr std::size_t kChecked = 8;     // next best choices that are simulated: those of a table
constexpr double kShareOfBudget = 0.5;  // that these may take

// When simulations end: the clock, or a request to stop. The first one always runs.
class Allowance {
 public:
  Allowance(const search::SearchOptions& options, Seconds limit)
      : options_(options), limit_(limit) {}

  [[nodiscard]] bool has_another() const {
    if (options_.stop && options_.stop()) return false;
    if (done_ == 0) return true;
    const std::uint64_t most = options_.budget.simulations;
    if (most != 0 && done_ >= most) return false;
    return limit_ <= Seconds{} || clock_.now() - begun_ + longest_ <= limit_;
  }
  template <typename Work>
  void spend(Work work) {
    const Seconds from = clock_.now();
    work();
    longest_ = std::max(longest_, clock_.now() - from);
    ++done_;
  }

 private:
  const search::SearchOptions& options_;
  Seconds limit_;
  SteadyClock clock_;
  Seconds begun_ = clock_.now();
  Seconds longest_;
  std::uint64_t done_ = 0;
};

class Explaining {
 public:
  Explaining(const search::Space& space, const Explanation& of, const Point& point,
             const passes::Options& passes)
      : space_(space), of_(of), point_(point), analytic_(space, of.program, of.costs, passes) {
    waits_.resize(point.choices.size());
    for (const sim::Waited& wait : of.simulation.waits) {
      waits_[wait.variable.value] = wait.seconds;
    }
  }

  std::vector<Explained> all(const search::Judge& judge, Allowance allowance) {
    std::vector<ir::VariableId> order;
    const ir::Graph& graph = space_.graph();
    for (std::size_t i = 0; i < graph.variables.size(); ++i) {
      if (graph.variables[i].gradient) order.emplace_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](ir::VariableId a, ir::VariableId b) {
      return ir::bytes_of(graph, a) > ir::bytes_of(graph, b);
    });
    std::vector<Explained> rows;
    for (ir::VariableId id : order) {
      std::optional<Point> next;
      Explained row = one(id, next);
      if (next && rows.size() < kChecked && allowance.has_another()) {
        allowance.spend([&] { check(judge, *next, row); });
      }
      if (next && !row.simulated && row.cost < Seconds{}) {
        row.cost = Seconds{};  // arithmetic leaves out too much to promise a gain
        row.why = "others are as good";
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  Explained one(ir::VariableId id, std::optional<Point>& next) {
    Explained row;
    row.variable = id;
    row.waited = waits_[id.value];
    row.choice = report::describe(of_.strategy.nodes[id.value]);
    if (of_.program.is_placed()) return row;  // where its ops are, and nowhere else
    const search::Score here = analytic_.score(point_, loads_);
    std::optional<search::Score> best;
    for (const search::Choice& choice : space_.options(id)) {
      Point other = point_;
      if (!search::set_class(space_, {id}, choice, other) || other == point_) continue;
      const search::Score score = analytic_.score(other, loads_);
      if (best && !(score < *best)) continue;
      best = score;
      next = other;
    }
    if (!best) return row;
    row.cost = best->step - here.step;
    row.next_best = report::describe(space_.strategy_of(*next).nodes[id.value]);
    row.why = row.cost > Seconds{} ? "else " + analytic_.bound_of(*best) + " carries most"
                                   : "others are as good";
    return row;
  }

  void check(const search::Judge& judge, const Point& next, Explained& row) const {
    std::string refused;
    const auto judged = judge(space_.strategy_of(next), refused);
    if (!judged) {
      row.why = "cannot be carried out: " + refused;
      return;
    }
    row.simulated = true;
    row.cost = judged->simulated - of_.simulation.step;
    if (!judged->fits()) {
      row.why = "does not fit in memory";
    } else if (row.cost < Seconds{}) {
      row.why = "another would be faster";
    } else {
      row.why = row.cost > Seconds{} ? "bound by " + judged->bound + " then" : "others are as good";
    }
  }

  const search::Space& space_;
  const Explanation& of_;
  const Point& point_;
  search::Analytic analytic_;
  search::Analytic::Loads loads_;
  std::vector<Seconds> waits_;
};

std::vector<search::Candidate> builders_of(const ir::Graph& graph, const cluster::Cluster& cluster,
                                           const search::Space& space,
                                           const search::Analytic& analytic) {
  std::vector<search::Candidate> candidates = search::seed_candidates(graph, cluster, space);
  for (search::Candidate& candidate : candidates) {
    if (candidate.point) candidate.scored = analytic.score(*candidate.point).step;
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.scored < b.scored; });
  return candidates;
}

void judge_all(const search::Judge& judge, Allowance allowance,
               std::vector<search::Candidate>& candidates) {
  for (search::Candidate& candidate : candidates) {
    if (!allowance.has_another()) break;
    allowance.spend([&] { candidate.judgement = judge(candidate.strategy, candidate.refused); });
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    if (a.judgement.has_value() != b.judgement.has_value()) return a.judgement.has_value();
    return a.judgement ? *a.judgement < *b.judgement : a.scored < b.scored;
  });
}

// Behind the variable's name, and below it.
std::string choice_lines(const Explained& row, Bytes size) {
  std::string text = fmt::format(" ({}), waited for {}\n      {}\n", to_string(size),
                                 to_string(row.waited), row.choice);
  if (row.next_best.empty()) return text;
  const Seconds cost = row.cost < Seconds{} ? Seconds{} - row.cost : row.cost;
  return text + fmt::format("      next best: {}, {}{}{}: {}\n", row.next_best,
                            row.cost < Seconds{} ? "-" : "+", to_string(cost),
                            row.simulated ? "" : " by arithmetic", row.why);
}

std::string alternative_row(const search::Candidate& candidate, Seconds step, std::size_t width) {
  const std::string name = fmt::format("  {:<{}}", search::shown_name(candidate.name), width);
  if (!candidate.refused.empty()) {
    return fmt::format("{} cannot be carried out: {}\n", name, candidate.refused);
  }
  if (!candidate.judgement) {
    return fmt::format("{} {:>10}  by arithmetic; not simulated within the budget\n", name,
                       to_string(candidate.scored));
  }
  const search::Judgement& judged = *candidate.judgement;
  return fmt::format("{} {:>10}  {:>6.2f} times  {:>10}{}  bound by {}\n", name,
                     to_string(judged.step), judged.step / step, to_string(judged.peak),
                     judged.fits() ? "" : " (does not fit)", judged.bound);
}

}  // namespace

Explanation explain(const std::shared_ptr<const ir::Graph>& graph, const cluster::Cluster& cluster,
                    const strategy::Strategy& strategy, const SearchRequest& asked,
                    const search::Found* found) {
  const SearchRequest request = with_links(asked, *graph, cluster);
  Explanation result;
  result.strategy = strategy;
  passes::Options passes = request.passes;
  passes.encrypted = false;  // why it is as it is can be said in any case
  result.program = passes::rewrite(graph, strategy, cluster, passes, "explain");
  result.costs = sim::calibrated_costs(result.program, cluster, request.costs, request.calibration);
  result.simulation = sim::simulate(result.program, cluster, result.costs);
  const search::Judge judge(
      graph, cluster, request.passes,
      [&](const program::Program& program) {
        return sim::calibrated_costs(program, cluster, request.costs, request.calibration);
      },
      request.options.simulation);
  const search::Space space(*graph, cluster, request.options.allowed, request.passes.batch);
  const Seconds limit = request.options.budget.seconds;
  if (const std::optional<Point> point = space.point_of(strategy)) {
    result.variables = Explaining(space, result, *point, request.passes)
                           .all(judge, Allowance(request.options, limit * kShareOfBudget));
  }
  if (found != nullptr) {
    result.alternatives = found->candidates;
    return result;
  }
  // Builders give every replica an equal part of the batch, whatever this strategy does.
  const program::Program program = search::seed_program(judge, *graph, cluster);
  const sim::CostModel costs = judge.costs_of(program);
  const search::Analytic analytic(space, program, costs, request.passes);
  result.alternatives = builders_of(sim::with_times(program, costs), cluster, space, analytic);
  judge_all(judge, Allowance(request.options, limit * (1 - kShareOfBudget)), result.alternatives);
  return result;
}

std::string explanation_table(const Explanation& explanation, std::size_t most) {
  std::string text =
      prediction_lines(explanation.simulation, explanation.program, explanation.costs);
  if (explanation.variables.empty()) {
    text += "\nThe choices of this strategy are outside of what is searched: no table of them.\n";
  } else {
    text +=
        "\nchoices; what the next best costs, with all else as it is, is simulated for the "
        "largest, else by arithmetic\n";
  }
  const ir::Graph& graph = *explanation.program.graph;
  report::AlikeRows rows(most);
  for (const Explained& row : explanation.variables) {
    rows.add(
        {graph.variable(row.variable).name, choice_lines(row, ir::bytes_of(graph, row.variable))});
  }
  for (const auto& row : rows.shown()) text += "  " + row.front() + row.back();
  if (rows.hidden() > 0) {
    text += fmt::format("  … and {} smaller ones (--all shows them)\n", rows.hidden());
  }
  text += "\nalternatives\n";
  std::size_t width = 0;
  for (const search::Candidate& candidate : explanation.alternatives) {
    width = std::max(width, search::shown_name(candidate.name).size());
  }
  for (const search::Candidate& candidate : explanation.alternatives) {
    text += alternative_row(candidate, explanation.simulation.step, width);
  }
  return text;
}

nlohmann::ordered_json explanation_json(const Explanation& explanation) {
  nlohmann::ordered_json json =
      prediction_json(explanation.simulation, explanation.program, explanation.costs);
  json["variables"] = nlohmann::ordered_json::array();
  const ir::Graph& graph = *explanation.program.graph;
  for (const Explained& row : explanation.variables) {
    json["variables"].push_back({{"name", graph.variable(row.variable).name},
                                 {"bytes", ir::bytes_of(graph, row.variable).value},
                                 {"choice", row.choice},
                                 {"waited_seconds", row.waited.value},
                                 {"why", row.why},
                                 {"next_best", row.next_best},
                                 {"next_best_cost_seconds", row.cost.value},
                                 {"next_best_simulated", row.simulated}});
  }
  json["alternatives"] = nlohmann::ordered_json::array();
  for (const search::Candidate& candidate : explanation.alternatives) {
    nlohmann::ordered_json row{{"name", candidate.name}, {"score_seconds", candidate.scored.value}};
    if (candidate.judgement) {
      row["step_seconds"] = candidate.judgement->step.value;
      row["peak_bytes"] = candidate.judgement->peak.value;
      row["fits"] = candidate.judgement->fits();
      row["bound_reason"] = candidate.judgement->bound;
    }
    if (!candidate.refused.empty()) row["refused"] = candidate.refused;
    json["alternatives"].push_back(std::move(row));
  }
  return json;
}

}  // namespace autodist::planning
