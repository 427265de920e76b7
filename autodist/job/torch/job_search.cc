#include "autodist/job/torch/job_search.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/ir/own_ops.h"
#include "autodist/job/torch/measured_library.h"
#include "autodist/planning/defaults.h"
#include "autodist/planning/history.h"
#include "autodist/planning/link_tuning.h"
#include "autodist/planning/prediction.h"
#include "autodist/planning/searching.h"
#include "autodist/planning/transition_seconds.h"
#include "autodist/program/sums.h"
#include "autodist/program/transition.h"
#include "autodist/search/autosync/diverse.h"

namespace autodist::job {
namespace {

class JobSearch {
 public:
  JobSearch(JoinedJob& job, const TrialStep& what, const StepPlan& plan)
      : job_(job),
        what_(what),
        links_(plan.links),
        has_library_(plan.has_library()),
        settings_(job.options().search) {}

  // The chosen one first, at the chief; then the others that are worth a trial.
  std::vector<strategy::Strategy> search(std::size_t trials,
                                         const std::optional<comm::LibraryFigures>& library) {
    planning::SearchRequest request =
        planning::search_request(settings_, job_.specification(), has_library_);
    request.options.progress = [this](const search::Progress& progress) {
      job_.show("searching: " + planning::progress_line(progress));
    };
    request.passes = what_.passes;
    request.costs.micro_batches = what_.passes.micro_batches;
    planning::add_cores(job_.too_few_cores(), request.calibration);
    planning::add_library(library, job_.size(), job_.cluster(), request.calibration);
    request.links = links_;
    planning::SearchedPlan plan = planning::search_plan(what_.graph, job_.cluster(), request);
    job_.show("");
    say(planning::prediction_title(
            what_.graph->name,
            job_.specification().empty() ? job_.launcher() : job_.specification(),
            "search: " + plan.name,
            settings_.calibration ? "" : sim::calibration_file(job_.specification())) +
        planning::prediction_lines(plan.simulation, plan.program, plan.costs) +
        planning::search_lines(plan));
    if (trials == 0 && settings_.counted_trials) find_rivals(plan);
    std::vector<strategy::Strategy> all{ready(plan.strategy)};
    names_ = {plan.name};
    for (const std::size_t i : search::diverse(plan.found, trials)) {
      const search::Candidate& candidate = plan.found.candidates[i];
      if (all.size() >= trials || candidate.name == plan.name) continue;
      all.push_back(ready(candidate.strategy));
      names_.push_back(candidate.name);
    }
    return all;
  }

  // Two or more, where trials that count are worth it.
  std::optional<Rivals> take_rivals() { return std::move(rivals_); }

  // The fastest of `strategies`, at the chief.
  strategy::Strategy try_out(Trials& trials, const std::vector<strategy::Strategy>& strategies) {
    const TrialLengths lengths{settings_.trial_warmup, settings_.trial_steps};
    std::size_t next = 0;
    const auto done = [&](const Trial& trial) {
      const std::string& name = names_[next++];
      if (!trial.refused.empty()) return;
      say(fmt::format("trial          {}, {}\n", to_string(trial.step()), name));
      if (settings_.history.empty()) return;
      planning::add_to_history(settings_.history, *what_.graph, job_.cluster(), trial.strategy,
                               trial.runtimes);
    };
    const std::vector<Trial> ran = trials.run(strategies, lengths, settings_.stop, done);
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < ran.size(); ++i) {
      if (!ran[i].refused.empty()) continue;
      if (!best || ran[i].step() < ran[*best].step()) best = i;
    }
    if (!job_.is_chief() || !best) return strategies.empty() ? strategy::Strategy{} : strategies[0];
    say(fmt::format("measured best  {}, {}\n", to_string(ran[*best].step()), names_[*best]));
    return ran[*best].strategy;
  }

