// A job goes on under another plan: who chooses it, how all ranks agree, and what moves
// (program/transition.h).

#include <fmt/ranges.h>

#include <filesystem>
#include <utility>

#include "autodist/base/error.h"
#include "autodist/base/file.h"
#include "autodist/comm/c10d/gloo.h"
#include "autodist/exec/state_bytes.h"
#include "autodist/job/torch/training_job.h"
#include "autodist/program/transition.h"

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

// Of the chief alone; at the others nothing.
std::string TrainingJob::strategy_of_chief(std::size_t index,
                                           const planning::StrategyRequest& request,
                                           const std::optional<strategy::Strategy>& given) {
  if (!is_chief()) return "";
  try {
    if (!given && request.file.empty() && request.builder == planning::kSearch) {
      fail(ErrorCode::kUsage,
           "'{}' searches, which a job does before its first step; a builder, "
           "or a strategy that plan() has found, expected",
           planning::kSearch);
    }
    return kHere + strategy::serialize(given ? *given : steps_[index]->choose(request));
  } catch (const Error& error) {
    return refusal(error.code(), error.what());
  }
}

// Returns when every rank knows that all have the newest variables, and the same next Program.
void TrainingJob::agree_to_change(std::size_t index, const program::Program& next) {
  exec::Runner& runner = steps_[index]->runner();
  runner.settle();
  std::string said = kHere + to_string(program::digest_of(next));
  if (runner.has_changes()) {
    said = refusal(ErrorCode::kUsage,
                   fmt::format("rank {} has new values in its parameters; a step takes them first",
                               job_->rank()));
  } else if (runner.calls().has_due()) {
    said = refusal(ErrorCode::kUsage,
                   "a checkpoint that rank 0 asked for alone is due after a later step");
  }
  const std::uint32_t number = plan_changes_;
  std::map<std::string, std::vector<std::uint32_t>> ranks;  // by the Program's digest
  for (const auto& [rank, each] : runner.of_all({exec::Topic::kPlanned, number}, said)) {
    ranks[accepted(each)].push_back(rank);
  }
  if (ranks.size() == 1) return;
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
TrainingJob::PreparedChange TrainingJob::prepare_change(
    std::size_t index, exec::Call call, const planning::StrategyRequest& request,
    const std::optional<strategy::Strategy>& given, const std::string& name) {
  JobStep& step = turn(index);
  if (!all_compute(step.program())) {
    fail(
        ErrorCode::kUsage,
        "change_plan: the job has ranks that only serve, which keep the plan that they began with. "
        "Choose a plan before the first step.");
  }
  exec::Runner& runner = step.runner();
  const auto made = begin_call(runner, call);
  ++plan_changes_;
  const std::string document = accepted(runner.of_chief({exec::Topic::kPlan, plan_changes_},
                                                        strategy_of_chief(index, request, given)));
  PreparedChange change;
  change.next = step.plan_with(strategy::deserialize(document, "the chief's strategy"),
                               is_chief() ? name : "");
  const program::Program& next = *change.next.program;
  change.moves = program::transition(step.program(), next);
  program::verify(change.moves, step.program(), next);
  check_shared(index, next);
  if (!next.collectives.empty() && !collectives_) check_library(step);
  agree_to_change(index, next);
  return change;
}

// That all-reduces by a library, which the job has not had yet, can begin.
void TrainingJob::check_library(const JobStep& step) const {
  if (channels_) {
    fail(ErrorCode::kUsage,
         "change_plan: a job of several steps that began without a library's all-reduces cannot "
         "begin with one; name such a plan for one of its steps first");
  }
  if (capture::device_of(step.declared()).is_cpu() && !comm::has_gloo()) {
    fail(ErrorCode::kUsage,
         "change_plan: this libtorch has no Gloo for all-reduces by a library. Take "
         "AllReduce:algorithm=ring.");
  }
}

PlanChange TrainingJob::go_on_under(std::size_t index, PreparedChange change) {
  JobStep& step = *steps_[index];
  step.change_plan(std::move(change.next), change.moves, [&] {
    connect_library();
    return connections_of(index);
  });
  if (wished_for_the_end_) step.runner().calls().wish_for_the_end();
  gathered_at_.reset();  // under the plan before
  gathered_.reset();
  saved_in_.clear();
  PlanChange told;
  for (const program::Move& each : change.moves.moves) {
    told.moved += exec::bytes_of(each, step.graph(), &job_->options().user_rules);
  }
  for (const ir::VariableId each : change.moves.forgotten) {
    told.forgotten.push_back(step.graph().variable(each).name);
  }
  keep_history();
  return told;
}

// The user's plan ends the trials, or the repetition of a file of plans: neither knows it.
PlanChange TrainingJob::change_plan(std::size_t index, planning::StrategyRequest request,
                                    const std::optional<strategy::Strategy>& given) {
  request.own = job_->options().builders;
  request.one_of_several = !steps_[index]->name().empty();
  const std::string name = given ? "strategy " + given->id : name_of(request);
  PreparedChange change = prepare_change(index, exec::Call::kChangePlan, request, given, name);
  drop_sequence();
  const PlanChange told = go_on_under(index, std::move(change));
  steps_[index]->remember_plan();
  return told;
}

// The chief alone has the strategy; the others learn whether there is another.
PlanSequence::Decision TrainingJob::decide_together() {
  exec::Runner& runner = current();
  const auto call = begin_call(runner, exec::Call::kTrial);
  ++plan_changes_;
  PlanSequence::Decision decision;
  std::string said;
  if (is_chief()) {
    decision = sequence_->decide();
    said = fmt::format("{} {}", decision.steps, decision.strategy ? "changes" : "stays");
  }
  said = runner.of_chief({exec::Topic::kPlan, plan_changes_}, said);
  decision.steps = std::stoll(said);
  if (said.substr(said.find(' ') + 1) == "changes" && !is_chief()) decision.strategy.emplace();
  return decision;
}

// Before a step, by all ranks: a block of steps under one plan has ended, or the first begins.
void TrainingJob::meet_for_plan() {
  const PlanSequence::Decision decision = decide_together();
  std::optional<PreparedChange> change;
  try {
    if (decision.strategy) {
      change = prepare_change(0, exec::Call::kTrial, {}, decision.strategy, decision.name);
    }
  } catch (const Error& error) {
    const bool is_refused =
        error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kInfeasible;
    if (!is_refused) throw;
    if (sequence_->put_off(steps_done(), error)) return;
    if (is_chief()) job_->say(fmt::format("no further trials of plans: {}", error.what()));
    end_sequence();
    return;
  }
  if (change) go_on_under(0, std::move(*change));
  if (!sequence_->begin_block(steps_done(), decision.steps)) end_sequence();
}

void TrainingJob::end_sequence() {
  const std::string lines = sequence_->lines();
  if (is_chief() && !lines.empty() && job_->options().search.found) {
    job_->options().search.found(lines);
  }
  steps_.front()->remember_plan();
  drop_sequence();
}

void TrainingJob::drop_sequence() {
  sequence_.reset();
  if (job_->memory() != nullptr) job_->memory()->note_trials(false);
}

// Under which plan the next step is. A run that resumes goes on with the history that is there.
void TrainingJob::keep_history() {
  const std::string& file = job_->options().write_plans;
  if (file.empty() || !is_chief()) return;
  const std::int64_t step = steps_done();
  const StepPlan& now = steps_.front()->plan();
  if (history_.empty() && step > 0 && std::filesystem::exists(file)) {
    history_ = history_of(*job_, file);
  }
  while (!history_.empty() && history_.back().step >= step) history_.pop_back();
  if (!history_.empty() && history_.back().strategy == now.strategy) return;
  history_.push_back({step, now.strategy, now.name});
  write_file_atomically(file, strategy::to_text(history_));
}

}  // namespace autodist::job
