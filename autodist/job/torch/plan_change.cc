#include "autodist/job/torch/plan_change.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/job/torch/counted_trials.h"
#include "autodist/job/torch/plan_replay.h"
#include "autodist/planning/transition_seconds.h"

namespace autodist::job {
namespace {

// What a rank says: bytes, or why there are none.
constexpr char kHere = '=';
constexpr char kRefused = '!';  // behind it an ErrorCode and a space

std::string refusal(ErrorCode code, const std::string& why) {
  return fmt::format("{}{} {}", kRefused, static_cast<int>(code), why);
}

// What was said; throws the Error that a refusal is.
std::string accepted(const std::string& said) {
  if (said.front() == kHere) return said.substr(1);
  const auto code = static_cast<ErrorCode>(std::stoi(said.substr(1)));
  fail(code, "change_plan: {}", said.substr(said.find(' ') + 1));
}

}  // namespace

void PlanChanges::begin() {
  const std::string& plans = job_.options().plans_file;
  if (!plans.empty()) {
    sequence_ = std::make_unique<PlanReplay>(
        job_.is_chief() ? history_of(job_, plans) : strategy::StrategyHistory{}, steps_.done());
  } else if (auto rivals = steps_.front().take_rivals();
             rivals && all_compute(steps_.front().program())) {
    sequence_ = std::make_unique<CountedTrials>(job_, std::move(*rivals), steps_.done());
    if (job_.memory() != nullptr) job_.memory()->note_trials(true);
  }
  keep_history();
}

// Of the chief alone; at the others nothing.
std::string PlanChanges::strategy_of_chief(std::size_t index,
                                           const planning::StrategyRequest& request,
                                           const std::optional<strategy::Strategy>& given) {
  if (!job_.is_chief()) return "";
  try {
    if (!given && request.file.empty() && request.builder == planning::kSearch) {
      fail(ErrorCode::kUsage,
           "'{}' searches, which a job does before its first step; a builder, "
           "or a strategy that plan() has found, expected",
           planning::kSearch);
    }
    return kHere + strategy::serialize(given ? *given : steps_.at(index).choose(request));
  } catch (const Error& error) {
    return refusal(error.code(), error.what());
  }
}

// Returns when every rank knows that all have the newest variables, and the same next Program.
void PlanChanges::agree(std::size_t index, const program::Program& next) {
  exec::Runner& runner = steps_.at(index).runner();
  runner.settle();
  std::string said = kHere + to_string(program::digest_of(next));
  try {
    const std::string written = runner.take_written();
    if (!written.empty()) said += " and new values " + written;
    if (runner.calls().has_due()) {
      fail(ErrorCode::kUsage, "a checkpoint that rank 0 asked for alone is due after a later step");
    }
  } catch (const Error& error) {
    said = refusal(error.code(), error.what());
  }
  std::map<std::string, std::vector<std::uint32_t>> ranks;  // by the digests
  for (const auto& [rank, each] : runner.of_all({exec::Topic::kPlanned, asked_}, said)) {
    ranks[accepted(each)].push_back(rank);
  }
  if (ranks.size() == 1) return;
  std::set<std::string> programs;
  for (const auto& [both, who] : ranks) programs.insert(both.substr(0, both.find(' ')));
  if (programs.size() == 1) {
    fail(ErrorCode::kUsage,
         "change_plan: ranks have written different values into parameters since the last step. "
         "Write the same at every rank.");
  }
  std::vector<std::string> sides;
  for (const auto& [digest, who] : ranks) {
    sides.push_back(fmt::format("{} at ranks {}", digest, fmt::join(who, ", ")));
  }
  fail(ErrorCode::kUsage,
       "change_plan: ranks arrive at different Programs: {}. Start all of them with the same files "
       "and build.",
       fmt::join(sides, "; "));
}

// Nothing has changed yet when it throws, which it does at all ranks alike.
PlanChanges::Prepared PlanChanges::prepare(std::size_t index, exec::Call call,
                                           const planning::StrategyRequest& request,
                                           const std::optional<strategy::Strategy>& given,
                                           const std::string& name) {
  JobStep& step = steps_.at(index);
  if (!all_compute(step.program())) {
    fail(
        ErrorCode::kUsage,
        "change_plan: the job has ranks that only serve, which keep the plan that they began with. "
        "Choose a plan before the first step.");
  }
  exec::Runner& runner = step.runner();
  const auto made = begin_call(runner, call);
  ++asked_;
  const std::string document = accepted(
      runner.of_chief({exec::Topic::kPlan, asked_}, strategy_of_chief(index, request, given)));
  Prepared change;
  change.next = step.plan_with(strategy::deserialize(document, "the chief's strategy"),
                               job_.is_chief() ? name : "");
  const program::Program& next = *change.next.program;
  change.moves = program::transition(step.program(), next);
  program::verify(change.moves, step.program(), next);
  steps_.check_shared(index, next);
  if (!next.collectives.empty() && !steps_.have_library()) check_library(step);
  agree(index, next);
  return change;
}

// That all-reduces by a library, which the job has not had yet, can begin.
void PlanChanges::check_library(const JobStep& step) const {
  if (steps_.size() > 1) {
    fail(ErrorCode::kUsage,
         "change_plan: a job of several steps that began without a library's all-reduces cannot "
         "begin with one; name such a plan for one of its steps first");
  }
  if (!step.plan().has_library()) {
    fail(ErrorCode::kUsage,
         "change_plan: this program has no Gloo for all-reduces by a library, nor NCCL and a GPU "
         "for every rank. Take AllReduce:algorithm=ring.");
  }
}

PlanChange PlanChanges::go_on_under(std::size_t index, Prepared change) {
  JobStep& step = steps_.at(index);
  step.change_plan(std::move(change.next), change.moves, [&] {
    steps_.connect_library();
    return steps_.connections_of(index);
  });
  changed_(step);
  PlanChange told;
  const auto bytes_of = [&](const program::Move& move) {
    return exec::bytes_of(move, step.graph(), &job_.options().user_rules);
  };
  for (const program::Move& each : change.moves.moves) told.moved += bytes_of(each);
  told.predicted =
      planning::transition_seconds(change.moves, step.program(), job_.cluster(), bytes_of);
  for (const ir::VariableId each : change.moves.forgotten) {
    told.forgotten.push_back(step.graph().variable(each).name);
  }
  keep_history();
  return told;
}

// The user's plan ends the trials, or the repetition of a file of plans: neither knows it.
PlanChange PlanChanges::change(std::size_t index, planning::StrategyRequest request,
                               const std::optional<strategy::Strategy>& given) {
  request.own = job_.options().builders;
  request.one_of_several = !steps_.at(index).name().empty();
  const std::string name = given ? "strategy " + given->id : name_of(request);
  Prepared change = prepare(index, exec::Call::kChangePlan, request, given, name);
  drop_sequence();
  const PlanChange told = go_on_under(index, std::move(change));
  steps_.at(index).remember_plan();
  return told;
}

// The chief alone has the strategy; the others learn whether there is another.
PlanSequence::Decision PlanChanges::decide_together() {
  exec::Runner& runner = steps_.runner();
  const auto call = begin_call(runner, exec::Call::kTrial);
  ++asked_;
  PlanSequence::Decision decision;
  std::string said;
  if (job_.is_chief()) {
    decision = sequence_->decide();
    said = fmt::format("{} {}", decision.steps, decision.strategy ? "changes" : "stays");
  }
  said = runner.of_chief({exec::Topic::kPlan, asked_}, said);
  decision.steps = std::stoll(said);
  if (said.substr(said.find(' ') + 1) == "changes" && !job_.is_chief()) decision.strategy.emplace();
  return decision;
}

// A block of steps under one plan has ended, or the first begins.
void PlanChanges::meet_where_due() {
  if (!sequence_ || !sequence_->is_due(steps_.done())) return;
  const PlanSequence::Decision decision = decide_together();
  std::optional<Prepared> change;
  try {
    if (decision.strategy) {
      change = prepare(0, exec::Call::kTrial, {}, decision.strategy, decision.name);
    }
  } catch (const Error& error) {
    const bool is_refused =
        error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kInfeasible;
    if (!is_refused) throw;
    if (sequence_->put_off(steps_.done(), error)) return;
    if (job_.is_chief()) job_.say(fmt::format("no further trials of plans: {}", error.what()));
    end_sequence();
    return;
  }
  if (change) go_on_under(0, std::move(*change));
  if (!sequence_->begin_block(steps_.done(), decision.steps)) end_sequence();
}

void PlanChanges::end_sequence() {
  const std::string lines = sequence_->lines();
  if (job_.is_chief() && !lines.empty() && job_.options().search.found) {
    job_.options().search.found(lines);
  }
  steps_.front().remember_plan();
  drop_sequence();
}

void PlanChanges::drop_sequence() {
  sequence_.reset();
  if (job_.memory() != nullptr) job_.memory()->note_trials(false);
}

// Under which plan the next step is. A run that resumes goes on with the history that is there.
void PlanChanges::keep_history() {
  const std::string& file = job_.options().write_plans;
  if (file.empty() || !job_.is_chief()) return;
  const std::int64_t step = steps_.done();
  const StepPlan& now = steps_.front().plan();
  if (history_.empty() && step > 0 && std::filesystem::exists(file)) {
    history_ = history_of(job_, file);
  }
  while (!history_.empty() && history_.back().step >= step) history_.pop_back();
  if (!history_.empty() && history_.back().strategy == now.strategy) return;
  history_.push_back({step, now.strategy, now.name});
  write_file_atomically(file, strategy::to_text(history_));
}

}  // namespace autodist::job