 private:
  // Of the search's answer, the best builder's and the next best that are unlike them, those to
  // which state moves in no time and that, if the answer adds up alike in every run, do so, too:
  // unless any may be tried, in the same order.
  void find_rivals(const planning::SearchedPlan& plan) {
    constexpr std::size_t kMost = 4;
    if (plan.found.candidates.empty()) return;
    Rivals rivals;
    std::optional<program::Program> answer;
    std::optional<Digest> sums;   // of the answer, where every run has them
    std::set<std::string> known;  // digests
    const auto add = [&](const std::string& name, strategy::Strategy strategy, Seconds predicted) {
      strategy = ready(std::move(strategy));
      std::optional<program::Program> program = rewritten(name, strategy);
      if (!program || !program->in_step() || program->is_placed()) return false;
      if (sums && !program->reproducible()) return false;
      if (sums && !settings_.any_trials && program::sum_digest(*program) != *sums) return false;
      if (!known.insert(to_string(program::digest_of(*program))).second) return false;
      if (answer && !moves_soon(*answer, *program)) return false;
      rivals.plans.push_back({name, std::move(strategy), predicted});
      if (!answer) {
        if (program->reproducible()) sums = program::sum_digest(*program);
        answer = std::move(program);
      }
      return true;
    };
    if (!add(plan.name, plan.strategy, plan.expected)) return;
    if (plan.found.best_builder) {
      const search::Candidate& builder = plan.found.candidates[*plan.found.best_builder];
      const bool fits = builder.judgement->fits();
      if (fits && add(builder.name, builder.strategy, plan.builder_expected)) {
        rivals.reference = rivals.plans.size() - 1;
      }
    }
    for (const std::size_t i : search::diverse(plan.found, 2 * kMost)) {
      if (rivals.plans.size() == kMost) break;
      const search::Candidate& each = plan.found.candidates[i];
      if (!each.judgement->fits()) continue;
      add(each.name, each.strategy, each.judgement->step);
    }
    if (rivals.plans.size() > 1) rivals_ = std::move(rivals);
  }

  // Whether a change between them, to and fro, moves its state in half a second: trials are over
  // after some dozens of changes.
  [[nodiscard]] bool moves_soon(const program::Program& a, const program::Program& b) const {
    constexpr Seconds kSoon{0.5};
    const auto bytes_of = [this](const program::Move& move) {
      return exec::bytes_of(move, *what_.graph, &job_.options().user_rules);
    };
    const auto is_soon = [&](const program::Program& from, const program::Program& to) {
      const program::Transition transition = program::transition(from, to);
      return planning::transition_seconds(transition, from, job_.cluster(), bytes_of) <= kSoon;
    };
    return is_soon(a, b) && is_soon(b, a);
  }

  // Nothing where the passes cannot carry it out.
  [[nodiscard]] std::optional<program::Program> rewritten(
      const std::string& name, const strategy::Strategy& strategy) const {
    try {
      return passes::rewrite(what_.graph, strategy, job_.cluster(), what_.passes, name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInfeasible) throw;
      return std::nullopt;
    }
  }

  void say(const std::string& lines) const {
    if (settings_.found) settings_.found(lines);
  }

  [[nodiscard]] strategy::Strategy ready(strategy::Strategy strategy) {
    planning::set_id(strategy);
    strategy::fix_priorities(strategy, *what_.graph);
    if (links_) planning::put_tuning(*links_, *what_.graph, strategy);
    return strategy;
  }

  JoinedJob& job_;
  const TrialStep& what_;
  const std::optional<comm::LinkFigures>& links_;
  const bool has_library_;
  const SearchSettings& settings_;
  std::vector<std::string> names_;
  std::optional<Rivals> rivals_;
};

}  // namespace

strategy::Strategy search_together(JoinedJob& job, const TrialStep& what, bool may_try,
                                   StepPlan& plan) {
  // A trial runs the example, and cannot go another way: the same seed would find it again.
  const bool may_be_left = ir::has_number_guards(*what.graph);
  const auto asked = static_cast<std::size_t>(may_try ? job.options().search.trials : 0);
  const std::size_t count = may_be_left ? 0 : asked;
  if (count < asked && job.is_chief()) {
    job.say("no trials before the training: sizes or integers of the step follow from data");
  }
  JobSearch search(job, what, plan);
  std::vector<strategy::Strategy> strategies;
  const std::optional<comm::LibraryFigures> library =
      measured_library(job, plan.library, job.options().search.library);
  if (job.is_chief()) strategies = search.search(count, library);
  if (count > 0) {
    // The others come here while the chief still searches.
    job.of_chief("search", "searched");
    Trials trials(job, what);
    const strategy::Strategy best = search.try_out(trials, strategies);
    plan.trials = trials.generations();
    strategies = {best};
  }
  if (may_try && count == 0 && job.options().search.counted_trials) {
    plan.rivals = search.take_rivals();
    if (job.chief_says("rivals", plan.rivals.has_value()) && !plan.rivals) plan.rivals.emplace();
  }
  std::string document;
  if (job.is_chief()) document = strategy::serialize(strategies.front());
  return strategy::deserialize(job.of_chief("strategy", document), "the chief's strategy");
}

}  // namespace autodist::job
